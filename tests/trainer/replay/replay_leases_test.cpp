// Which groups a buffer leases to whom, and what becomes of leases.
#include <gtest/gtest.h>

#include "tests/trainer/replay/replay_buffer_fixture.h"

namespace weightcast {
namespace {

struct ReplayLeasesTest : ReplayBufferTest {};

TEST_F(ReplayLeasesTest, StartsNothingThatTheStepUnderWayMakesStale) {
  for (const std::uint64_t staleness : {0, 1}) {
    options_.max_staleness = staleness;
    make();
    arrive_group("a", 10);
    arrive_group("b", 10);
    ASSERT_EQ(take().size(), 2u);
    EXPECT_EQ(start("w", 20, 1), staleness) << "of the version before the step";
    buffer_->handle_step(Version{11});
    buffer_->handle_published(Version{11});
    EXPECT_EQ(start("w", 30, 1), 1u);
  }
}

TEST_F(ReplayLeasesTest, WithoutARatioABatchIsLeasedUntilTimesAreKnown) {
  options_.rollouts_max = 1000;
  for (const std::uint64_t staleness : {0, 1, 2, 20}) {
    options_.max_staleness = staleness;
    make();
    EXPECT_EQ(start("w", 0, 50), 2u) << "staleness is a bound, no target";
  }
  options_.max_staleness.reset();
  make();
  EXPECT_EQ(start("w", 0, 50), 2u);
}

TEST_F(ReplayLeasesTest, RedundantEnvironmentsOfASynchronousBatch) {
  options_.async_generation_ratio = 0;
  options_.num_env_groups = 3;  // two make a batch
  options_.group_size_redundancy = 1;
  make();
  ASSERT_EQ(buffer_->leasable(now_, "w", 9), 3u);
  for (std::uint64_t i = 0; i < 3; ++i) EXPECT_EQ(buffer_->lease(now_, "w", i, 3 * i, 3), Version{10});
  // Of each group any two of the three count.
  for (const std::uint64_t sequence : {0, 2, 7, 8}) {
    const std::string group = "g" + std::to_string(sequence / 3);
    ASSERT_EQ(came(rollout("w", sequence, group, 10)), "admitted");
  }
  EXPECT_EQ(buffer_->poll_abort(), std::nullopt);
  EXPECT_EQ(take(), (Tags{"g0", "g2"}));
  for (const std::uint64_t sequence : {3, 4, 5}) EXPECT_EQ(buffer_->poll_abort(), (RolloutId{"w", sequence}));
  EXPECT_EQ(buffer_->poll_abort(), std::nullopt) << "the third group is of no use from now on";
  EXPECT_EQ(buffer_->leasable(now_, "w", 9), 0u);
  step(11);
  EXPECT_EQ(buffer_->leasable(now_, "w", 9), 3u);
}

TEST_F(ReplayLeasesTest, AdditionalRunningPromptsStandInForWhatIsFiltered) {
  options_.async_generation_ratio = 0;
  options_.max_additional_running_prompts = 1;
  options_.filter_equal_rewards = true;
  make();
  EXPECT_EQ(start("w", 0, 9), 3u);
  arrive("g0", 10, 1);
  arrive("g0", 10, 1);
  EXPECT_EQ(buffer_->stats().filtered, 2u);
  EXPECT_EQ(start("w", 6, 9), 1u) << "in the place of the one without signal";
}

TEST_F(ReplayLeasesTest, TakesWhatWasLeasedToItsWorkerAndNothingElse) {
  options_.leased_only = true;
  make();
  ASSERT_EQ(start("w", 0, 2), 2u);
  EXPECT_EQ(came(rollout("thief", 0, "a#0", 10)), "not_leased");
  EXPECT_EQ(came(rollout("w", 4, "a#2", 10)), "not_leased");
  EXPECT_EQ(came(rollout("w", 0, "a#0", 10)), "admitted");
  EXPECT_EQ(came(rollout("w", 1, "b#0", 10)), "other_group") << "a group has one tag";
  EXPECT_EQ(came(rollout("w", 2, "a#3", 10)), "other_group");
  EXPECT_EQ(came(rollout("w", 3, "a", 10)), "lease_ended") << "its group cannot become whole any more";
  EXPECT_EQ(came(rollout("thief", 3, "a", 10)), "not_leased");
  EXPECT_EQ(buffer_->buffered(), 0u);
  EXPECT_EQ(start("w", 4, 9), 2u) << "nobody waits for those";
  EXPECT_EQ(came(rollout("w", 4, "x#2", 10)), "admitted");
  EXPECT_EQ(came(rollout("w", 5, "x#2", 10)), "admitted");
}

TEST_F(ReplayLeasesTest, SaysOfWhatComesAfterItsLeaseThatItIsLate) {
  options_.leased_only = true;
  make();
  ASSERT_EQ(start("paused", 0, 1), 1u);
  ASSERT_EQ(start("gives_back", 0, 1), 1u);
  // One of the group is on its way while its worker gives up the other.
  buffer_->handle_abandoned({"gives_back", 1});
  EXPECT_EQ(came(rollout("gives_back", 0, "g#0", 10)), "lease_ended");
  // The worker is paused, wakes after many steps, and begins then what was leased to it before.
  buffer_->handle_worker_lost("paused");
  for (std::uint64_t version = 11; version < 30; ++version) step(version);
  EXPECT_EQ(came(rollout("paused", 0, "g#0", 29)), "lease_ended");
  EXPECT_EQ(came(rollout("paused", 2, "g#0", 29)), "not_leased") << "nobody had that number";
  // A learner that was restarted does not know who has had leases.
  const std::string saved = buffer_->save(now_);
  ReplayBuffer restored = ReplayBuffer::restore(options_, replay_rules(), saved, now_).value();
  EXPECT_EQ(restored.handle_trajectory(now_, rollout("paused", 1, "g#0", 29)).reason, "lease_ended");
}

TEST_F(ReplayLeasesTest, AHoarderHoldsUpTheOthersForABoundedTimeAndOnce) {
  options_.rollout_batch_size = 16;
  options_.rollouts_max = 1000;
  options_.leased_only = true;
  make();
  std::uint64_t first = 0, taken = 0, longest = 0, last = 0;
  for (std::uint64_t second = 0; second < 3000; ++second) {
    now_ += std::chrono::seconds(1);
    // The thief asks first, and brings nothing.
    start("thief", 1'000'000 + 100 * second, 50);
    const std::uint64_t group = next_group_;
    const std::uint64_t granted = start("w", first, 2);
    for (std::uint64_t i = 0; i < granted; ++i) {
      for (std::uint64_t k = 0; k < 2; ++k, ++first) {
        const auto tag = "g" + std::to_string(group + i);
        ASSERT_EQ(came(rollout("w", first, tag, buffer_->learner().value)), "admitted");
      }
    }
    buffer_->handle_wanted(now_);
    if (!buffer_->take_batch(now_)) continue;
    longest = std::max(longest, second - std::exchange(last, second));
    ++taken;
    step(buffer_->learner().value + 1);
  }
  EXPECT_GT(taken, 500u) << "a batch is eight groups, and the worker makes two in a second";
  EXPECT_LT(longest, 400u) << "five minutes, before anybody knows how long a group takes";
  EXPECT_TRUE(buffer_->leases().record_of("thief").is_held_back);
  const LeaseRecord thief = buffer_->leases().record_of("thief");
  EXPECT_EQ(thief.groups_overdue, thief.groups_leased) << "nobody counts on any of it";
  EXPECT_FALSE(buffer_->leases().record_of("w").is_held_back);
}

TEST_F(ReplayLeasesTest, AFractionalRatioLetsAPartOfABatchLag) {
  options_.async_generation_ratio = 0.5;
  make();
  arrive_group("a", 10);
  arrive_group("b", 10);
  step(11);
  EXPECT_EQ(take(), Tags()) << "two of a batch of four may lag";
  EXPECT_EQ(buffer_->supply(), Supply::kWaiting);
  arrive_group("c", 11);
  EXPECT_EQ(take(), (Tags{"a", "c"}));
  step(12);
  EXPECT_EQ(buffer_->stats().expired, 2u) << "b lags by two steps";
}

TEST_F(ReplayLeasesTest, AbortsWhatCanNoLongerBeUsed) {
  options_.async_generation_ratio = 1;
  make();
  ASSERT_EQ(start("w", 7, 1), 1u);
  step(11);
  EXPECT_EQ(buffer_->poll_abort(), std::nullopt);
  step(12);
  EXPECT_EQ(buffer_->poll_abort(), (RolloutId{"w", 7}));
  EXPECT_EQ(buffer_->poll_abort(), (RolloutId{"w", 8}));
  EXPECT_EQ(buffer_->poll_abort(), std::nullopt);
  EXPECT_EQ(buffer_->stats().aborted, 2u);
}

TEST_F(ReplayLeasesTest, ALeaseThatIsNotHeardOfIsLost) {
  options_.async_generation_ratio = 0;
  options_.lease_time_max = std::chrono::seconds(5);
  make();
  ASSERT_EQ(start("w", 0, 9), 2u);
  now_ += std::chrono::seconds(5);
  buffer_->handle_time(now_ - Duration(1));
  EXPECT_EQ(buffer_->stats().lost, 0u);
  buffer_->handle_time(now_);
  EXPECT_EQ(buffer_->stats().lost, 4u);
  EXPECT_EQ(start("other", 100, 9), 2u);
}

/// Two workers, and nobody knows yet how long a group takes. If both had leases for more than a batch, whoever is
/// faster would say which groups it has.
TEST_F(ReplayLeasesTest, WhichGroupsASynchronousBatchHasDoesNotDependOnWhoAsksFirst) {
  for (const bool by_ratio : {false, true}) {
    options_ = replay_options();
    if (by_ratio) {
      options_.async_generation_ratio = 0;
    } else {
      options_.max_staleness = 0;
    }
    make();
    ASSERT_EQ(start("first", 0, 9), 2u);
    EXPECT_EQ(start("second", 0, 9), 0u);
    now_ += std::chrono::seconds(19);
    EXPECT_EQ(start("second", 0, 9), 0u) << "the first one may have been paused";
    now_ += std::chrono::seconds(1);
    EXPECT_EQ(start("second", 0, 9), 1u) << "its part";
  }
}

TEST_F(ReplayLeasesTest, ASlowGroupOfASynchronousBatchIsWaitedFor) {
  options_.max_staleness = 0;
  make();
  std::uint64_t first = 0;
  // Groups that take 0.1 s, so many that their mean counts.
  for (std::uint64_t version = 10; version < 30; ++version) {
    const std::uint64_t group = next_group_;
    ASSERT_EQ(start("w", first, 9), 2u);
    now_ += std::chrono::milliseconds(100);
    for (std::uint64_t i = 0; i < 4; ++i, ++first) {
      const auto tag = "g" + std::to_string(group + i / 2);
      ASSERT_EQ(came(rollout("w", first, tag, version)), "admitted");
    }
    take();
    step(version + 1);
  }
  ASSERT_EQ(start("w", first, 9), 2u);
  now_ += std::chrono::seconds(19);
  EXPECT_EQ(start("w", first + 4, 9), 0u);
  now_ += std::chrono::seconds(2);
  EXPECT_GE(start("w", first + 4, 9), 1u) << "as long as a worker may be silent";
}

TEST_F(ReplayLeasesTest, AGroupThatLostItsWorkerNeedsNoPlaceInABatch) {
  options_.async_generation_ratio = 0;
  options_.leased_only = true;
  make();
  ASSERT_EQ(start("gone", 0, 2), 2u);
  ASSERT_EQ(came(rollout("gone", 0, "0", 10)), "admitted");
  now_ += std::chrono::seconds(20);
  EXPECT_EQ(start("w", 0, 2), 1u) << "its part: nobody knows yet how long a group takes";
  EXPECT_EQ(start("w", 2, 2), 0u);
  buffer_->handle_worker_lost("gone");
  EXPECT_EQ(start("w", 2, 5), 1u) << "or no batch would come before group_time_max";
  EXPECT_EQ(buffer_->stats().given_up, 1u);
  EXPECT_EQ(buffer_->poll_abort(), (RolloutId{"gone", 1})) << "it may come back";
  EXPECT_EQ(came(rollout("gone", 1, "0", 10)), "lease_ended");
}

TEST_F(ReplayLeasesTest, AGroupOfWhichOneWasRefusedNeedsNoPlaceInABatch) {
  options_.async_generation_ratio = 0;
  make();
  ASSERT_EQ(start("w", 0, 2), 2u);
  ASSERT_EQ(came(rollout("w", 0, "a", 10)), "admitted");
  EXPECT_EQ(start("w", 4, 2), 0u);
  Trajectory bad = rollout("w", 1, "a", 10);
  bad.logprobs.clear();
  ASSERT_EQ(buffer_->handle_trajectory(now_, std::move(bad)).admission, AdmissionOutcome::kRefused);
  EXPECT_EQ(buffer_->stats().given_up, 1u) << "what had come of its group";
  EXPECT_EQ(start("w", 4, 5), 1u);
}

TEST_F(ReplayLeasesTest, TheRestOfAGroupWhoseFirstWasStaleIsClosed) {
  options_.leased_only = true;
  make();
  ASSERT_EQ(start("w", 0, 1), 1u);
  EXPECT_EQ(came(rollout("w", 0, "#0", 7)), "stale");
  EXPECT_EQ(came(rollout("w", 1, "#0", 10)), "group_closed");
}

TEST_F(ReplayLeasesTest, GroupsThatAFractionalRatioHasNoPlaceForAreNotWaitedFor) {
  options_.async_generation_ratio = 0.5;
  make();
  for (const char* tag : {"a", "b", "c"}) arrive_group(tag, 10);
  step(11);
  EXPECT_EQ(buffer_->supply(), Supply::kWaiting) << "one of a batch of two groups may lag";
  EXPECT_GE(start("w", 100, 9), 1u);
}

TEST_F(ReplayLeasesTest, AGroupIsMadeAgainFromItsNumber) {
  options_.leased_only = true;
  make();
  const auto grant = [](ReplayBuffer& buffer, const std::string& worker, std::uint64_t first) {
    const std::uint64_t group = buffer.take_group();
    buffer.lease(Instant(), worker, group, first, 2);
    return group;
  };
  EXPECT_EQ(grant(*buffer_, "whole", 0), 0u);
  EXPECT_EQ(grant(*buffer_, "killed", 0), 1u);
  EXPECT_EQ(grant(*buffer_, "slow", 0), 2u);
  for (const std::uint64_t sequence : {0, 1}) ASSERT_EQ(came(rollout("whole", sequence, "g#0", 10)), "admitted");
  ASSERT_EQ(came(rollout("killed", 0, "g#1", 10)), "admitted");
  buffer_->handle_worker_lost("killed");
  EXPECT_EQ(grant(*buffer_, "other", 0), 1u);
  ASSERT_EQ(came(rollout("other", 0, "g#1", 10)), "admitted");
  EXPECT_EQ(grant(*buffer_, "silent", 0), 3u);
  buffer_->handle_not_granted("silent", 0);
  ReplayBuffer restored = ReplayBuffer::restore(options_, replay_rules(), buffer_->save(now_), now_).value();
  check_accounts(restored);
  EXPECT_EQ(restored.buffered(), 2u) << "the whole group";
  for (const std::uint64_t group : {1, 2, 3, 4}) EXPECT_EQ(grant(restored, "w", 2 * group), group);
  for (const std::uint64_t sequence : {2, 3}) {
    EXPECT_EQ(restored.handle_trajectory(now_, rollout("w", sequence, "g#1", 10)).admission,
              AdmissionOutcome::kAdmitted);
  }
}

}  // namespace
}  // namespace weightcast
