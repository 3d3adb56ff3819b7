#include "worker/rollout/rollout_scheduler.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <set>

#include "base/random.h"

namespace weightcast {
namespace {

using namespace std::chrono_literals;
using Kind = RolloutAction::Kind;
using Actions = std::vector<RolloutAction>;

constexpr RolloutKey key(std::uint64_t group, std::uint32_t member, std::uint32_t attempt = 0) {
  return {group, member, attempt};
}
RolloutAction generate(RolloutKey rollout, std::uint32_t engine = 0) { return {Kind::kGenerate, rollout, engine}; }
RolloutAction action(Kind kind, RolloutKey rollout) { return {kind, rollout, 0}; }

class RolloutSchedulerTest : public testing::Test {
 protected:
  void make() {
    scheduler_.emplace(*RolloutScheduler::make(options_));
    scheduler_->handle_step(now_, Version{10});
    for (std::uint32_t e = 0; e < options_.engines; ++e) scheduler_->handle_version(now_, e, Version{10});
  }
  Actions drain() {
    Actions all;
    while (const auto next = scheduler_->poll_action()) all.push_back(*next);
    EXPECT_LE(scheduler_->slots_busy(), scheduler_->slots());
    return all;
  }
  Actions groups(std::uint64_t first, std::uint64_t count) {
    scheduler_->handle_groups(now_, first, count);
    return drain();
  }
  Actions generated(RolloutKey rollout) {
    scheduler_->handle_generated(now_, rollout);
    return drain();
  }
  Actions finished(RolloutKey rollout, double reward = 0) {
    scheduler_->handle_finished(now_, rollout, reward);
    return drain();
  }
  Actions step(std::uint64_t learner) {
    scheduler_->handle_step(now_, Version{learner});
    return drain();
  }
  Actions version(std::uint64_t version, std::uint32_t engine = 0) {
    scheduler_->handle_version(now_, engine, Version{version});
    return drain();
  }

