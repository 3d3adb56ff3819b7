#include "tools/observe/daemon_metrics.h"

#include <gmock/gmock.h>

#include <algorithm>

namespace weightcast {
namespace {

using testing::HasSubstr;
using testing::Not;

local::NodeStatus node(const std::string& name, const std::string& role, std::uint64_t version,
                       const std::string& state) {
  local::NodeStatus node;
  node.name = name;
  node.role = role;
  node.version = version;
  node.state = state;
  return node;
}

FleetState fleet() {
  FleetState state;
  state.status.latest_version = 7;
  state.status.nodes = {node("trainer", "origin", 7, "idle"), node("a", "worker", 7, "idle"),
                        node("b", "worker", 6, "receiving"), node("c", "worker", 3, "lost"),
                        node("d", "worker", 3, "standby")};
  return state;
}

std::string metrics_of(const FleetState& state, bool ready = true) {
  local::ReadyReply reply;
  reply.ready = ready;
  return daemon_metrics(state, reply, "1.2.3");
}

TEST(DaemonMetrics, AnOriginCountsItsWorkersByState) {
  const std::string text = metrics_of(fleet());
  EXPECT_THAT(text, HasSubstr("weightcast_build_info{version=\"1.2.3\",role=\"origin\"} 1\n"));
  EXPECT_THAT(text, HasSubstr("weightcast_version 7\n"));
  EXPECT_THAT(text, HasSubstr("weightcast_peers{state=\"idle\"} 1\n"));
  EXPECT_THAT(text, HasSubstr("weightcast_peers{state=\"lost\"} 1\n"));
  EXPECT_THAT(text, HasSubstr("weightcast_peers{state=\"failed\"} 0\n")) << "an alert needs the 0";
  EXPECT_THAT(text, HasSubstr("weightcast_peers_behind 1\n")) << "lost ones and spares are not waited for";
}

TEST(DaemonMetrics, WhatBecameOfSpansIsToldWhereACollectorGetsThem) {
  const std::string text = daemon_metrics(fleet(), {}, "1.2.3", OtlpExporter::Counts{.sent = 5, .dropped = 2});
  EXPECT_THAT(text, HasSubstr("weightcast_otlp_publications_total{outcome=\"sent\"} 5\n"));
  EXPECT_THAT(text, HasSubstr("weightcast_otlp_publications_total{outcome=\"dropped\"} 2\n"));
  EXPECT_THAT(metrics_of(fleet()), Not(HasSubstr("otlp")));
}

TEST(DaemonMetrics, AWorkerTellsOfItself) {
  FleetState state;
  state.status.nodes = {node("a", "worker", 6, "idle")};
  state.status.nodes[0].traffic = {{"received", "patch", 1234}};
  state.status.nodes[0].phases = {{"apply", 3, 1.5, {{0.1, 1}, {1, 2}}}};
  state.status.nodes[0].refused = {{"stranger", 4}};
  const std::string text = metrics_of(state, false);
  EXPECT_THAT(text, HasSubstr("weightcast_ready 0\n"));
  EXPECT_THAT(text, HasSubstr("weightcast_bytes_total{direction=\"received\",kind=\"patch\"} 1234\n"));
  EXPECT_THAT(text, HasSubstr("weightcast_phase_seconds_bucket{phase=\"apply\",le=\"1\"} 3\n"));
  EXPECT_THAT(text, HasSubstr("weightcast_failures_total{reason=\"stranger\"} 4\n"));
  EXPECT_THAT(text, Not(HasSubstr("weightcast_peers{")));
  EXPECT_THAT(text, Not(HasSubstr("weightcast_keys_expire_timestamp_seconds"))) << "it has none";
}

TEST(DaemonMetrics, TellsTheTimesOfTheNewestCompletePublication) {
  FleetState state = fleet();
  state.history.publications.resize(2);
  state.history.publications[0].state = "complete";
  state.history.publications[0].t50_s = 1;
  state.history.publications[0].t90_s = 2;
  state.history.publications[0].t100_s = 2.5;
  state.history.publications[1].state = "under way";
  state.history.publications[1].t50_s = 9;
  state.history.publications[1].workers = 2;
  state.history.publications[1].installed = 1;
  const std::string text = metrics_of(state);
  EXPECT_THAT(text, HasSubstr("weightcast_broadcast_seconds{fraction=\"0.5\"} 1\n"));
  EXPECT_THAT(text, HasSubstr("weightcast_broadcast_seconds{fraction=\"1\"} 2.5\n"));
  EXPECT_THAT(text, HasSubstr("weightcast_publication_workers 2\n"));
  EXPECT_THAT(text, HasSubstr("weightcast_publication_installed 1\n"));
}

TEST(DaemonMetrics, AFleetOfAnySizeTakesAsManyLines) {
  FleetState large = fleet();
  for (int i = 0; i < 1000; ++i) large.status.nodes.push_back(node("w" + std::to_string(i), "worker", 7, "idle"));
  large.history.publications.resize(200);
  FleetState small = fleet();
  small.history.publications.resize(1);
  const std::string few = metrics_of(small), many = metrics_of(large);
  EXPECT_EQ(std::ranges::count(few, '\n'), std::ranges::count(many, '\n'));
}

}  // namespace
}  // namespace weightcast
