#include "trainer/replay/replay_buffer.h"

#include <gtest/gtest.h>

#include <deque>
#include <utility>

#include "tests/trainer/replay/replay_fixture.h"

namespace weightcast {
namespace {

class ReplayBufferTest : public testing::Test {
 protected:
  void make(const ReplayOptions& options, std::uint64_t learner = 10) {
    buffer_.emplace(*ReplayBuffer::make(options, replay_rules()));
    for (std::uint64_t v = 1; v <= learner; ++v) step(v);
  }
  void step(std::uint64_t version) {
    buffer_->handle_step(Version{version});
    buffer_->handle_published(Version{version});
  }
  Arrival arrive(const std::string& group, std::uint64_t version, double reward = 0) {
    const Arrival arrival = buffer_->handle_trajectory(now_, rollout("w", next_++, group, version, reward));
    check_accounts(*buffer_);
    return arrival;
  }
  void arrive_group(const std::string& group, std::uint64_t version) {
    ASSERT_EQ(arrive(group, version).admission, AdmissionOutcome::kAdmitted);
    ASSERT_EQ(arrive(group, version).admission, AdmissionOutcome::kAdmitted);
  }
  /// Leases up to `groups` groups of two; returns how many.
  std::uint64_t start(const std::string& worker, std::uint64_t first, std::uint64_t groups) {
    const std::uint64_t granted = buffer_->leasable(now_, worker, groups);
    for (std::uint64_t i = 0; i < granted; ++i) buffer_->lease(now_, worker, next_group_++, first + 2 * i, 2);
    return granted;
  }
  std::vector<std::string> take() {
    std::vector<std::string> tags;
    if (const auto batch = buffer_->take_batch(now_)) {
      for (const RolloutGroup& group : *batch) {
        EXPECT_EQ(group.rollouts.size(), 2u);
        tags.push_back(group.tag);
      }
    }
    check_accounts(*buffer_);
    return tags;
  }
  std::string reason(const Arrival& arrival) {
    return arrival.admission == AdmissionOutcome::kRefused ? std::string(arrival.reason) : "not refused";
  }

