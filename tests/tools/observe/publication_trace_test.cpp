#include "tools/observe/publication_trace.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <nlohmann/json.hpp>

namespace weightcast {
namespace {

using Json = nlohmann::json;

local::WorkerCourse course(const std::string& name, double told_s, const std::string& fed_by) {
  local::WorkerCourse course;
  course.name = name;
  course.payload = "full";
  course.told_s = told_s;
  course.has_phases = true;
  course.waiting_s = 0.125;
  course.asking_s = 0.25;
  course.receiving_s = 2;
  course.storing_s = 0.5;
  course.applying_s = 0.25;
  course.switching_s = 0.125;
  course.engine_s = 0.5;
  course.installed_s = told_s + 3.25;
  course.bytes = course.fed_bytes = 1000;
  course.fed_by = fed_by;
  return course;
}

local::HistoryReply history() {
  local::HistoryReply history;
  local::PublicationEntry& entry = history.publications.emplace_back();
  entry.version = 7;
  entry.state = "complete";
  entry.elapsed_s = 5;
  entry.take_over_s = 0.5;
  entry.take_over_at_s = 0;
  entry.pack_s = 0.25;
  entry.pack_at_s = 0.5;
  entry.t100_s = 4.5;
  history.workers = {course("b", 1, "a"), course("a", 0.5, "trainer")};
  history.workers_total = 5;
  return history;
}

std::vector<Json> events(const Json& trace, const std::string& phase, const std::string& name = "") {
  std::vector<Json> found;
  for (const Json& event : trace["traceEvents"]) {
    if (event["ph"] == phase && (name.empty() || event["name"] == name)) found.push_back(event);
  }
  return found;
}

int thread_of(const Json& trace, const std::string& name) {
  for (const Json& event : events(trace, "M", "thread_name")) {
    if (event["args"]["name"] == name) return event["tid"];
  }
  return -1;
}

TEST(PublicationTrace, HasTheOriginsPhasesWhereTheyBegan) {
  const Json trace = publication_trace(history());
  const auto take = events(trace, "X", "take"), pack = events(trace, "X", "pack");
  ASSERT_EQ(take.size(), 1u);
  EXPECT_EQ(take[0]["ts"], 0);
  EXPECT_EQ(take[0]["dur"], 500'000);
  ASSERT_EQ(pack.size(), 1u);
  EXPECT_EQ(pack[0]["ts"], 500'000);
  EXPECT_TRUE(events(trace, "X", "encode").empty()) << "there was none";
  EXPECT_EQ(events(trace, "i", "T_bcast(1.0)")[0]["ts"], 4'500'000);
  EXPECT_EQ(trace["otherData"]["workers_left_out"], 3);
}

TEST(PublicationTrace, AWorkersPhasesFollowOneAnotherUntilItIsInstalled) {
  const Json trace = publication_trace(history());
  const int b = thread_of(trace, "b");
  ASSERT_GT(b, 0);
  double at = 1e6;
  std::vector<std::string> names;
  for (const Json& slice : events(trace, "X")) {
    if (slice["pid"] != 2 || slice["tid"] != b) continue;
    EXPECT_EQ(slice["ts"], at) << slice;
    at += slice["dur"].get<double>();
    names.push_back(slice["name"]);
  }
  EXPECT_EQ(names, (std::vector<std::string>{"wait", "ask", "transfer", "store", "apply", "switch", "engine"}));
  EXPECT_EQ(at, 4.75e6);
}

TEST(PublicationTrace, WithoutAnEngineThereIsNoSuchPhase) {
  local::HistoryReply alone = history();
  for (local::WorkerCourse& worker : alone.workers) worker.engine_s.reset();
  EXPECT_TRUE(events(publication_trace(alone), "X", "engine").empty());
  EXPECT_EQ(events(publication_trace(alone), "X", "switch").size(), 2u);
}

TEST(PublicationTrace, AnArrowLeadsFromWhoFedToWhoWasFed) {
  const Json trace = publication_trace(history());
  const auto from = events(trace, "s"), to = events(trace, "f");
  ASSERT_EQ(from.size(), 1u) << "the origin's place in a trace is none of the workers'";
  ASSERT_EQ(to.size(), 1u);
  EXPECT_EQ(from[0]["tid"], thread_of(trace, "a"));
  EXPECT_EQ(to[0]["tid"], thread_of(trace, "b"));
  EXPECT_EQ(from[0]["id"], to[0]["id"]);
  EXPECT_LE(from[0]["ts"], to[0]["ts"]);
}

TEST(PublicationTrace, WhoHadItFirstComesFirst) {
  local::HistoryReply three = history();
  local::WorkerCourse never;
  never.name = "never";
  three.workers.insert(three.workers.begin(), never);
  const Json trace = publication_trace(three);
  EXPECT_LT(thread_of(trace, "a"), thread_of(trace, "b"));
  EXPECT_LT(thread_of(trace, "b"), thread_of(trace, "never"));
}

TEST(PublicationTrace, TellsWhatOneWithoutPhasesSays) {
  local::HistoryReply history;
  history.publications.emplace_back().version = 7;
  local::WorkerCourse& old = history.workers.emplace_back();
  old.name = "old";
  old.told_s = 1;
  old.installed_s = 3;
  old.failure = "the disk was full";
  const Json trace = publication_trace(history);
  EXPECT_EQ(events(trace, "X", "install")[0]["dur"], 2'000'000);
  EXPECT_EQ(events(trace, "i", "failed: the disk was full").size(), 1u);
  EXPECT_TRUE(publication_trace({})["traceEvents"].is_array());
}

}  // namespace
}  // namespace weightcast
