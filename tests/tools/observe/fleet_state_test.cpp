#include "tools/observe/fleet_state.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

namespace weightcast {
namespace {

using Json = nlohmann::json;

local::NodeStatus worker(const std::string& name, std::uint64_t version) {
  local::NodeStatus node;
  node.name = name;
  node.role = "worker";
  node.version = version;
  node.score = 0.5;
  return node;
}

FleetState fleet() {
  FleetState state;
  state.unix_ms = 1000;
  state.status.latest_version = 7;
  state.status.nodes = {worker("a", 7), worker("b", 6)};
  state.versions.versions.resize(1);
  state.history.publications.resize(1);
  state.history.publications[0].version = 7;
  return state;
}

TEST(FleetState, TellsAllThatTheCommandLineDoes) {
  const Json json = whole_json(fleet());
  EXPECT_EQ(json["unix_ms"], 1000);
  EXPECT_EQ(json["latest_version"], 7);
  EXPECT_EQ(json["nodes"].size(), 2u);
  EXPECT_EQ(json["nodes"][1]["name"], "b");
  EXPECT_EQ(json["versions"].size(), 1u);
  EXPECT_EQ(json["publications"][0]["version"], 7);
}

TEST(FleetState, TellsNothingWhereNothingChanged) {
  FleetState after = fleet();
  after.unix_ms = 2000;
  EXPECT_FALSE(change_json(fleet(), after));
}

TEST(FleetState, TellsOfANodeWhatDiffers) {
  FleetState after = fleet();
  after.unix_ms = 2000;
  after.status.nodes[1].version = 7;
  after.status.nodes[1].last_error = "late";
  const auto change = change_json(fleet(), after);
  ASSERT_TRUE(change);
  EXPECT_EQ(*change, Json::parse(R"({"unix_ms": 2000,
    "nodes": [{"name": "b", "role": "worker", "version": 7, "last_error": "late"}]})"));
}

TEST(FleetState, AScoreThatAgesIsNoChange) {
  FleetState after = fleet();
  after.status.nodes[0].score = 0.4951;
  EXPECT_FALSE(change_json(fleet(), after));
  after.status.nodes[0].score = 0.48;
  const auto change = change_json(fleet(), after);
  ASSERT_TRUE(change);
  EXPECT_EQ((*change)["nodes"][0]["score"], 0.48);
}

TEST(FleetState, TellsWhoCameAndWhoIsGone) {
  FleetState after = fleet();
  after.status.nodes = {worker("b", 6), worker("c", 0)};
  const auto change = change_json(fleet(), after);
  ASSERT_TRUE(change);
  ASSERT_EQ((*change)["nodes"].size(), 1u);
  EXPECT_EQ((*change)["nodes"][0]["name"], "c");
  EXPECT_TRUE((*change)["nodes"][0].contains("address")) << "a new one is told whole";
  EXPECT_EQ((*change)["nodes_gone"], Json::parse(R"([{"name": "a", "role": "worker"}])"));
}

TEST(FleetState, TellsAWorkerFromTheOriginOfItsName) {
  FleetState before = fleet();
  before.status.nodes.push_back(worker("a", 7));
  before.status.nodes.back().role = "origin";
  FleetState after = before;
  after.status.nodes.back().version = 8;
  const auto change = change_json(before, after);
  ASSERT_TRUE(change);
  EXPECT_EQ((*change)["nodes"], Json::parse(R"([{"name": "a", "role": "origin", "version": 8}])"));
}

TEST(FleetState, TellsPublicationsAndVersionsThatDiffer) {
  FleetState after = fleet();
  after.status.latest_version = 8;
  after.history.publications[0].version = 8;
  after.versions.versions[0].current = true;
  const auto change = change_json(fleet(), after);
  ASSERT_TRUE(change);
  EXPECT_EQ((*change)["latest_version"], 8);
  EXPECT_EQ((*change)["publications"][0]["version"], 8);
  EXPECT_EQ((*change)["publications_gone"], Json::parse("[7]"));
  EXPECT_EQ((*change)["versions"][0]["current"], true);
  EXPECT_FALSE(change->contains("nodes"));
}

}  // namespace
}  // namespace weightcast
