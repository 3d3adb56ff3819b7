// The loop over two hosts: network namespaces, joined by links with a rate.
#include <gmock/gmock.h>
#include <unistd.h>

#include "base/steady_clock.h"
#include "bench/fleet/network.h"
#include "tests/e2e/fleet/hosts.h"
#include "tests/e2e/learner/learner_runs.h"

namespace weightcast {
namespace {

using namespace std::chrono_literals;

constexpr bench::NodeIndex kTrainer = 0, kInference = 1;
constexpr double kLink_bits_per_s = 4e6;

struct HostsTest : testing::Test, Hosts, LearnerRuns {
  void SetUp() override {
    const auto rate = Rate::bits(kLink_bits_per_s);
    make_hosts({{rate, rate}, {rate, rate}});
  }
  Process start_on(bench::NodeIndex host, const std::string& name, const std::vector<std::string>& arguments) const {
    std::vector<std::string> words = on(host);
    words.insert(words.end(), arguments.begin(), arguments.end());
    return Process(words, out(name + ".out"), out(name + ".err"));
  }
  Process engine(const std::string& worker, const std::string& learner) const {
    std::vector<std::string> arguments{WEIGHTCAST_WORKER, "run"};
    for (const std::string& setting :
         {"name=" + worker, "learner=" + learner, "state_dir=" + cluster.state(worker),
          "http_dir=" + out(worker + "-http"), std::string("running_max=16"), std::string("insecure=true")}) {
      arguments.push_back(flag_of(setting));
    }
    return start_on(kInference, worker + "-engine", arguments);
  }
};

TEST_F(HostsTest, LearnsOverLinksThatAreSlow) {
  constexpr double kSteps = 12;
  const std::string trainer = network->endpoint(kTrainer).host;
  const Instant begin = steady_now();
  cluster.put_on_host("origin", on(kTrainer));
  cluster.start_origin({"--listen", trainer + ":0"});
  for (const char* worker : {"w1", "w2"}) {
    cluster.put_on_host(worker, on(kInference));
    cluster.start_worker(worker, {"--listen", network->endpoint(kInference).host + ":0"});
  }
  Process learner =
      start_on(kTrainer, "a",
               command("a", {"total_training_steps=12", "max_staleness=2", "init_hidden_size=64",
                             "init_num_hidden_layers=4", "publish_state=" + cluster.state("origin"),
                             "rollout_source=http", "rollout_listen=" + trainer + ":0", "rollout_insecure=true"}));
  const std::string address = learner_address("a");
  Process first = engine("w1", address), second = engine("w2", address);
  EXPECT_EQ(learner.wait(180s), 0) << read_file(out("a.err")) << read_file(out("w1-engine.err"));
  for (Process* process : {&first, &second}) EXPECT_EQ(process->wait(30s), 0);
  EXPECT_EQ(steps("a"), kSteps);
  expect_staleness_within(2, "a");
  double published = 0;
  for (const Metrics& line : metrics("a")) {
    if (line.count("publish/bytes") != 0) published = std::max(published, line.at("publish/bytes"));
  }
  const auto crossed = static_cast<double>(network->bytes_sent(kTrainer).value());
  const double seconds = to_seconds(steady_now() - begin);  // later than the bytes: the daemons go on
  EXPECT_GT(published, 0);
  EXPECT_GT(crossed, kSteps / 2 * published) << "weights, to at least one of two workers that feed each other";
  EXPECT_LT(8 * crossed, 1.1 * kLink_bits_per_s * (seconds + 1)) << "no path goes around the link";
  EXPECT_GT(network->bytes_sent(kInference).value(), 10'000u) << "rollouts";
}

}  // namespace
}  // namespace weightcast
