#include "trainer/intake/intake.h"

#include <algorithm>
#include <cmath>
#include <condition_variable>
#include <map>
#include <mutex>
#include <thread>

#include "base/digest/content_digest.h"
#include "base/steady_clock.h"
#include "tests/trainer/intake/intake_fixture.h"
#include "tests/transport/security/cluster_keys.h"
#include "trainer/tasks/trajectory/trajectory_json.h"
#include "trainer/tasks/trajectory/trajectory_wire.h"

namespace weightcast {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using Json = nlohmann::json;

Json rollout_json(const std::string& worker, std::uint64_t sequence, const std::string& group,
                  std::uint64_t version = 1) {
  return Json::parse(write_trajectory(rollout(worker, sequence, group, version)));
}

std::vector<std::string> verdicts(const Json& answer) {
  std::vector<std::string> all;
  for (const Json& one : answer.at("verdicts")) all.push_back(one.at("verdict"));
  return all;
}

TEST_F(IntakeTest, JudgesEachRolloutOfABatch) {
  open();
  Json malformed = rollout_json("w", 3, "g");
  malformed.erase("tokens");
  Json unknown_version = rollout_json("w", 4, "g", 9);
  const HttpResponse response = post("/v1/rollouts", {{"rollouts",
                                                       {rollout_json("w", 1, "g"), rollout_json("w", 1, "g"), malformed,
                                                        unknown_version, rollout_json("w", 2, "g")}}});
  EXPECT_EQ(response.status, 200u) << response.body;
  const Json answer = json(response);
  EXPECT_THAT(verdicts(answer), ElementsAre("admitted", "duplicate", "refused", "refused", "admitted"));
  EXPECT_EQ(answer["verdicts"][2]["reason"], "malformed");
  EXPECT_THAT(answer["verdicts"][2]["detail"].get<std::string>(), HasSubstr("tokens"));
  EXPECT_EQ(answer["verdicts"][3]["reason"], "version_unknown");
  EXPECT_EQ(answer["version"], 1);
  EXPECT_EQ(answer["ended"], false);
  EXPECT_EQ(buffer_->stats().admitted, 2u);
  EXPECT_EQ(intake_->malformed(), 1u);
}

TEST_F(IntakeTest, TakesProtobuf) {
  open();
  const std::vector<std::string> rollouts{encode_trajectory(rollout("w", 1, "g", 1)),
                                          encode_trajectory(rollout("w", 2, "g", 1))};
  const HttpResponse response = call({.method = "POST",
                                      .target = "/v1/rollouts",
                                      .content_type = "application/x-protobuf",
                                      .body = encode_batch("", rollouts)});
  EXPECT_THAT(verdicts(json(response)), ElementsAre("admitted", "admitted"));
}

TEST_F(IntakeTest, SaysWhenTheBufferIsFull) {
  open();
  Json all = Json::array();
  for (std::uint64_t i = 0; i < 9; ++i) all.push_back(rollout_json("w", i, "g" + std::to_string(i / 2)));
  const HttpResponse partly = post("/v1/rollouts", {{"rollouts", all}});
  EXPECT_EQ(partly.status, 200u);
  EXPECT_EQ(verdicts(json(partly)).back(), "full");
  const HttpResponse response = post("/v1/rollouts", {{"rollouts", {all.back()}}});
  EXPECT_EQ(response.status, 429u);
  EXPECT_EQ(response.header("Retry-After"), "1");
  ASSERT_TRUE(buffer_->take_batch(steady_now()).has_value());
  EXPECT_THAT(verdicts(json(post("/v1/rollouts", {{"rollouts", {all.back()}}}))), ElementsAre("admitted"));
}

TEST_F(IntakeTest, LeasesWholeGroups) {
  open({}, false, [] {
    ReplayOptions options = replay_options();
    options.async_generation_ratio = 0.9;  // 3.8 groups
    return options;
  }());
  const Json one = json(post("/v1/starts", {{"worker", "a"}, {"groups", 2}, {"first_sequence", 0}}));
  EXPECT_EQ(one["groups"], Json({0, 1}));
  const Json other = json(post("/v1/starts", {{"worker", "b"}, {"groups", 2}, {"first_sequence", 0}}));
  EXPECT_EQ(other["groups"], Json({2}));
  EXPECT_EQ(buffer_->under_way(), 6u);
  EXPECT_GT(other["retry_ms"].get<int>(), 0);
  EXPECT_THAT(json(post("/v1/starts", {{"worker", "b"}, {"groups", 2}, {"first_sequence", 2}}))["groups"], IsEmpty());
}

TEST_F(IntakeTest, LeasesAgainWhatAWorkerNeverHeardOf) {
  ReplayOptions replay = replay_options();
  replay.max_staleness = 0;
  open({}, false, replay);
  const Json asked{{"worker", "w"}, {"incarnation", "a"}, {"groups", 2}, {"first_sequence", 10}};
  EXPECT_EQ(json(post("/v1/starts", asked))["groups"].size(), 2u);
  EXPECT_EQ(json(post("/v1/starts", asked))["groups"].size(), 2u) << "its answer was lost";
  Json more = asked;
  more["first_sequence"] = 14;
  EXPECT_EQ(json(post("/v1/starts", more))["groups"].size(), 0u) << "both groups are under way";
}

TEST_F(IntakeTest, RedundantRolloutsNeedNoRoomInTheBatch) {
  ReplayOptions replay = replay_options();
  replay.max_staleness = 0;
  replay.group_size_redundancy = 1;
  open({}, false, replay);
  std::size_t groups = 0;
  for (const std::uint64_t first : {0, 3}) {
    groups += json(post("/v1/starts", {{"worker", "w"},
                                       {"incarnation", "a"},
                                       {"groups", 1},
                                       {"rollouts_per_group", 3},
                                       {"first_sequence", first}}))["groups"]
                  .size();
  }
  EXPECT_EQ(groups, 2u) << "a batch is two groups of two";
}

TEST_F(IntakeTest, ARunKeepsItsIdOverRestarts) {
  open();
  const auto run = [&] { return json(call({.target = "/v1/run"}))["run_id"].get<std::string>(); };
  const auto life = [&] { return json(post("/v1/heartbeats", {{"worker", "a"}}))["life"].get<std::string>(); };
  const std::string first = run(), first_life = life();
  open({}, true);
  EXPECT_EQ(run(), first);
  EXPECT_NE(life(), first_life);
  open({}, false);
  EXPECT_NE(run(), first);
}

TEST_F(IntakeTest, NumbersGroupsAfterThoseOfAnEarlierReleasesCheckpoint) {
  open();
  ASSERT_TRUE(intake_->restore(R"({"malformed": 3, "next_group": 7, "workers": {"w": "a"}})").has_value());
  EXPECT_EQ(intake_->malformed(), 3u);
  EXPECT_EQ(json(post("/v1/starts", {{"worker", "a"}, {"groups", 1}, {"first_sequence", 0}}))["groups"], Json({7}));
}

TEST_F(IntakeTest, ForgetsWhatARestartedWorkerHadStarted) {
  open();
  const auto start = [&](const std::string& incarnation, int first) {
    return json(
        post("/v1/starts", {{"worker", "a"}, {"groups", 1}, {"first_sequence", first}, {"incarnation", incarnation}}));
  };
  start("one", 0);
  start("one", 2);
  EXPECT_EQ(buffer_->under_way(), 4u);
  start("two", 4);
  EXPECT_EQ(buffer_->under_way(), 2u);
  EXPECT_EQ(buffer_->stats().lost, 4u);
}

TEST_F(IntakeTest, ForgetsWhatASilentWorkerHadStarted) {
  open({.silence_max = std::chrono::milliseconds(20)});
  post("/v1/starts", {{"worker", "dead"}, {"groups", 2}, {"first_sequence", 0}});
  std::this_thread::sleep_for(std::chrono::milliseconds(30));
  post("/v1/heartbeats", {{"worker", "alive"}});
  EXPECT_EQ(buffer_->under_way(), 0u);
  for (const IntakeWorker& worker : intake_->workers()) EXPECT_EQ(worker.is_silent, worker.name == "dead");
}

TEST_F(IntakeTest, SaysThatTheFileOfTheRunIsMissingOrDamaged) {
  const auto refusal = [&] {
    RolloutIntake intake(files_, {.listen = {"127.0.0.1", 0}, .directory = temp_.file(".")}, buffer_);
    const Status opened = intake.open({}, true);
    return opened.has_value() ? Error{} : opened.error();
  };
  open();
  ASSERT_TRUE(files_.remove(temp_.file("intake.json")).has_value());
  EXPECT_EQ(refusal().code, Errc::kNotFound);
  EXPECT_THAT(refusal().message(), HasSubstr("another output_dir"));
  for (const char* text : {R"({"run": "../.."})", R"({"run": ""})", R"({"run": 7})", "[]", "[[[["}) {
    ASSERT_TRUE(replace_file(files_, temp_.file("intake.json"), text, Synced::kNothing).has_value());
    EXPECT_EQ(refusal().code, Errc::kCorrupt) << text;
    EXPECT_THAT(refusal().message(), HasSubstr("intake.json")) << text;
  }
}

TEST_F(IntakeTest, TellsAWorkerWhatToAbort) {
  open();
  post("/v1/starts", {{"worker", "a"}, {"groups", 1}, {"first_sequence", 7}});
  buffer_->handle_step(Version{4});
  EXPECT_THAT(json(post("/v1/heartbeats", {{"worker", "b"}}))["abort"], IsEmpty());
  EXPECT_EQ(json(post("/v1/heartbeats", {{"worker", "a"}}))["abort"], Json({7, 8}));
  EXPECT_THAT(json(post("/v1/heartbeats", {{"worker", "a"}}))["abort"], IsEmpty());
}

TEST_F(IntakeTest, KeepsWhatWorkersSayOfThemselves) {
  open();
  EXPECT_EQ(json(post("/v1/heartbeats", {{"worker", "a"},
                                         {"version", 3},
                                         {"rollouts_per_s", 1.5},
                                         {"active", false},
                                         {"full_load_s", 9},
                                         {"price_per_hour", 0.35}}))["active"],
            true);
  ASSERT_EQ(intake_->workers().size(), 1u);
  const IntakeWorker row = intake_->workers().front();
  EXPECT_EQ(row.said.weights, Version{3});
  EXPECT_EQ(row.said.rollouts_per_s, 1.5);
  EXPECT_FALSE(row.said.is_active);
  EXPECT_EQ(row.said.price_per_hour, 0.35);
  intake_->set_wanted("a", false);
  const Json starts = json(post("/v1/starts", {{"worker", "a"}, {"groups", 1}, {"first_sequence", 0}}));
  EXPECT_EQ(starts["active"], false);
  EXPECT_THAT(starts["groups"], IsEmpty());
  intake_->handle_figures({{"critic/score/mean", 0.5}, {"bubble_ratio", std::nan("")}});
  const Json status = json(call({.target = "/v1/status"}));
  EXPECT_EQ(status["workers"][0]["name"], "a");
  EXPECT_EQ(status["workers"][0]["price_per_hour"], 0.35);
  EXPECT_GE(status["workers"][0]["version_s"].get<double>(), 0);
  EXPECT_EQ(status["metrics"]["critic/score/mean"], 0.5);
  EXPECT_TRUE(status["metrics"]["bubble_ratio"].is_null());
}

TEST_F(IntakeTest, TellsWorkersToSyncWhenTheyHaveDrifted) {
  open({.sync = SyncCoordinatorOptions{.drift_max = 2}});
  const auto says = [&](std::uint64_t version) {
    return json(post("/v1/heartbeats", {{"worker", "a"}, {"version", version}}))["begin_at_least"];
  };
  intake_->handle_published(Version{1});
  EXPECT_EQ(says(1), 0);
  EXPECT_FALSE(intake_->handle_step(steady_now(), Version{3}));
  EXPECT_TRUE(intake_->handle_step(steady_now(), Version{4}));
  EXPECT_EQ(says(1), 0) << "the origin does not have it yet";
  intake_->handle_published(Version{4});
  ASSERT_TRUE(intake_->fill(steady_now(), buffer_).has_value());
  EXPECT_EQ(says(1), 4);
  EXPECT_FALSE(intake_->handle_step(steady_now(), Version{9})) << "one is under way";
  EXPECT_EQ(json(post("/v1/starts", {{"worker", "a"}, {"groups", 1}, {"first_sequence", 0}}))["begin_at_least"], 4);
  says(4);
  ASSERT_TRUE(intake_->fill(steady_now(), buffer_).has_value());
  EXPECT_EQ(says(4), 0);
  EXPECT_TRUE(intake_->handle_step(steady_now(), Version{10}));
}

TEST_F(IntakeTest, TellsWorkersThatTheRunHasEnded) {
  open();
  post("/v1/heartbeats", {{"worker", "a"}});
  intake_->wait_for_workers(kLimit);  // it has not: nothing to wait for
  intake_->handle_ended();
  std::thread asks([this] {
    const Json answer = json(post("/v1/starts", {{"worker", "a"}, {"groups", 1}, {"first_sequence", 0}}));
    EXPECT_EQ(answer["ended"], true);
    EXPECT_THAT(answer["groups"], IsEmpty());
  });
  intake_->wait_for_workers(kLimit);
  EXPECT_TRUE(intake_->workers().front().knows_end);
  asks.join();
}

TEST_F(IntakeTest, ARowThatWasSeenWithinAHeartbeatIsSeenAgainAfterIt) {
  open();
  constexpr std::uint64_t kHeartbeats = 100;
  std::thread beats([this] {
    for (std::uint64_t version = 1; version <= kHeartbeats; ++version) {
      post("/v1/heartbeats", {{"worker", "a"}, {"version", version}});
    }
  });
  // As the learner's meter: what was heard at one moment is looked at once.
  std::map<Instant, Version> seen;
  for (Version last{}; last < Version{kHeartbeats};) {
    for (const IntakeWorker& row : intake_->workers()) {
      last = row.said.weights;
      EXPECT_EQ(seen.emplace(row.heard, row.said.weights).first->second, row.said.weights);
    }
  }
  beats.join();
}

TEST_F(IntakeTest, WakesTheLearnerForAnAdmittedRollout) {
  open();
  std::thread sends([this] { post("/v1/rollouts", {{"rollouts", {rollout_json("w", 1, "g")}}}); });
  while (buffer_->buffered() == 0) ASSERT_TRUE(intake_->fill(Instant{}, buffer_).value());
  sends.join();
}

TEST_F(IntakeTest, DescribesTheRun) {
  open({.task_data = "{\"question\": 1}\n", .model_files = {{"config.json", "{\"a\": 1}"}}});
  const RunDescription run = read_run_description(call({.target = "/v1/run"}).body).value();
  EXPECT_EQ(run.task, "arithmetic");
  EXPECT_EQ(run.group_size, 2u);
  const HttpResponse data = call({.target = "/v1/task_data"});
  EXPECT_EQ(content_digest_of(std::as_bytes(std::span(data.body))).hex(), run.task_data_digest);
  EXPECT_EQ(call({.target = "/v1/model/config.json"}).body, "{\"a\": 1}");
  EXPECT_EQ(call({.target = "/v1/model/../intake.json"}).status, 404u);
  EXPECT_EQ(call({.target = "/health"}).status, 200u);
}

TEST_F(IntakeTest, RefusesBadCallsWithTheirReason) {
  open();
  const auto refused = [&](const std::string& target, const std::string& body, unsigned status, const std::string& why,
                           const std::string& type = "application/json") {
    const HttpResponse response = call({.method = "POST", .target = target, .content_type = type, .body = body});
    EXPECT_EQ(response.status, status) << target << " " << body;
    EXPECT_THAT(response.body, HasSubstr(why));
  };
  refused("/v1/rollouts", "[]", 400, "no JSON object");
  refused("/v1/rollouts", std::string(200, '['), 400, "no JSON object");
  refused("/v1/rollouts", "{\"rollouts\": 7}", 400, "'rollouts'");
  refused("/v1/rollouts", "x", 415, "Content-Type", "text/plain");
  refused("/v1/rollouts", "\xff", 400, "rollout.proto", "application/x-protobuf");
  refused("/v1/rollouts", "{\"run\": \"another\", \"rollouts\": []}", 409, "this learner is at run");
  refused("/v1/starts", "{}", 400, "'worker'");
  refused("/v1/starts", "{\"worker\": \"a\", \"first_sequence\": 0}", 400, "'groups' is missing");
  refused("/v1/starts", "{\"worker\": \"a\", \"groups\": 1000000, \"rollouts_per_group\": 9, \"first_sequence\": 0}",
          400, "from 2 to 2");
  refused("/v1/starts", "{\"worker\": \"a\", \"groups\": 1, \"rollouts_per_group\": 1, \"first_sequence\": 0}", 400,
          "'rollouts_per_group'");
  refused("/v1/starts", "{\"worker\": \"a\", \"groups\": -1, \"first_sequence\": 0}", 400, "'groups'");
  refused("/v1/heartbeats", "{\"worker\": 7}", 400, "'worker'");
  refused("/v1/heartbeats", "{\"worker\": \"a\", \"rollouts_per_s\": -1}", 400, "'rollouts_per_s'");
  refused("/v1/heartbeats", "{\"worker\": \"a\", \"abandoned\": [\"x\"]}", 400, "'abandoned'");
  refused("/v1/run", "", 405, "this path takes GET, HEAD");
  refused("/nowhere", "", 404, "/v1/run");
}

TEST_F(IntakeTest, GoesByTheCertificatesName) {
  const ClusterKeys keys;
  open({.trust = {.keys = keys.origin_file()}});
  client_ = std::move(*HttpClient::make({.server = intake_->endpoint(), .trust = {.keys = keys.issue("gpu-1")}}));
  Json nameless = rollout_json("", 2, "g");
  const Json answer = json(
      post("/v1/rollouts", {{"rollouts", {rollout_json("gpu-1", 1, "g"), rollout_json("gpu-2", 1, "g"), nameless}}}));
  EXPECT_THAT(verdicts(answer), ElementsAre("admitted", "refused", "admitted"));
  EXPECT_EQ(answer["verdicts"][1]["reason"], "other_worker");
  EXPECT_EQ(post("/v1/heartbeats", {{"worker", "gpu-2"}}).status, 403u);
  EXPECT_EQ(post("/v1/heartbeats", Json::object()).status, 200u);
  EXPECT_EQ(intake_->workers().front().name, "gpu-1");
}

TEST_F(IntakeTest, RefusesARolloutThatItsReaderWouldNotEnd) {
  open({.limits = {.tokens_max = 5, .metadata_bytes_max = 100}});
  Json large = rollout_json("w", 1, "g");
  large["turns"] = Json::array();
  for (int i = 0; i < 9; ++i) large["turns"].push_back({0, 0, 0});
  const Json answer = json(post("/v1/rollouts", {{"rollouts", {large, rollout_json("w", 2, "g")}}}));
  EXPECT_THAT(verdicts(answer), ElementsAre("refused", "admitted"));
  EXPECT_EQ(answer["verdicts"][0]["reason"], "too_large");
  EXPECT_THAT(answer["verdicts"][0]["detail"].get<std::string>(), HasSubstr("more than 5"));
}

TEST_F(IntakeTest, RefusesLongCallsUnread) {
  open();
  for (const std::string target : {"/v1/starts", "/v1/heartbeats"}) {
    std::string body = "{\"worker\": \"a\", \"groups\": 1, \"first_sequence\": 0, \"abandoned\": [0";
    while (body.size() < kMiB) body += ",0";
    const HttpResponse response =
        call({.method = "POST", .target = target, .content_type = "application/json", .body = body + "]}"});
    EXPECT_EQ(response.status, 413u) << response.body;
    // As many as a worker of ours ever says at once.
    Json most{{"worker", "a"}, {"groups", 1}, {"first_sequence", 0}};
    most["abandoned"] = std::vector<std::uint64_t>(40'000, ~std::uint64_t{0});
    EXPECT_EQ(post(target, most).status, 200u);
  }
}

/// Posts one rollout of `worker` on a connection of its own.
unsigned post_one(const Endpoint& server, const std::string& keys, const std::string& worker, std::uint64_t sequence) {
  const auto client = std::move(*HttpClient::make({.server = server, .trust = {.keys = keys}}));
  const auto response = client->call({.method = "POST",
                                      .target = "/v1/rollouts",
                                      .content_type = "application/json",
                                      .body = Json{{"rollouts", {rollout_json(worker, sequence, "g")}}}.dump()},
                                     std::chrono::minutes(1));
  return response.has_value() ? response->status : 0;
}

TEST_F(IntakeTest, OneWorkersBodiesDoNotKeepOthersWaiting) {
  const ClusterKeys keys;
  open({.trust = {.keys = keys.origin_file()}});
  const std::string greedy = keys.issue("greedy"), honest = keys.issue("honest");
  std::mutex mutex;
  std::condition_variable answered;
  std::vector<unsigned> of_greedy;
  std::vector<std::thread> threads;
  unsigned of_honest = 0;
  {
    const auto held = buffer_.lock();  // so that no body is done with
    for (std::uint64_t i = 0; i < 5; ++i) {
      threads.emplace_back([&, i] {
        const unsigned status = post_one(intake_->endpoint(), greedy, "greedy", i);
        const std::scoped_lock lock(mutex);
        of_greedy.push_back(status);
        answered.notify_all();
      });
    }
    std::unique_lock lock(mutex);
    ASSERT_TRUE(answered.wait_for(lock, kLimit, [&] { return of_greedy.size() == 3; }));
    EXPECT_THAT(of_greedy, ElementsAre(429, 429, 429));
    threads.emplace_back([&] { of_honest = post_one(intake_->endpoint(), honest, "honest", 0); });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(of_honest, 200u);
  EXPECT_EQ(std::ranges::count(of_greedy, 200u), 2);
  EXPECT_EQ(post_one(intake_->endpoint(), greedy, "greedy", 9), 200u) << "it has its share again";
}

TEST(WorkerTable, CountsTheTimeWithoutAVersionFromTheFirstWord) {
  WorkerTable table(std::chrono::seconds(60));
  const auto at = [](int s) { return Instant{std::chrono::seconds(s)}; };
  EXPECT_EQ(table.handle_heard(at(1000), "a")->weights_since, at(1000));
  EXPECT_EQ(table.handle_heard(at(1002), "a")->weights_since, at(1000));
}

TEST(WorkerTable, IsBounded) {
  WorkerTable table(std::chrono::seconds(60));
  const auto at = [](int s) { return Instant{std::chrono::seconds(s)}; };
  for (std::size_t i = 0; i < WorkerTable::kWorkersMax; ++i) {
    ASSERT_NE(table.handle_heard(at(1), "w" + std::to_string(i)), nullptr);
  }
  EXPECT_EQ(table.handle_heard(at(2), "one more"), nullptr);
  ASSERT_NE(table.handle_heard(at(50), "w7"), nullptr);
  EXPECT_EQ(table.poll_silent(at(61)).size(), WorkerTable::kWorkersMax - 1);
  EXPECT_THAT(table.poll_silent(at(62)), IsEmpty());
  EXPECT_NE(table.handle_heard(at(63), "one more"), nullptr);
  EXPECT_NE(table.find("w7"), nullptr);
}

}  // namespace
}  // namespace weightcast
