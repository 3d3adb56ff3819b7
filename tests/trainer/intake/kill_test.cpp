// A learner and workers as processes, killed again and again: every rollout that a worker has sent is trained on once,
// or waits in the buffer.
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>
#include <set>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "base/random.h"
#include "tests/patch/temp_dir.h"

namespace weightcast {
namespace {

using Json = nlohmann::json;
using std::chrono::milliseconds;

/// A process, started again after each kill.
class Process {
 public:
  explicit Process(std::vector<std::string> arguments) : arguments_(std::move(arguments)) { start(); }
  ~Process() {
    if (pid_ > 0) kill_now();
  }
  Process(const Process&) = delete;
  Process& operator=(const Process&) = delete;

  void start() {
    std::vector<char*> argv{const_cast<char*>(WEIGHTCAST_LEARNER_CLIENT_PROCESS)};
    for (std::string& argument : arguments_) argv.push_back(argument.data());
    argv.push_back(nullptr);
    // Blocked from before its beginning: the program takes SIGTERM when it can.
    sigset_t term, before;
    ::sigemptyset(&term);
    ::sigaddset(&term, SIGTERM);
    ::sigprocmask(SIG_BLOCK, &term, &before);
    pid_ = ::fork();
    if (pid_ == 0) {
      ::execv(argv[0], argv.data());
      ::_exit(127);
    }
    ::sigprocmask(SIG_SETMASK, &before, nullptr);
    ASSERT_GE(pid_, 0);
  }
  void kill_now() {
    ::kill(pid_, SIGKILL);
    ::waitpid(pid_, nullptr, 0);
    pid_ = 0;
  }
  /// Ends it by SIGTERM. Its exit status.
  int end() {
    ::kill(pid_, SIGTERM);
    int status = 0;
    ::waitpid(std::exchange(pid_, 0), &status, 0);
    return WIFEXITED(status) ? WEXITSTATUS(status) : 128;
  }

 private:
  std::vector<std::string> arguments_;
  pid_t pid_ = 0;
};

std::multiset<std::string> lines_of(const std::string& path) {
  std::multiset<std::string> lines;
  std::ifstream in(path);
  for (std::string line; std::getline(in, line);) lines.insert(line);
  return lines;
}

/// How many rollouts were trained on by the learner's last checkpoint.
std::size_t trained_in(const std::string& directory) {
  std::ifstream in(directory + "/state");
  const Json state = Json::parse(in, nullptr, false);
  return state.is_discarded() ? 0 : state["trained"].size();
}

TEST(HomeKills, NoRolloutIsLostAndNoneCountsTwice) {
  const TempDir temp;
  const std::string directory = temp.file(".");
  const auto seed = static_cast<std::uint64_t>(std::chrono::steady_clock::now().time_since_epoch().count());
  SCOPED_TRACE("seed " + std::to_string(seed));
  Random random(seed);
  std::map<std::string, std::unique_ptr<Process>> all;
  all["learner"] = std::make_unique<Process>(std::vector<std::string>{"learner", directory});
  for (const std::string name : {"a", "b"}) {
    all[name] = std::make_unique<Process>(std::vector<std::string>{"worker", directory, name});
  }
  for (int kills = 0; kills < 40; ++kills) {
    std::this_thread::sleep_for(milliseconds(random.between(20, 150)));
    Process& victim = *all[random.chance(0.4) ? "learner" : random.chance(0.5) ? "a" : "b"];
    victim.kill_now();
    victim.start();
  }
  // On a busy host hardly anything is done between two kills.
  const auto sent_lines = [&] {
    return lines_of(directory + "/a.sent").size() + lines_of(directory + "/b.sent").size();
  };
  const auto give_up_at = std::chrono::steady_clock::now() + std::chrono::minutes(2);
  while ((trained_in(directory) <= 100 || sent_lines() <= 100) && std::chrono::steady_clock::now() < give_up_at) {
    std::this_thread::sleep_for(milliseconds(20));
  }
  for (const std::string name : {"a", "b", "learner"}) EXPECT_EQ(all[name]->end(), 0) << name;

  std::ifstream in(directory + "/state");
  const Json state = Json::parse(in);
  std::map<std::string, int> counted;
  for (const Json& one : state["trained"]) ++counted[one.get<std::string>()];
  EXPECT_GT(state["trained"].size(), 100u);
  const Json buffer = Json::parse(state["buffer"].get<std::string>());
  for (const char* part : {"open", "complete"}) {
    for (const Json& group : buffer[part]) {
      for (const Json& one : group["rollouts"]) {
        ++counted[one["worker"].get<std::string>() + " " + std::to_string(one["sequence"].get<std::uint64_t>())];
      }
    }
  }
  for (const auto& [id, times] : counted) EXPECT_EQ(times, 1) << id;
  std::size_t sent = 0;
  for (const std::string name : {"a", "b"}) {
    for (const std::string& line : lines_of(directory + "/" + name + ".sent")) {
      ++sent;
      EXPECT_TRUE(counted.contains(line)) << line << " was sent, and is lost";
    }
  }
  EXPECT_GT(sent, 100u);
}

}  // namespace
}  // namespace weightcast
