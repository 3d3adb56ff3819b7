#include "worker/loop/learner_link.h"

#include <gtest/gtest.h>

#include <chrono>
#include <condition_variable>
#include <functional>
#include <mutex>
#include <thread>
#include <vector>

#include "base/steady_clock.h"

namespace weightcast {
namespace {

using namespace std::chrono_literals;

/// A way to a learner that remembers which versions heartbeats said, and grants all groups.
class HeardClient final : public LearnerClient {
 public:
  Result<LearnerState> heartbeat(const WorkerHeartbeat& said) override {
    const std::lock_guard lock(mutex_);
    heard_.push_back(said.weights);
    changed_.notify_all();
    if (during_heartbeat) during_heartbeat(said.weights);
    return LearnerState{};
  }
  /// Whether a heartbeat has come that says this version, within half a minute.
  bool hears(Version version) {
    std::unique_lock lock(mutex_);
    return changed_.wait_for(lock, 30s, [&] { return !heard_.empty() && heard_.back() == version; });
  }
  std::size_t count() {
    const std::lock_guard lock(mutex_);
    return heard_.size();
  }

  /// Called within each heartbeat, with the version that it says.
  std::function<void(Version)> during_heartbeat;

  const std::string& name() const override { return name_; }
  Result<RunDescription> run() override { return unused(); }
  Result<std::string> model_file(const std::string&) override { return unused(); }
  Result<std::string> task_data() override { return unused(); }
  Result<StartedGroups> start(std::uint64_t groups, std::uint64_t) override {
    const std::lock_guard lock(mutex_);
    groups_ += groups;
    changed_.notify_all();
    return StartedGroups{std::vector<StartedGroup>(groups), {}, {}};
  }
  /// Groups that were asked for, all of which are granted.
  std::uint64_t groups() {
    const std::lock_guard lock(mutex_);
    return groups_;
  }
  /// Whether so many are asked for within half a minute.
  bool hears_of_groups(std::uint64_t groups) {
    std::unique_lock lock(mutex_);
    return changed_.wait_for(lock, 30s, [&] { return groups_ >= groups; });
  }
  void abandon(const std::vector<std::uint64_t>&) override {}
  Status send(Trajectory) override { return unused(); }
  bool drain(Duration) override { return true; }
  LearnerClientStats stats() const override { return {}; }

 private:
  static Error unused() { return fail(Errc::kUnsupported, Op::kConnect, "not by this test"); }

  const std::string name_ = "w";
  std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<Version> heard_;
  std::uint64_t groups_ = 0;
};

TEST(LearnerLink, TellsOfEachNewVersionWithoutWaitingForTheNextHeartbeat) {
  HeardClient client;
  LearnerLink link(client, 1, {[](const std::string&) {}, [](const std::string&) {}});
  constexpr std::uint64_t kVersions = 50;
  const Instant begin = steady_now();
  for (std::uint64_t version = 1; version <= kVersions; ++version) {
    link.set(0, {.weights = Version{version}});
    ASSERT_TRUE(client.hears(Version{version}));
  }
  // Heartbeats that are due every two seconds would have taken twice as long.
  EXPECT_LT(steady_now() - begin, kVersions * 1s);
  EXPECT_LE(client.count(), kVersions + 1 + static_cast<std::size_t>(to_seconds(steady_now() - begin)));
}

TEST(LearnerLink, TellsAtOnceOfAVersionThatCameDuringAHeartbeat) {
  HeardClient client;
  constexpr Version kLast{30};
  LearnerLink* link = nullptr;
  client.during_heartbeat = [&](Version said) {
    if (said == Version{} || said == kLast) return;
    link->set(0, {.weights = Version{said.value + 1}});
  };
  LearnerLink talking(client, 1, {[](const std::string&) {}, [](const std::string&) {}});
  link = &talking;
  talking.set(0, {.weights = Version{1}});
  // With two seconds between heartbeats it would take a minute, and the half minute's limit is over before.
  EXPECT_TRUE(client.hears(kLast));
}

TEST(LearnerLink, AsksForNoGroupTwiceWhileTheFirstOnesWaitToBeTaken) {
  HeardClient client;
  LearnerLink link(client, 1, {[](const std::string&) {}, [](const std::string&) {}});
  link.set(3, {});
  ASSERT_TRUE(client.hears_of_groups(3));
  // As a worker that computes a long step: it says what it wanted before.
  for (int i = 0; i < 200; ++i) {
    link.set(3, {});
    std::this_thread::sleep_for(1ms);
  }
  EXPECT_EQ(client.groups(), 3u);
  std::size_t taken = 0;
  while (taken < 3) {
    link.wait(1ms);
    taken += link.take().groups.size();
  }
  link.set(1, {});
  EXPECT_TRUE(client.hears_of_groups(4));
}

TEST(LearnerLink, HasWhatTheLastCallBroughtAfterItsStop) {
  HeardClient client;
  LearnerLink link(client, 1, {[](const std::string&) {}, [](const std::string&) {}});
  link.set(2, {});
  ASSERT_TRUE(client.hears_of_groups(2));
  link.stop();
  EXPECT_EQ(link.take().groups.size(), 2u);
  link.set(2, {});
  link.stop();
  EXPECT_EQ(client.groups(), 2u);
}

}  // namespace
}  // namespace weightcast