  SchedulerOptions options_{.slots_per_engine = 4, .group_size = 2, .async_generation_ratio = {}};
  std::optional<RolloutScheduler> scheduler_;
  Instant now_{};
};

TEST_F(RolloutSchedulerTest, AFreeSlotTakesTheNextRollout) {
  make();
  EXPECT_EQ(scheduler_->groups_wanted(), 3u);  // two fill the slots, one waits
  EXPECT_EQ(groups(7, 3),
            (Actions{generate(key(7, 0)), generate(key(7, 1)), generate(key(8, 0)), generate(key(8, 1))}));
  EXPECT_EQ(scheduler_->groups_wanted(), 0u);
  EXPECT_EQ(scheduler_->waiting(), 2u);
  // The slot is free while the reward is computed.
  EXPECT_EQ(generated(key(8, 0)), (Actions{action(Kind::kStep, key(8, 0)), generate(key(9, 0))}));
  EXPECT_EQ(finished(key(8, 0)), Actions());
  EXPECT_EQ(generated(key(8, 1)), (Actions{action(Kind::kStep, key(8, 1)), generate(key(9, 1))}));
  EXPECT_EQ(finished(key(8, 1)), (Actions{action(Kind::kSend, key(8, 0)), action(Kind::kSend, key(8, 1)),
                                          action(Kind::kGroupDone, key(8, 0))}));
  EXPECT_EQ(scheduler_->groups_wanted(), 1u);
  EXPECT_EQ(scheduler_->stats().sent, 2u);
}

TEST_F(RolloutSchedulerTest, TheLeastBusyEngineTakesTheNextRollout) {
  options_.engines = 2;
  options_.slots_per_engine = 2;
  make();
  EXPECT_EQ(groups(0, 2),
            (Actions{generate(key(0, 0), 0), generate(key(0, 1), 1), generate(key(1, 0), 0), generate(key(1, 1), 1)}));
}

TEST_F(RolloutSchedulerTest, TheFirstOfARedundantGroupCount) {
  options_.group_size_redundancy = 2;
  make();
  EXPECT_EQ(groups(0, 1).size(), 4u);
  EXPECT_EQ(finished(key(0, 3)), Actions());
  generated(key(0, 2));  // its environment hangs
  EXPECT_EQ(finished(key(0, 1)),
            (Actions{action(Kind::kSend, key(0, 1)), action(Kind::kSend, key(0, 3)), action(Kind::kAbort, key(0, 0)),
                     action(Kind::kAbort, key(0, 2)), action(Kind::kGroupDone, key(0, 0))}));
  EXPECT_EQ(scheduler_->slots_busy(), 0u);
  EXPECT_EQ(scheduler_->stats().surplus, 2u);
  EXPECT_EQ(finished(key(0, 0)), Actions());  // too late
}

TEST_F(RolloutSchedulerTest, OneSlowEnvironmentDoesNotHoldUpTheOthers) {
  options_.slots_per_engine = 1;
  make();
  EXPECT_EQ(groups(0, 1), Actions{generate(key(0, 0))});
  EXPECT_EQ(generated(key(0, 0)), (Actions{action(Kind::kStep, key(0, 0)), generate(key(0, 1))}));
  EXPECT_EQ(generated(key(0, 1)), Actions{action(Kind::kStep, key(0, 1))});
  scheduler_->handle_observation(now_, key(0, 1));
  EXPECT_EQ(drain(), Actions{generate(key(0, 1))});
  scheduler_->handle_observation(now_, key(0, 0));
  EXPECT_EQ(drain(), Actions());
  EXPECT_EQ(generated(key(0, 1)), (Actions{action(Kind::kStep, key(0, 1)), generate(key(0, 0))}));
}

TEST_F(RolloutSchedulerTest, StopsWhatBecameTooStaleAndBeginsItAnew) {
  options_.max_staleness = 1;
  make();
  groups(0, 2);
  finished(key(0, 0));
  EXPECT_EQ(step(11), Actions());
  version(11);
  finished(key(1, 0));
  groups(2, 1);  // both begin under version 11
  EXPECT_EQ(step(12), (Actions{action(Kind::kForget, key(0, 0)), action(Kind::kAbort, key(0, 1)),
                               action(Kind::kForget, key(1, 0)), action(Kind::kAbort, key(1, 1)),
                               generate(key(0, 0, 1)), generate(key(0, 1, 1))}));
  EXPECT_EQ(finished(key(0, 1)), Actions());  // of the attempt that was stopped
  EXPECT_EQ(scheduler_->stats().stale, 2u);
  EXPECT_EQ(scheduler_->stats().forgotten, 2u);
}

TEST_F(RolloutSchedulerTest, BeginsNothingThatCouldNotBeUsed) {
  options_.async_generation_ratio = 0;
  options_.engines = 2;
  make();
  step(11);
  EXPECT_EQ(scheduler_->groups_wanted(), 0u);
  EXPECT_EQ(groups(0, 1), Actions());
  EXPECT_EQ(version(11, 1), (Actions{generate(key(0, 0), 1), generate(key(0, 1), 1)}));
}

TEST_F(RolloutSchedulerTest, DuringASyncNothingBeginsBeforeTheVersionIsHere) {
  make();
  EXPECT_EQ(groups(7, 1), (Actions{generate(key(7, 0)), generate(key(7, 1))}));
  scheduler_->handle_sync(now_, Version{12});
  EXPECT_EQ(drain(), Actions()) << "what has begun goes on";
  EXPECT_EQ(scheduler_->groups_wanted(), 0u);
  EXPECT_EQ(groups(8, 1), Actions());
  EXPECT_EQ(version(11), Actions());
  EXPECT_EQ(version(12), (Actions{generate(key(8, 0)), generate(key(8, 1))}));
  scheduler_->handle_sync(now_, Version{14});
  EXPECT_EQ(groups(9, 1), Actions());
  EXPECT_EQ(generated(key(8, 0)), (Actions{action(Kind::kStep, key(8, 0))}));
  scheduler_->handle_sync(now_, kNoVersion);
  EXPECT_EQ(drain(), (Actions{generate(key(9, 0))})) << "it was called off";
}

TEST_F(RolloutSchedulerTest, ARatioRoundedUpIsAStalenessLimit) {
  options_.async_generation_ratio = 1.5;
  make();
  groups(0, 1);
  EXPECT_EQ(step(12), Actions());
  EXPECT_EQ(step(13).size(), 2u);
}

TEST_F(RolloutSchedulerTest, WhoIsNextToExceedTheBoundGoesFirst) {
  options_.slots_per_engine = 1;
  make();
  groups(5, 1);
  version(11);
  groups(3, 1);  // a lower number, but it has not begun
  EXPECT_EQ(generated(key(5, 0)), (Actions{action(Kind::kStep, key(5, 0)), generate(key(5, 1))}));
  EXPECT_EQ(generated(key(5, 1)), (Actions{action(Kind::kStep, key(5, 1)), generate(key(3, 0))}));
  scheduler_->handle_observation(now_, key(5, 1));
  EXPECT_EQ(generated(key(3, 0)), (Actions{action(Kind::kStep, key(3, 0)), generate(key(5, 1))}));
}

TEST_F(RolloutSchedulerTest, FiltersGroupsOfEqualRewards) {
  options_.filter_equal_rewards = true;
  make();
  groups(0, 2);
  finished(key(0, 0), 1);
  EXPECT_EQ(finished(key(0, 1), 1), (Actions{action(Kind::kForget, key(0, 0)), action(Kind::kForget, key(0, 1)),
                                             action(Kind::kGroupDropped, key(0, 0))}));
  finished(key(1, 0), 1);
  EXPECT_EQ(finished(key(1, 1), 0).size(), 3u);
  EXPECT_EQ(scheduler_->stats().groups_filtered, 1u);
  EXPECT_EQ(scheduler_->stats().groups_done, 1u);
}

TEST_F(RolloutSchedulerTest, SuspendingStopsAllButWhatHasFinished) {
  make();
  groups(0, 2);
  finished(key(0, 0));
  generated(key(0, 1));
  scheduler_->handle_suspended(now_);
  EXPECT_EQ(drain(), (Actions{action(Kind::kAbort, key(0, 1)), action(Kind::kAbort, key(1, 0)),
                              action(Kind::kAbort, key(1, 1))}));
  EXPECT_EQ(scheduler_->groups_wanted(), 0u);
  EXPECT_EQ(scheduler_->slots_busy(), 0u);
  EXPECT_EQ(version(11), Actions());
  scheduler_->handle_resumed(now_);
  EXPECT_EQ(drain(), (Actions{generate(key(0, 1, 1)), generate(key(1, 0, 1)), generate(key(1, 1, 1))}));
  EXPECT_EQ(scheduler_->stats().suspended, 3u);
}

TEST_F(RolloutSchedulerTest, WhatFailsIsTriedAgainAndThenDoneWithout) {
  options_.group_size_redundancy = 1;
  options_.attempts_max = 2;
  make();
  groups(0, 1);
  scheduler_->handle_failed(now_, key(0, 0));
  EXPECT_EQ(drain(), (Actions{action(Kind::kAbort, key(0, 0)), generate(key(0, 0, 1))}));
  EXPECT_EQ(finished(key(0, 0, 1), std::numeric_limits<double>::quiet_NaN()),
            Actions{action(Kind::kAbort, key(0, 0, 1))});
  scheduler_->handle_failed(now_, key(0, 1));
  scheduler_->handle_finished(now_, key(0, 1, 1), 1e300);
  EXPECT_EQ(drain(),
            (Actions{action(Kind::kAbort, key(0, 1)), generate(key(0, 1, 1)), action(Kind::kAbort, key(0, 1, 1)),
                     action(Kind::kAbort, key(0, 2)), action(Kind::kGroupDropped, key(0, 0))}));
  EXPECT_EQ(scheduler_->groups_open(), 0u);
}

TEST_F(RolloutSchedulerTest, WhatTakesTooLongIsStopped) {
  options_.rollout_time_max = 10s;
  make();
  EXPECT_FALSE(scheduler_->poll_deadline().has_value());
  groups(0, 1);
  generated(key(0, 0));  // and its environment never answers
  EXPECT_EQ(scheduler_->poll_deadline(), now_ + 10s);
  finished(key(0, 1));
  now_ += 10s;
  scheduler_->handle_time(now_);
  EXPECT_EQ(drain(), (Actions{action(Kind::kAbort, key(0, 0)), generate(key(0, 0, 1))}));
  EXPECT_EQ(scheduler_->stats().late, 1u);
}

TEST_F(RolloutSchedulerTest, AnAbandonedGroupIsForgotten) {
  make();
  groups(0, 2);
  finished(key(0, 0));
  scheduler_->handle_group_abandoned(now_, 0);
  EXPECT_EQ(drain(), (Actions{action(Kind::kForget, key(0, 0)), action(Kind::kAbort, key(0, 1)),
                              action(Kind::kGroupDropped, key(0, 0))}));
  scheduler_->handle_group_abandoned(now_, 0);
  EXPECT_EQ(drain(), Actions());
  EXPECT_EQ(scheduler_->stats().abandoned, 2u);
}

TEST_F(RolloutSchedulerTest, AGroupWaitsForTheVersionThatItsBatchNeeds) {
  make();
  scheduler_->handle_groups(now_, 0, 1, Version{11});
  EXPECT_EQ(drain(), Actions()) << "under an older version it would be too old for its batch";
  groups(1, 1);
  EXPECT_EQ(scheduler_->slots_busy(), 2u) << "others go on";
  scheduler_->handle_version(now_, 0, Version{11});
  const Actions begun = drain();
  EXPECT_TRUE(std::any_of(begun.begin(), begun.end(), [](const RolloutAction& a) { return a.rollout.group == 0; }));
}

TEST_F(RolloutSchedulerTest, GroupsThatComeTwiceBeginOnce) {
  make();
  groups(0, 1);
  EXPECT_EQ(groups(0, 1), Actions());
  EXPECT_EQ(scheduler_->groups_open(), 1u);
  EXPECT_EQ(finished({~std::uint64_t{0}, 7, 7}), Actions());  // nobody's
}

TEST_F(RolloutSchedulerTest, RefusesOptionsThatContradictEachOther) {
  const auto refusal = [](const SchedulerOptions& wrong) {
    const auto made = RolloutScheduler::make(wrong);
    return made.has_value() ? "not refused" : made.error().message();
  };
  EXPECT_NE(refusal({.engines = 0, .async_generation_ratio = {}}).find("engines is 0; it is 1 to"), std::string::npos);
  EXPECT_NE(refusal({.async_generation_ratio = -0.5}).find("async_generation_ratio is -0.5"), std::string::npos);
  EXPECT_NE(refusal({.async_generation_ratio = {}, .rollout_time_max = 0s}).find("rollout_time_max is 0 s"),
            std::string::npos);
}

/// Any inputs in any order, with options of every kind.
class RolloutSchedulerModel {
 public:
  explicit RolloutSchedulerModel(std::uint64_t seed) : random_(seed) {
    options_.engines = static_cast<std::uint32_t>(random_.between(1, 3));
    options_.slots_per_engine = static_cast<std::uint32_t>(random_.between(1, 6));
    options_.group_size = static_cast<std::uint32_t>(random_.between(1, 3));
    options_.group_size_redundancy = static_cast<std::uint32_t>(random_.below(2));
    options_.max_staleness = random_.below(3);
    if (random_.chance(0.3)) options_.async_generation_ratio = 0.5;
    options_.filter_equal_rewards = random_.chance(0.3);
    options_.attempts_max = static_cast<std::uint32_t>(random_.between(1, 3));
    options_.rollout_time_max = 50s;
    scheduler_.emplace(*RolloutScheduler::make(options_));
    for (std::uint32_t e = 0; e < options_.engines; ++e) scheduler_->handle_version(now_, e, Version{version_});
    scheduler_->handle_step(now_, Version{version_});
  }

