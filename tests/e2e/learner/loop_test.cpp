// The whole loop as processes: learner, origin, workers with their daemons and engines; killed, paused, replaced.
#include <gmock/gmock.h>
#include <signal.h>
#include <sys/stat.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <map>
#include <thread>

#include "tests/e2e/fleet/wall_clock.h"
#include "tests/e2e/learner/learner_runs.h"
#include "transport/http/client.h"

namespace weightcast {
namespace {

using namespace std::chrono_literals;
using testing::HasSubstr;

struct Loop : LearnerRuns {
  std::map<std::string, Process> engines;
  std::vector<std::string> words;  // that start the engines, before their own

  std::vector<std::string> loop(std::vector<std::string> settings) const {
    settings.insert(settings.end(),
                    {"publish_state=" + cluster.state("origin"), "rollout_source=http", "rollout_listen=127.0.0.1:0"});
    return settings;
  }
  void start_engine(const std::string& worker, const std::string& learner, std::vector<std::string> settings = {},
                    const std::vector<std::string>& flags = {}) {
    std::vector<std::string> arguments{WEIGHTCAST_WORKER, "run"};
    arguments.insert(arguments.end(), flags.begin(), flags.end());
    settings.insert(settings.begin(), {"name=" + worker, "learner=" + learner, "state_dir=" + cluster.state(worker),
                                       "http_dir=" + out(worker + "-http"), "running_max=16"});
    for (const std::string& setting : settings) arguments.push_back(flag_of(setting));
    arguments.insert(arguments.begin(), words.begin(), words.end());
    engines.insert_or_assign(worker, Process(arguments, out(worker + "-engine.out"), out(worker + "-engine.err")));
  }
  std::string said(const std::string& worker) const { return read_file(out(worker + "-engine.err")); }