  std::optional<ReplayBuffer> buffer_;
  Instant now_{};
  std::uint64_t next_ = 0;
  std::uint64_t next_group_ = 0;
};

using Tags = std::vector<std::string>;

TEST_F(ReplayBufferTest, GivesABatchOfWholeGroups) {
  make(replay_options());
  arrive_group("a", 10);
  arrive("b", 10);
  EXPECT_EQ(buffer_->supply(), Supply::kWaiting);
  EXPECT_EQ(take(), Tags());
  arrive("b", 9);
  EXPECT_EQ(buffer_->supply(), Supply::kReady);
  EXPECT_EQ(take(), (Tags{"a", "b"}));
  EXPECT_EQ(buffer_->buffered(), 0u);
  EXPECT_EQ(buffer_->buffered_bytes(), 0u);
}

TEST_F(ReplayBufferTest, AdmitsByStalenessAtArrival) {
  make(replay_options());
  EXPECT_EQ(arrive("a", 8).admission, AdmissionOutcome::kAdmitted);
  EXPECT_EQ(reason(arrive("a", 7)), "stale");
  EXPECT_EQ(reason(arrive("a", 11)), "version_unknown");
  EXPECT_EQ(buffer_->stats().refused.at("stale"), 1u);
}

TEST_F(ReplayBufferTest, DropsWhatBecameStaleBeforeSampling) {
  make(replay_options());
  arrive_group("old", 8);
  arrive("half", 8);
  arrive_group("new", 9);
  step(11);
  EXPECT_EQ(buffer_->stats().expired, 2u);
  EXPECT_EQ(buffer_->stats().given_up, 1u);
  EXPECT_EQ(buffer_->buffered(), 2u);
  EXPECT_EQ(reason(arrive("half", 9)), "group_closed");
}

TEST_F(ReplayBufferTest, AGroupIsAsOldAsItsOldestRollout) {
  make(replay_options());
  arrive("a", 10);
  arrive("a", 8);
  step(11);
  EXPECT_EQ(buffer_->stats().expired, 2u);
}

TEST_F(ReplayBufferTest, StalenessZeroIsSynchronous) {
  ReplayOptions options = replay_options();
  options.max_staleness = 0;
  make(options);
  EXPECT_EQ(reason(arrive("a", 9)), "stale");
  arrive_group("a", 10);
  arrive_group("b", 10);
  EXPECT_EQ(take().size(), 2u);
  step(11);
  EXPECT_EQ(reason(arrive("c", 10)), "stale");
}

TEST_F(ReplayBufferTest, UnlimitedStalenessTakesAnyPublishedVersion) {
  ReplayOptions options = replay_options();
  options.max_staleness.reset();
  make(options, 1000);
  EXPECT_EQ(arrive("a", 1).admission, AdmissionOutcome::kAdmitted);
  step(2000);
  EXPECT_EQ(buffer_->buffered(), 1u);
  EXPECT_EQ(reason(arrive("a", 1500)), "version_never_published");
  EXPECT_EQ(reason(arrive("a", 0)), "version_never_published");
}

TEST_F(ReplayBufferTest, CountsARolloutOnce) {
  make(replay_options());
  EXPECT_EQ(buffer_->handle_trajectory(now_, rollout("w", 5, "a", 10)).admission, AdmissionOutcome::kAdmitted);
  EXPECT_EQ(buffer_->handle_trajectory(now_, rollout("w", 5, "a", 10)).admission, AdmissionOutcome::kDuplicate);
  EXPECT_EQ(buffer_->handle_trajectory(now_, rollout("v", 5, "a", 10)).admission, AdmissionOutcome::kAdmitted);
  arrive_group("b", 10);
  EXPECT_EQ(take().size(), 2u);
  EXPECT_EQ(buffer_->handle_trajectory(now_, rollout("w", 5, "c", 10)).admission, AdmissionOutcome::kDuplicate);
  EXPECT_EQ(buffer_->stats().duplicates, 2u);
  EXPECT_EQ(buffer_->stats().admitted, 4u);
}

TEST_F(ReplayBufferTest, ARefusedRolloutMayComeAgainInOrder) {
  make(replay_options());
  Trajectory bad = rollout("w", 5, "a", 10);
  bad.logprobs[0] = 1;
  EXPECT_EQ(reason(buffer_->handle_trajectory(now_, bad)), "logprob_positive");
  EXPECT_EQ(buffer_->handle_trajectory(now_, rollout("w", 5, "a", 10)).admission, AdmissionOutcome::kAdmitted);
}

TEST_F(ReplayBufferTest, WhatCameOfAForgottenWorkerIsStaleNotNew) {
  ReplayOptions options = replay_options();
  options.workers_max = 1;
  make(options);
  EXPECT_EQ(buffer_->handle_trajectory(now_, rollout("w", 5, "a", 10)).admission, AdmissionOutcome::kAdmitted);
  EXPECT_EQ(reason(buffer_->handle_trajectory(now_, rollout("v", 5, "a", 10))), "too_many_workers");
  step(13);
  EXPECT_EQ(buffer_->handle_trajectory(now_, rollout("v", 5, "b", 13)).admission, AdmissionOutcome::kAdmitted);
  EXPECT_EQ(reason(buffer_->handle_trajectory(now_, rollout("w", 5, "a", 10))), "too_many_workers");
  step(16);
  EXPECT_EQ(reason(buffer_->handle_trajectory(now_, rollout("w", 5, "a", 10))), "stale");
}

TEST_F(ReplayBufferTest, RefusesASequenceNumberTooFarBehind) {
  ReplayOptions options = replay_options();
  options.gaps_per_worker_max = 1;
  options.rollouts_max = 100;
  make(options);
  for (const std::uint64_t n : {10u, 20u}) {
    EXPECT_EQ(buffer_->handle_trajectory(now_, rollout("w", n, std::to_string(n), 10)).admission,
              AdmissionOutcome::kAdmitted);
  }
  EXPECT_EQ(reason(buffer_->handle_trajectory(now_, rollout("w", 9, "c", 10))), "sequence_too_old");
}

TEST_F(ReplayBufferTest, AGroupTakesNoMoreThanItsSize) {
  make(replay_options());
  arrive_group("a", 10);
  EXPECT_EQ(reason(arrive("a", 10)), "group_closed");
}

TEST_F(ReplayBufferTest, GivesUpAGroupThatTakesTooLong) {
  ReplayOptions options = replay_options();
  options.group_time_max = std::chrono::seconds(60);
  make(options);
  EXPECT_EQ(buffer_->poll_deadline(), std::nullopt);
  arrive("a", 10);
  EXPECT_EQ(buffer_->poll_deadline(), now_ + std::chrono::seconds(60));
  now_ += std::chrono::seconds(60);
  buffer_->handle_time(now_ - Duration(1));
  EXPECT_EQ(buffer_->stats().given_up, 0u);
  buffer_->handle_time(now_);
  EXPECT_EQ(buffer_->stats().given_up, 1u);
  EXPECT_EQ(reason(arrive("a", 10)), "group_closed");
  EXPECT_EQ(buffer_->poll_deadline(), std::nullopt);
}

TEST_F(ReplayBufferTest, WhenFullItRefusesWhileTheLearnerHasWork) {
  make(replay_options());
  for (const char* tag : {"a", "b", "c"}) arrive_group(tag, 10);
  arrive("d", 10);
  arrive("e", 10);
  EXPECT_EQ(arrive("e", 10).admission, AdmissionOutcome::kFull);
  EXPECT_EQ(buffer_->buffered(), 8u);
  EXPECT_EQ(buffer_->stats().full, 1u);
  EXPECT_EQ(take(), (Tags{"a", "b"}));
  EXPECT_EQ(arrive("e", 10).admission, AdmissionOutcome::kAdmitted);
}

TEST_F(ReplayBufferTest, WhenFullOfPiecesItGivesUpTheOldestGroup) {
  make(replay_options());
  for (const char* tag : {"a", "b", "c", "d", "e", "f", "g", "h"}) arrive(tag, 10);
  EXPECT_EQ(arrive("b", 10).admission, AdmissionOutcome::kAdmitted);
  EXPECT_EQ(buffer_->stats().given_up, 1u);
  EXPECT_EQ(reason(arrive("a", 10)), "group_closed");
  EXPECT_EQ(arrive("c", 10).admission, AdmissionOutcome::kAdmitted) << "b is complete, but no batch";
  EXPECT_EQ(take(), (Tags{"b", "c"}));
}

TEST_F(ReplayBufferTest, FiltersGroupsWithoutSignal) {
  ReplayOptions options = replay_options();
  options.filter_equal_rewards = true;
  make(options);
  arrive("a", 10, 1);
  arrive("a", 10, 1);
  EXPECT_EQ(buffer_->stats().filtered, 2u);
  arrive("b", 10, 1);
  arrive("b", 10, 0);
  EXPECT_EQ(buffer_->stats().filtered, 2u);
  EXPECT_EQ(buffer_->buffered(), 2u);
}

TEST_F(ReplayBufferTest, ABatchDoesNotTellTheOrderOfArrival) {
  const auto batch_of = [&](std::vector<std::pair<std::uint64_t, std::string>> arrivals) {
    make(replay_options());
    for (const auto& [sequence, group] : arrivals) {
      const std::string worker = sequence % 2 == 0 ? "even" : "odd";
      EXPECT_EQ(buffer_->handle_trajectory(now_, rollout(worker, sequence, group, 10)).admission,
                AdmissionOutcome::kAdmitted);
    }
    std::vector<std::vector<Trajectory>> batch;
    std::vector<RolloutGroup> groups = buffer_->take_batch(now_).value();
    for (RolloutGroup& group : groups) batch.push_back(std::move(group.rollouts));
    return batch;
  };
  EXPECT_EQ(batch_of({{0, "a"}, {1, "a"}, {2, "b"}, {3, "b"}}), batch_of({{3, "b"}, {1, "a"}, {0, "a"}, {2, "b"}}));
}

TEST_F(ReplayBufferTest, OrdersOfSampling) {
  const auto sampled = [&](SampleOrder order, std::uint64_t seed) {
    ReplayOptions options = replay_options();
    options.order = order;
    options.seed = seed;
    make(options);
    arrive_group("a", 9);
    arrive_group("b", 8);
    arrive_group("c", 10);
    arrive_group("d", 10);
    return take();
  };
  EXPECT_EQ(sampled(SampleOrder::kOldestFirst, 0), (Tags{"a", "b"}));
  EXPECT_EQ(sampled(SampleOrder::kNewestFirst, 0), (Tags{"c", "d"}));
  std::map<Tags, int> seen;
  for (std::uint64_t seed = 0; seed < 240; ++seed) ++seen[sampled(SampleOrder::kUniform, seed)];
  EXPECT_EQ(seen.size(), 6u) << "each pair of four";
  for (const auto& [tags, count] : seen) EXPECT_GT(count, 5) << tags[0] << tags[1];
  EXPECT_EQ(sampled(SampleOrder::kUniform, 7), sampled(SampleOrder::kUniform, 7));
}

TEST_F(ReplayBufferTest, TheBatchInTrainingIsOneOfThoseThatTheRatioAllows) {
  ReplayOptions options = replay_options();
  options.async_generation_ratio = 0.5;
  make(options);
  EXPECT_EQ(start("w", 0, 50), 3u) << "one and a half batches of two groups";
  EXPECT_EQ(start("w", 6, 1), 0u);
  arrive_group("a", 10);
  EXPECT_EQ(buffer_->under_way(), 4u);
  EXPECT_EQ(start("w", 6, 1), 0u) << "one waits in the buffer";
  arrive_group("b", 10);
  EXPECT_EQ(take().size(), 2u);
  EXPECT_EQ(start("w", 6, 50), 0u) << "a batch is trained on, and half a batch is under way";
  step(11);
  EXPECT_EQ(start("w", 6, 50), 2u);
  buffer_->handle_abandoned({"w", 6});
  EXPECT_EQ(start("w", 20, 50), 1u);
}

TEST_F(ReplayBufferTest, NothingIsDroppedAtAnyRatioOnASteadyFleet) {
  // Workers of which each takes a version late, and a learner that takes as long as they do.
  for (const double ratio : {0.25, 0.5, 1.0, 1.5, 2.0, 4.0}) {
    SCOPED_TRACE(ratio);
    ReplayOptions options = replay_options();
    options.rollout_batch_size = 8;
    options.rollouts_max = 1000;
    options.max_staleness.reset();
    options.async_generation_ratio = ratio;
    make(options, 1);
    struct UnderWay {
      std::uint64_t group, first, due;
      Version least;
    };
    std::deque<UnderWay> under_way;
    std::uint64_t first = 0, installed = 1, training_until = 0, installs_at = 0, trained = 0;
    for (std::uint64_t tick = 1; tick < 4000; ++tick) {
      now_ += std::chrono::seconds(1);
      if (training_until == tick) {
        buffer_->handle_step(Version{buffer_->learner().value + 1});
        buffer_->handle_published(buffer_->learner());
        installs_at = tick + 3;
      }
      if (installs_at == tick) installed = buffer_->learner().value;
      for (std::uint64_t left = buffer_->leasable(now_, "w", 2); left > 0; --left, first += 2) {
        const std::uint64_t group = next_group_++;
        const Version least = buffer_->lease(now_, "w", group, first, 2);
        under_way.push_back({group, first, tick + 7, least});
      }
      for (UnderWay& one : under_way) one.due += one.least.value > installed ? 1 : 0;  // it waits for its version
      while (!under_way.empty() && under_way.front().due <= tick) {
        const UnderWay one = under_way.front();
        under_way.pop_front();
        for (std::uint64_t i = 0; i < 2; ++i) {
          const std::uint64_t version = std::max(installed > 1 ? installed - 1 : 1, one.least.value);
          const Arrival arrival =
              buffer_->handle_trajectory(now_, rollout("w", one.first + i, "g" + std::to_string(one.group), version));
          ASSERT_EQ(arrival.admission, AdmissionOutcome::kAdmitted) << arrival.reason << " " << arrival.detail;
        }
      }
      if (training_until > tick) continue;
      buffer_->handle_wanted(now_);
      if (!buffer_->take_batch(now_)) continue;
      trained += 8;
      training_until = tick + 10;
    }
    EXPECT_GT(trained, 1000u);
    const ReplayStats& stats = buffer_->stats();
    EXPECT_EQ(buffer_->leases().record_of("w").groups_failed, 0u);
    EXPECT_EQ(stats.expired, 0u);
    EXPECT_EQ(stats.given_up, 0u);
    EXPECT_EQ(stats.aborted, 0u);
  }
}

TEST_F(ReplayBufferTest, StartsNothingThatTheStepUnderWayMakesStale) {
  for (const std::uint64_t staleness : {0, 1}) {
    ReplayOptions options = replay_options();
    options.max_staleness = staleness;
    make(options);
    arrive_group("a", 10);
    arrive_group("b", 10);
    ASSERT_EQ(take().size(), 2u);
    EXPECT_EQ(start("w", 20, 1), staleness) << "of the version before the step";
    buffer_->handle_step(Version{11});
    buffer_->handle_published(Version{11});
    EXPECT_EQ(start("w", 30, 1), 1u);
  }
}

TEST_F(ReplayBufferTest, WithoutARatioABatchIsLeasedUntilTimesAreKnown) {
  ReplayOptions options = replay_options();
  options.rollouts_max = 1000;
  for (const std::uint64_t staleness : {0, 1, 2, 20}) {
    options.max_staleness = staleness;
    make(options);
    EXPECT_EQ(start("w", 0, 50), 2u) << "staleness is a bound, no target";
  }
  options.max_staleness.reset();
  make(options);
  EXPECT_EQ(start("w", 0, 50), 2u);
}

TEST_F(ReplayBufferTest, RedundantEnvironmentsOfASynchronousBatch) {
  ReplayOptions options = replay_options();
  options.async_generation_ratio = 0;
  options.num_env_groups = 3;  // two make a batch
  options.group_size_redundancy = 1;
  make(options);
  ASSERT_EQ(buffer_->leasable(now_, "w", 9), 3u);
  for (std::uint64_t i = 0; i < 3; ++i) EXPECT_EQ(buffer_->lease(now_, "w", i, 3 * i, 3), Version{10});
  // Of each group any two of the three count.
  for (const std::uint64_t sequence : {0, 2, 7, 8}) {
    const std::string group = "g" + std::to_string(sequence / 3);
    ASSERT_EQ(buffer_->handle_trajectory(now_, rollout("w", sequence, group, 10)).admission,
              AdmissionOutcome::kAdmitted);
  }
  EXPECT_EQ(buffer_->poll_abort(), std::nullopt);
  EXPECT_EQ(take(), (Tags{"g0", "g2"}));
  for (const std::uint64_t sequence : {3, 4, 5}) EXPECT_EQ(buffer_->poll_abort(), (RolloutId{"w", sequence}));
  EXPECT_EQ(buffer_->poll_abort(), std::nullopt) << "the third group is of no use from now on";
  EXPECT_EQ(buffer_->leasable(now_, "w", 9), 0u);
  step(11);
  EXPECT_EQ(buffer_->leasable(now_, "w", 9), 3u);
}

TEST_F(ReplayBufferTest, AdditionalRunningPromptsStandInForWhatIsFiltered) {
  ReplayOptions options = replay_options();
  options.async_generation_ratio = 0;
  options.max_additional_running_prompts = 1;
  options.filter_equal_rewards = true;
  make(options);
  EXPECT_EQ(start("w", 0, 9), 3u);
  arrive("g0", 10, 1);
  arrive("g0", 10, 1);
  EXPECT_EQ(buffer_->stats().filtered, 2u);
  EXPECT_EQ(start("w", 6, 9), 1u) << "in the place of the one without signal";
}

TEST_F(ReplayBufferTest, TakesWhatWasLeasedToItsWorkerAndNothingElse) {
  ReplayOptions options = replay_options();
  options.leased_only = true;
  make(options);
  ASSERT_EQ(start("w", 0, 2), 2u);
  const auto came = [&](const std::string& worker, std::uint64_t sequence, const std::string& group) {
    const Arrival arrival = buffer_->handle_trajectory(now_, rollout(worker, sequence, group, 10));
    check_accounts(*buffer_);
    return arrival.admission == AdmissionOutcome::kAdmitted ? "admitted" : std::string(arrival.reason);
  };
  EXPECT_EQ(came("thief", 0, "a#0"), "not_leased");
  EXPECT_EQ(came("w", 4, "a#2"), "not_leased");
  EXPECT_EQ(came("w", 0, "a#0"), "admitted");
  EXPECT_EQ(came("w", 1, "b#0"), "other_group") << "a group has one tag";
  EXPECT_EQ(came("w", 2, "a#3"), "other_group");
  EXPECT_EQ(came("w", 3, "a"), "lease_ended") << "its group cannot become whole any more";
  EXPECT_EQ(came("thief", 3, "a"), "not_leased");
  EXPECT_EQ(buffer_->buffered(), 0u);
  EXPECT_EQ(start("w", 4, 9), 2u) << "nobody waits for those";
  EXPECT_EQ(came("w", 4, "x#2"), "admitted");
  EXPECT_EQ(came("w", 5, "x#2"), "admitted");
}

TEST_F(ReplayBufferTest, SaysOfWhatComesAfterItsLeaseThatItIsLate) {
  ReplayOptions options = replay_options();
  options.leased_only = true;
  make(options);
  ASSERT_EQ(start("paused", 0, 1), 1u);
  ASSERT_EQ(start("gives_back", 0, 1), 1u);
  const auto came = [&](const std::string& worker, std::uint64_t sequence, std::uint64_t version) {
    return std::string(buffer_->handle_trajectory(now_, rollout(worker, sequence, "g#0", version)).reason);
  };
  // One of the group is on its way while its worker gives up the other.
  buffer_->handle_abandoned({"gives_back", 1});
  EXPECT_EQ(came("gives_back", 0, 10), "lease_ended");
  // The worker is paused, wakes after many steps, and begins then what was leased to it before.
  buffer_->handle_worker_lost("paused");
  for (std::uint64_t version = 11; version < 30; ++version) step(version);
  EXPECT_EQ(came("paused", 0, 29), "lease_ended");
  EXPECT_EQ(came("paused", 2, 29), "not_leased") << "nobody had that number";
  const std::string saved = buffer_->save(now_);
  ReplayBuffer restored = ReplayBuffer::restore(options, replay_rules(), saved, now_).value();
  EXPECT_EQ(restored.handle_trajectory(now_, rollout("paused", 1, "g#0", 29)).reason, "lease_ended");
}

TEST_F(ReplayBufferTest, AHoarderHoldsUpTheOthersForABoundedTimeAndOnce) {
  ReplayOptions options = replay_options();
  options.rollout_batch_size = 16;
  options.rollouts_max = 1000;
  options.leased_only = true;
  make(options);
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
        ASSERT_EQ(buffer_->handle_trajectory(now_, rollout("w", first, tag, buffer_->learner().value)).admission,
                  AdmissionOutcome::kAdmitted);
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

TEST_F(ReplayBufferTest, AFractionalRatioLetsAPartOfABatchLag) {
  ReplayOptions options = replay_options();
  options.async_generation_ratio = 0.5;
  make(options);
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

TEST_F(ReplayBufferTest, BothBoundsHold) {
  ReplayOptions options = replay_options();
  options.max_staleness = 1;
  options.async_generation_ratio = 3;
  make(options);
  EXPECT_EQ(reason(arrive("a", 8)), "stale");
  options.max_staleness = 3;
  options.async_generation_ratio = 1;
  make(options);
  EXPECT_EQ(reason(arrive("a", 8)), "stale");
  EXPECT_EQ(arrive("a", 9).admission, AdmissionOutcome::kAdmitted);
}

TEST_F(ReplayBufferTest, AbortsWhatCanNoLongerBeUsed) {
  ReplayOptions options = replay_options();
  options.async_generation_ratio = 1;
  make(options);
  ASSERT_EQ(start("w", 7, 1), 1u);
  step(11);
  EXPECT_EQ(buffer_->poll_abort(), std::nullopt);
  step(12);
  EXPECT_EQ(buffer_->poll_abort(), (RolloutId{"w", 7}));
  EXPECT_EQ(buffer_->poll_abort(), (RolloutId{"w", 8}));
  EXPECT_EQ(buffer_->poll_abort(), std::nullopt);
  EXPECT_EQ(buffer_->stats().aborted, 2u);
}

TEST_F(ReplayBufferTest, ALeaseThatIsNotHeardOfIsLost) {
  ReplayOptions options = replay_options();
  options.async_generation_ratio = 0;
  options.lease_time_max = std::chrono::seconds(5);
  make(options);
  ASSERT_EQ(start("w", 0, 9), 2u);
  EXPECT_EQ(buffer_->poll_deadline(), now_ + std::chrono::seconds(5));
  now_ += std::chrono::seconds(5);
  buffer_->handle_time(now_);
  EXPECT_EQ(buffer_->stats().lost, 4u);
  EXPECT_EQ(start("other", 100, 9), 2u);
}

/// Two workers, and nobody knows yet how long a group takes. If both had leases for more than a batch, whoever is
/// faster would say which groups it has.
TEST_F(ReplayBufferTest, WhichGroupsASynchronousBatchHasDoesNotDependOnWhoAsksFirst) {
  for (const bool by_ratio : {false, true}) {
    ReplayOptions options = replay_options();
    if (by_ratio) {
      options.async_generation_ratio = 0;
    } else {
      options.max_staleness = 0;
    }
    make(options);
    ASSERT_EQ(start("first", 0, 9), 2u);
    EXPECT_EQ(start("second", 0, 9), 0u);
    now_ += std::chrono::seconds(19);
    EXPECT_EQ(start("second", 0, 9), 0u) << "the first one may have been paused";
    now_ += std::chrono::seconds(1);
    EXPECT_EQ(start("second", 0, 9), 1u) << "its part";
  }
}

TEST_F(ReplayBufferTest, ASlowGroupOfASynchronousBatchIsWaitedFor) {
  ReplayOptions options = replay_options();
  options.max_staleness = 0;
  make(options);
  std::uint64_t first = 0;
  // Groups that take 0.1 s, so many that their mean counts.
  for (std::uint64_t version = 10; version < 30; ++version) {
    const std::uint64_t group = next_group_;
    ASSERT_EQ(start("w", first, 9), 2u);
    now_ += std::chrono::milliseconds(100);
    for (std::uint64_t i = 0; i < 4; ++i, ++first) {
      const auto tag = "g" + std::to_string(group + i / 2);
      ASSERT_EQ(buffer_->handle_trajectory(now_, rollout("w", first, tag, version)).admission,
                AdmissionOutcome::kAdmitted);
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

TEST_F(ReplayBufferTest, AGroupThatLostItsWorkerNeedsNoPlaceInABatch) {
  ReplayOptions options = replay_options();
  options.async_generation_ratio = 0;
  options.leased_only = true;
  make(options);
  ASSERT_EQ(start("gone", 0, 2), 2u);
  ASSERT_EQ(buffer_->handle_trajectory(now_, rollout("gone", 0, "0", 10)).admission, AdmissionOutcome::kAdmitted);
  now_ += std::chrono::seconds(20);
  EXPECT_EQ(start("w", 0, 2), 1u) << "its part: nobody knows yet how long a group takes";
  EXPECT_EQ(start("w", 2, 2), 0u);
  buffer_->handle_worker_lost("gone");
  EXPECT_EQ(start("w", 2, 5), 1u) << "or no batch would come before group_time_max";
  EXPECT_EQ(buffer_->handle_trajectory(now_, rollout("gone", 1, "0", 10)).admission, AdmissionOutcome::kAdmitted)
      << "its spool may still come";
}

TEST_F(ReplayBufferTest, AGroupOfWhichOneWasRefusedNeedsNoPlaceInABatch) {
  ReplayOptions options = replay_options();
  options.async_generation_ratio = 0;
  make(options);
  ASSERT_EQ(start("w", 0, 2), 2u);
  ASSERT_EQ(buffer_->handle_trajectory(now_, rollout("w", 0, "a", 10)).admission, AdmissionOutcome::kAdmitted);
  ASSERT_EQ(buffer_->handle_trajectory(now_, rollout("w", 1, "a", 99)).reason, "version_unknown");
  EXPECT_EQ(start("w", 4, 2), 0u) << "that one comes again";
  Trajectory bad = rollout("w", 1, "a", 10);
  bad.logprobs.clear();
  ASSERT_EQ(buffer_->handle_trajectory(now_, std::move(bad)).admission, AdmissionOutcome::kRefused);
  EXPECT_EQ(buffer_->stats().given_up, 1u) << "what had come of its group";
  EXPECT_EQ(start("w", 4, 5), 1u);
}

TEST_F(ReplayBufferTest, TheRestOfAGroupWhoseFirstWasStaleIsClosed) {
  ReplayOptions options = replay_options();
  options.leased_only = true;
  make(options);
  ASSERT_EQ(start("w", 0, 1), 1u);
  EXPECT_EQ(reason(buffer_->handle_trajectory(now_, rollout("w", 0, "#0", 7))), "stale");
  EXPECT_EQ(reason(buffer_->handle_trajectory(now_, rollout("w", 1, "#0", 10))), "group_closed");
}

TEST_F(ReplayBufferTest, GroupsThatAFractionalRatioHasNoPlaceForAreNotWaitedFor) {
  ReplayOptions options = replay_options();
  options.async_generation_ratio = 0.5;
  make(options);
  for (const char* tag : {"a", "b", "c"}) arrive_group(tag, 10);
  step(11);
  EXPECT_EQ(buffer_->supply(), Supply::kWaiting) << "one of a batch of two groups may lag";
  EXPECT_GE(start("w", 100, 9), 1u);
}

TEST_F(ReplayBufferTest, TheLastGrantOfANumberCountsAfterARestart) {
  ReplayOptions options = replay_options();
  options.leased_only = true;
  make(options);
  buffer_->handle_leased_before(now_, "w", 3, 100, 2);
  buffer_->handle_leased_before(now_, "w", 4, 100, 2);  // the answer with the first one was lost
  EXPECT_EQ(buffer_->handle_trajectory(now_, rollout("w", 100, "#4", 10)).admission, AdmissionOutcome::kAdmitted);
}

TEST_F(ReplayBufferTest, TakesUpWhatAWorkerStillHolds) {
  ReplayOptions options = replay_options();
  options.async_generation_ratio = 0;
  options.leased_only = true;
  make(options);
  for (const std::uint64_t group : {0, 1}) buffer_->handle_leased_before(now_, "w", group, 2 * group, 2);
  EXPECT_EQ(buffer_->under_way(), 0u);
  EXPECT_EQ(buffer_->handle_trajectory(now_, rollout("w", 0, "#0", 10)).admission, AdmissionOutcome::kAdmitted);
  for (const std::uint64_t sequence : {0, 1, 77}) buffer_->handle_held({"w", sequence});
  EXPECT_EQ(buffer_->under_way(), 1u) << "the first one has arrived, and number 77 was never granted";
  EXPECT_EQ(start("w", 4, 5), 1u);
}

TEST_F(ReplayBufferTest, SaysWhenNothingAdmissibleCanCome) {
  make(replay_options());
  buffer_->handle_step(Version{12});
  EXPECT_EQ(buffer_->supply(), Supply::kWaiting) << "version 10 is the newest that workers have";
  arrive_group("a", 10);
  arrive_group("b", 10);
  EXPECT_EQ(buffer_->supply(), Supply::kReady);
  EXPECT_EQ(take().size(), 2u);
  buffer_->handle_step(Version{13});
  EXPECT_EQ(buffer_->supply(), Supply::kExhausted);
  EXPECT_EQ(start("w", 0, 1), 0u);
  buffer_->handle_published(Version{13});
  EXPECT_EQ(buffer_->supply(), Supply::kWaiting);
  EXPECT_EQ(start("w", 0, 1), 1u);
}

TEST_F(ReplayBufferTest, NothingCanComeBeforeTheFirstPublication) {
  make(replay_options(), 0);
  EXPECT_EQ(buffer_->supply(), Supply::kExhausted);
  buffer_->handle_step(Version{1});
  EXPECT_EQ(buffer_->supply(), Supply::kExhausted);
  buffer_->handle_published(Version{1});
  EXPECT_EQ(buffer_->supply(), Supply::kWaiting);
}

TEST_F(ReplayBufferTest, WithoutPublicationsUnlimitedStalenessNeverEnds) {
  ReplayOptions options = replay_options();
  options.max_staleness.reset();
  make(options, 1);
  buffer_->handle_step(Version{1'000'000});
  EXPECT_EQ(buffer_->supply(), Supply::kWaiting);
  EXPECT_EQ(arrive("a", 1).admission, AdmissionOutcome::kAdmitted);
}

TEST_F(ReplayBufferTest, AFractionAloneMakesNoBatch) {
  ReplayOptions options = replay_options();
  options.async_generation_ratio = 0.5;
  make(options);
  buffer_->handle_step(Version{11});
  EXPECT_EQ(buffer_->supply(), Supply::kExhausted) << "half a batch may be of version 10, and nobody has 11";
}

TEST_F(ReplayBufferTest, WhenFullOfLaggingGroupsItMakesRoomForOthers) {
  ReplayOptions options = replay_options();
  options.async_generation_ratio = 0.5;
  make(options);
  for (const char* tag : {"a", "b", "c", "d"}) arrive_group(tag, 10);
  step(11);
  EXPECT_EQ(buffer_->buffered(), 8u);
  arrive_group("e", 11);
  EXPECT_EQ(buffer_->stats().expired, 2u);
  EXPECT_EQ(buffer_->supply(), Supply::kReady);
}

TEST_F(ReplayBufferTest, EarlierVersionsChangeNothing) {
  make(replay_options());
  buffer_->handle_step(Version{3});
  buffer_->handle_published(Version{3});
  EXPECT_EQ(buffer_->learner(), Version{10});
  EXPECT_EQ(arrive("a", 10).admission, AdmissionOutcome::kAdmitted);
}

}  // namespace
}  // namespace weightcast