  void run(int inputs) {
    for (int i = 0; i < inputs && !testing::Test::HasFailure(); ++i) {
      input();
      drain();
    }
    // Left alone, with engines up to date, it finishes what it has.
    scheduler_->handle_resumed(now_);
    drain();
    for (std::uint32_t e = 0; e < options_.engines; ++e) {
      scheduler_->handle_version(now_, e, Version{version_});
      drain();
    }
    for (int i = 0; i < 10'000 && scheduler_->groups_open() > 0 && !testing::Test::HasFailure(); ++i) {
      ASSERT_FALSE(generating_.empty() && stepping_.empty()) << scheduler_->groups_open() << " groups hang";
      finish_one();
      drain();
    }
    EXPECT_EQ(scheduler_->groups_open(), 0u);
    EXPECT_EQ(scheduler_->slots_busy(), 0u);
    EXPECT_EQ(scheduler_->waiting(), 0u);
    EXPECT_FALSE(scheduler_->poll_deadline().has_value());
    EXPECT_GT(scheduler_->stats().begun, 0u);
  }

 private:
  RolloutKey any_of(const std::set<RolloutKey>& keys) {
    return *std::next(keys.begin(), static_cast<std::ptrdiff_t>(random_.below(keys.size())));
  }
  void finish_one() {
    if (!generating_.empty() && (stepping_.empty() || random_.chance(0.5))) {
      const RolloutKey rollout = any_of(generating_);
      generating_.erase(rollout);
      finished_generating_.insert(rollout);
      scheduler_->handle_generated(now_, rollout);
    } else if (!stepping_.empty()) {
      const RolloutKey rollout = any_of(stepping_);
      stepping_.erase(rollout);
      finished_.insert(rollout);
      scheduler_->handle_finished(now_, rollout, static_cast<double>(random_.below(2)));
    }
  }
  void input() {
    now_ += random_.duration(0s, 3s);
    switch (random_.below(10)) {
      case 0:
        if (const std::uint64_t wanted = scheduler_->groups_wanted(); wanted > 0) {
          const std::uint64_t count = random_.between(1, wanted);
          scheduler_->handle_groups(now_, next_group_, count);
          next_group_ += count;
        }
        break;
      case 1:
        if (!stepping_.empty()) {
          const RolloutKey rollout = any_of(stepping_);
          stepping_.erase(rollout);
          observed_.insert(rollout);
          scheduler_->handle_observation(now_, rollout);
        }
        break;
      case 2:
        if (random_.chance(0.3)) scheduler_->handle_step(now_, Version{++version_});
        break;
      case 3:
        scheduler_->handle_version(now_, static_cast<std::uint32_t>(random_.below(options_.engines)),
                                   Version{version_});
        break;
      case 4:
        if (!generating_.empty() && random_.chance(0.3)) scheduler_->handle_failed(now_, any_of(generating_));
        break;
      case 5:
        if (random_.chance(0.1))
          scheduler_->handle_suspended(now_);
        else
          scheduler_->handle_resumed(now_);
        break;
      case 6: scheduler_->handle_time(now_); break;
      case 7:
        if (random_.chance(0.1) && next_group_ > 0)
          scheduler_->handle_group_abandoned(now_, random_.below(next_group_));
        // Nonsense, and what comes late.
        scheduler_->handle_generated(
            now_, {random_.below(next_group_ + 1), static_cast<std::uint32_t>(random_.below(5)), 99});
        break;
      default: finish_one(); break;
    }
  }
  void drain() {
    while (const auto next = scheduler_->poll_action()) {
      const RolloutKey rollout = next->rollout;
      switch (next->kind) {
        case Kind::kGenerate:
          ASSERT_LT(next->engine, options_.engines);
          ASSERT_TRUE(observed_.erase(rollout) == 1 || known_.insert(rollout).second);
          ASSERT_TRUE(generating_.insert(rollout).second);
          break;
        case Kind::kStep:
          ASSERT_EQ(finished_generating_.erase(rollout), 1u);
          ASSERT_TRUE(stepping_.insert(rollout).second);
          break;
        case Kind::kAbort:
          ASSERT_EQ(generating_.erase(rollout) + stepping_.erase(rollout) + observed_.erase(rollout) +
                        finished_generating_.erase(rollout),
                    1u);
          break;
        case Kind::kSend:
          ASSERT_EQ(finished_.erase(rollout), 1u);
          ASSERT_TRUE(sent_.insert({rollout.group, rollout.member}).second);
          break;
        case Kind::kForget: ASSERT_EQ(finished_.erase(rollout), 1u); break;
        case Kind::kGroupDone: {
          const auto first = sent_.lower_bound({rollout.group, 0}), last = sent_.lower_bound({rollout.group + 1, 0});
          ASSERT_EQ(std::distance(first, last), options_.group_size);
          ASSERT_TRUE(ended_.insert(rollout.group).second);
          break;
        }
        case Kind::kGroupDropped: ASSERT_TRUE(ended_.insert(rollout.group).second); break;
      }
    }
    ASSERT_LE(scheduler_->slots_busy(), scheduler_->slots());
    ASSERT_EQ(scheduler_->slots_busy(), generating_.size());
    const SchedulerStats& s = scheduler_->stats();
    ASSERT_EQ(s.begun, s.sent + s.forgotten + s.surplus + s.stale + s.suspended + s.failed + s.late + s.abandoned +
                           generating_.size() + stepping_.size() + observed_.size() + finished_generating_.size() +
                           finished_.size());
    ASSERT_EQ(s.groups_done + s.groups_dropped + s.groups_filtered, ended_.size());
  }

  Random random_;
  SchedulerOptions options_;
  std::optional<RolloutScheduler> scheduler_;
  Instant now_{};
  std::uint64_t version_ = 5;
  std::uint64_t next_group_ = 0;
  std::set<RolloutKey> known_, generating_, finished_generating_, stepping_, observed_, finished_;
  std::set<std::pair<std::uint64_t, std::uint32_t>> sent_;
  std::set<std::uint64_t> ended_;
};

TEST(RolloutSchedulerModel, AnyInputsKeepTheInvariants) {
  for (std::uint64_t seed = 0; seed < 600; ++seed) {
    SCOPED_TRACE(seed);
    RolloutSchedulerModel(seed).run(400);
    if (testing::Test::HasFailure()) return;
  }
}

}  // namespace
}  // namespace weightcast