  /// A whole run with these workers. Returns its last checkpoint.
  Checkpoint train(const std::string& name, const std::vector<std::string>& workers,
                   const std::vector<std::string>& settings) {
    cluster.start_origin();
    for (const std::string& worker : workers) cluster.start_worker(worker);
    Process learner = start(name, loop(settings));
    const std::string address = learner_address(name);
    for (const std::string& worker : workers) start_engine(worker, address);
    EXPECT_EQ(learner.wait(120s), 0) << read_file(out(name + ".err"));
    for (auto& [worker, engine] : engines) EXPECT_EQ(engine.wait(30s), 0) << said(worker);
    return last(name);
  }
};

struct LoopTest : testing::Test, Loop {};

TEST_F(LoopTest, TrainsOnWhatWorkersMake) {
  train("a", {"w1", "w2"}, {"total_training_steps=12", "max_staleness=2"});
  EXPECT_EQ(steps("a"), 12);
  expect_staleness_within(2, "a");
  EXPECT_EQ(metrics("a").back().at("rollouts/malformed"), 0);
  EXPECT_THAT(said("w1"), HasSubstr("generating under version 1"));
}

// Leases, heartbeats and backoffs go by a clock that does not jump.
TEST_F(LoopTest, GoesOnWhileTheWallClocksOfAllProcessesJump) {
  const WallClock clock;
  words = clock.words();
  for (const char* name : {"origin", "w1", "w2"}) cluster.put_on_host(name, words);
  cluster.start_fleet({"w1", "w2"});
  std::vector<std::string> arguments = command("a", loop({"total_training_steps=15", "max_staleness=2"}));
  arguments.insert(arguments.begin(), words.begin(), words.end());
  Process learner(arguments, out("a.out"), out("a.err"));
  const std::string address = learner_address("a");
  for (const char* worker : {"w1", "w2"}) start_engine(worker, address);
  constexpr std::int64_t kDay = 86'400;
  // One jump at least in each of the first steps, forwards and backwards.
  double seen = 0;
  for (const std::int64_t offset :
       {kDay / 4, -kDay / 4, 30 * kDay, -30 * kDay, 400 * kDay, -400 * kDay, std::int64_t{0}}) {
    clock.set(offset);
    ASSERT_TRUE(Cluster::eventually([&] { return steps("a") > seen || !learner.running(); }))
        << read_file(out("a.err")) << said("w1");
    seen = steps("a");
  }
  EXPECT_EQ(learner.wait(120s), 0) << read_file(out("a.err"));
  for (auto& [worker, engine] : engines) EXPECT_EQ(engine.wait(30s), 0) << said(worker);
  EXPECT_EQ(steps("a"), 15);
  const Metrics last_line = metrics("a").back();
  EXPECT_EQ(last_line.at("rollouts/lost"), 0);
  for (const Metrics& line : metrics("a")) {
    for (const auto& [name, value] : line) {
      if (name.starts_with("timing_s/")) {
        EXPECT_TRUE(value >= 0 && value < 3600) << name << " " << value;
      }
    }
  }
}

/// The value of the first sample in `text` of which `line` is all before the value; NaN if there is none.
double sample_of(const std::string& text, const std::string& line) {
  const std::size_t at = text.find("\nweightcast_" + line + " ");
  return at == std::string::npos ? std::nan("") : std::stod(text.substr(text.find(' ', at + line.size()) + 1));
}

TEST_F(LoopTest, LearnerAndWorkersTellPrometheusWhatTheyAreAt) {
  cluster.start_fleet({"w1"});
  std::vector<std::string> words =
      command("a", loop({"total_training_steps=10000", "max_staleness=2", "learner_price_per_hour=3600"}));
  words.insert(words.end(), {"--http", "127.0.0.1:0"});
  Process learner(words, out("a.out"), out("a.err"));
  std::ofstream(out("http.toml")) << "http = \"127.0.0.1:0\"\n";
  start_engine("w1", learner_address("a"), {"price_per_hour=7200"}, {"--config", out("http.toml")});
  const auto scrape = [&](const std::string& directory, const std::string& path = "/metrics") {
    std::string address = read_file(out(directory) + "/http_address");
    if (address.ends_with('\n')) address.pop_back();
    const auto endpoint = Endpoint::parse(address);
    if (!endpoint.has_value()) return std::string();
    auto client = HttpClient::make({.server = *endpoint});
    const auto answer = (*client)->call({.target = path}, 60s);
    return answer.has_value() ? answer->body : answer.error().message();
  };
  std::string text;
  ASSERT_TRUE(Cluster::eventually([&] {
    text = scrape("a");
    return sample_of(text, "learner_step") >= 3;
  })) << text
      << read_file(out("a.err")) << said("w1");
  EXPECT_THAT(text, HasSubstr("role=\"learner\"} 1\n"));
  EXPECT_GE(sample_of(text, "learner_rollouts_admitted_total"), 48) << text;
  EXPECT_GE(sample_of(text, "learner_rollouts_trained_total"), 48) << text;
  EXPECT_GE(sample_of(text, "learner_staleness_steps_count"), 48) << text;
  EXPECT_EQ(sample_of(text, "learner_staleness_steps_bucket{le=\"2\"}"),
            sample_of(text, "learner_staleness_steps_count"));
  EXPECT_GE(sample_of(text, "learner_published_version"), 1) << text;
  EXPECT_EQ(sample_of(text, "learner_workers{state=\"active\"}"), 1) << text;
  EXPECT_EQ(sample_of(text, "learner_workers_price_per_hour"), 7200) << text;
  EXPECT_GT(sample_of(text, "learner_cost_per_step"), 0) << text;
  EXPECT_GT(sample_of(text, "learner_phase_seconds_total{phase=\"collect\"}"), 0) << text;
  EXPECT_GT(sample_of(text, "learner_gradient_norm"), 0) << text;
  // The worker's samples are those of its last pass, which may be older than what the learner has admitted since.
  std::string worker;
  EXPECT_TRUE(Cluster::eventually([&] {
    worker = scrape("w1-http");
    return sample_of(worker, "worker_rollouts_total{outcome=\"sent\"}") >= 48;
  })) << worker;
  EXPECT_THAT(worker, HasSubstr("role=\"engine\"} 1\n"));
  EXPECT_GE(sample_of(worker, "worker_weight_version"), 1) << worker;
  EXPECT_GE(sample_of(worker, "worker_answer_tokens_total"), 48) << worker;
  EXPECT_GE(sample_of(worker, "worker_versions_total"), 1) << worker;
  EXPECT_GT(sample_of(worker, "worker_install_seconds_total{phase=\"prepare\"}"), 0) << worker;
  EXPECT_GT(sample_of(worker, "worker_idle_seconds_total{for=\"version\"}"), 0) << worker;
  EXPECT_THAT(scrape("w1-http", "/status"), HasSubstr("/metrics is"));
  learner.signal(SIGTERM);
  EXPECT_EQ(learner.wait(60s), 0) << read_file(out("a.err"));
  engines.at("w1").signal(SIGTERM);
  EXPECT_EQ(engines.at("w1").wait(60s), 0) << said("w1");
}

TEST_F(LoopTest, NobodyTellsWhoeverReachesThem) {
  std::vector<std::string> words = command("a", {"total_training_steps=1"});
  words.insert(words.end(), {"--http", "0.0.0.0:0"});
  const Ran learner = run_program(words, cluster.temp().path());
  EXPECT_THAT(learner, Exits(2, "--http 0.0.0.0:0: everybody who reaches this address"));
  std::ofstream(out("token")) << "short\n";
  ASSERT_EQ(::chmod(out("token").c_str(), 0600), 0);
  EXPECT_THAT(
      run_program({WEIGHTCAST_WORKER, "run", "--learner", "127.0.0.1:1", "--name", "w", "--state-dir", out("state"),
                   "--http-dir", out("http"), "--http", "127.0.0.1:0", "--http-token", out("token")},
                  cluster.temp().path()),
      Exits(2, "token, of 16 characters at least"));
}

/// ECHO's asynchronous mode: publications follow drift, and no fixed interval.
TEST_F(LoopTest, PublishesWhenLearnerAndWorkersHaveDrifted) {
  train("a", {"w1", "w2"}, {"total_training_steps=20", "max_staleness=6", "sync_drift_max=3"});
  EXPECT_EQ(steps("a"), 20);
  const auto lines = metrics("a");
  expect_staleness_within(6, "a");
  const auto published =
      std::ranges::count_if(lines, [](const Metrics& line) { return line.count("publish/changed_share") != 0; });
  EXPECT_GE(published, 2);
  EXPECT_LE(published, 20 / 4) << "at least four steps lie between two of them";
}

TEST_F(LoopTest, ASynchronousLearnerComesToTheSameBitsWithAnyWorkers) {
  const std::vector<std::string> settings{"total_training_steps=6", "max_staleness=0"};
  const Checkpoint one = train("one", {"w1"}, settings);
  Loop other;
  const Checkpoint two = other.train("two", {"x1", "x2"}, settings);
  expect_same_bits(one, two);
}

TEST_F(LoopTest, ASynchronousLearnerComesToTheSameBitsAsOneProcessThatDoesAll) {
  const std::vector<std::string> settings{"total_training_steps=6", "max_staleness=0"};
  const Checkpoint loop = train("loop", {"w1", "w2"}, settings);
  ASSERT_EQ(run("alone", settings).status, 0) << read_file(out("alone.err"));
  expect_same_bits(loop, last("alone"));
}

TEST_F(LoopTest, ARunThatBeganWithoutWorkersGoesOnWithThem) {
  ASSERT_EQ(run("a", {"total_training_steps=2"}).status, 0) << read_file(out("a.err"));
  train("a", {"w1"}, {"total_training_steps=4", "max_staleness=1"});
  EXPECT_EQ(steps("a"), 4);
}

TEST_F(LoopTest, AKilledLearnerHasMadeAgainWhatItsWorkersHadUnderWay) {
  cluster.start_fleet({"w1", "w2"});
  std::vector<std::string> settings = loop({"total_training_steps=3", "max_staleness=0", "checkpoint_interval=1"});
  Process learner = start("a", settings);
  const std::string address = learner_address("a");
  // Either worker has room for a batch of 16, which takes eight seconds.
  for (const char* worker : {"w1", "w2"}) start_engine(worker, address, {"backend=paced", "paced_rollouts_per_s=2"});
  ASSERT_TRUE(Cluster::eventually([&] { return steps("a") == 1; })) << read_file(out("a.err")) << said("w1");
  std::this_thread::sleep_for(1s);  // the groups of the next batch are given out
  learner.signal(SIGKILL);
  ASSERT_EQ(learner.wait(30s), 128 + SIGKILL);
  ASSERT_EQ(steps("a"), 1) << "killed too late";
  settings.push_back("rollout_listen=" + address);
  learner = start("a", settings);
  EXPECT_EQ(learner.wait(60s), 0) << read_file(out("a.err"));
  EXPECT_EQ(steps("a"), 3);
  for (auto& [worker, engine] : engines) EXPECT_EQ(engine.wait(30s), 0) << said(worker);
  const Metrics end = metrics("a").back();
  EXPECT_EQ(end.at("rollouts/lost"), 0) << "their workers lived";
  EXPECT_EQ(end.at("rollouts/aborted"), 0) << "what was given out beside them would come too late";
}

TEST_F(LoopTest, AProvisioningLearnerSaysAtTheOriginWhoServes) {
  cluster.start_fleet({"w1"});
  cluster.start_worker("w2", {"--standby"});
  const auto state_of = [&](const char* worker) {
    const nlohmann::json node = cluster.node("origin", worker);
    return node.is_null() ? "" : node.at("state").get<std::string>();
  };
  Process learner = start("a", loop({"total_training_steps=100000", "max_staleness=4", "provision=cost"}));
  const std::string address = learner_address("a");
  for (const char* worker : {"w1", "w2"}) start_engine(worker, address);
  // All are to roll out until a step is measured, also the one whose daemon waits.
  EXPECT_TRUE(Cluster::eventually([&] { return said("w2").find("generating under version") != std::string::npos; }))
      << read_file(out("a.err"));
  EXPECT_NE(state_of("w2"), "standby");
  engines.at("w2").signal(SIGKILL);
  EXPECT_TRUE(Cluster::eventually([&] { return state_of("w2") == "standby"; }))
      << "its daemon lives, but the engine is dead: " << read_file(out("a.err"));
  EXPECT_NE(state_of("w1"), "standby");
  learner.signal(SIGTERM);
  EXPECT_EQ(learner.wait(60s), 0) << read_file(out("a.err"));
}

/// The model that the learner trains, with the weights of the first version, as `serve` takes it.
std::string served_model(const Loop& loop, const std::string& learner, const std::string& worker) {
  const std::string directory = loop.out("served");
  std::filesystem::create_directory(directory);
  const auto client = std::move(*HttpClient::make({.server = Endpoint::parse(learner).value()}));
  for (const std::string name : {"config.json", "tokenizer.json"}) {
    const auto answer = client->call({.target = "/v1/model/" + name}, 10s);
    std::ofstream(directory + "/" + name) << answer.value().body;
  }
  const std::string weights = loop.cluster.state(worker) + "/current/model.safetensors";
  EXPECT_TRUE(Cluster::eventually([&] { return std::filesystem::exists(weights); }));
  std::filesystem::copy_file(weights, directory + "/model.safetensors");
  return directory;
}

/// Our own HTTP surface as the server that generates for a worker; killed and started anew on the way.
TEST_F(LoopTest, AServerInPlaceOfTheEngineComesToTheSameBits) {
  const std::vector<std::string> settings{"total_training_steps=6", "max_staleness=0"};
  const Checkpoint own = train("own", {"w1"}, settings);
  Loop other;
  other.cluster.start_fleet({"w1"});
  Process learner = other.start("served", other.loop(settings));
  const std::string address = other.learner_address("served");
  const std::string model = served_model(other, address, "w1");
  const std::string out = other.out("serve.out");
  const auto serve = [&](const std::string& listen) {
    return Process({WEIGHTCAST_WORKER, "serve", model, "--listen", listen, "--state", other.cluster.state("w1")}, out,
                   other.out("serve.err"));
  };
  Process server = serve("127.0.0.1:0");
  std::string where;
  ASSERT_TRUE(Cluster::eventually([&] {
    const std::string said = read_file(out);
    const std::size_t at = said.find(" at ");
    if (said.find('\n') == std::string::npos) return false;
    where = said.substr(at + 4, said.find('\n') - at - 4);
    return true;
  })) << read_file(other.out("serve.err"));
  other.start_engine("w1", address, {"backend=weightcast", "backend_server=" + where});
  ASSERT_TRUE(Cluster::eventually([&] { return other.steps("served") >= 2; })) << other.said("w1");
  server.signal(SIGKILL);
  ASSERT_EQ(server.wait(30s), 128 + SIGKILL);
  server = serve(where);
  EXPECT_EQ(learner.wait(120s), 0) << read_file(other.out("served.err")) << other.said("w1");
  expect_same_bits(own, other.last("served"));
}

TEST_F(LoopTest, GoesOnAfterKillsOfWorkersAndLearner) {
  cluster.start_fleet({"w1", "w2"});
  const std::vector<std::string> settings =
      loop({"total_training_steps=60", "max_staleness=3", "checkpoint_interval=2"});
  Process learner = start("a", settings);
  std::string address = learner_address("a");
  start_engine("w1", address);
  start_engine("w2", address);
  ASSERT_TRUE(Cluster::eventually([&] { return steps("a") >= 8; })) << read_file(out("a.err")) << said("w1");
  engines.at("w2").signal(SIGKILL);
  ASSERT_EQ(engines.at("w2").wait(30s), 128 + SIGKILL);
  ASSERT_TRUE(Cluster::eventually([&] { return steps("a") >= 14; })) << "one worker is enough: " << said("w1");
  start_engine("w2", address);
  learner.signal(SIGKILL);
  ASSERT_EQ(learner.wait(30s), 128 + SIGKILL);
  const double then = steps("a");
  // At the same address, so that the workers find it.
  std::vector<std::string> again = settings;
  again.push_back("rollout_listen=" + address);
  learner = start("a", again);
  ASSERT_TRUE(Cluster::eventually([&] { return steps("a") >= then + 5; })) << read_file(out("a.err")) << said("w1");
  EXPECT_EQ(learner.wait(120s), 0) << read_file(out("a.err"));
  EXPECT_EQ(steps("a"), 60);
  expect_staleness_within(3, "a");
}

}  // namespace
}  // namespace weightcast
