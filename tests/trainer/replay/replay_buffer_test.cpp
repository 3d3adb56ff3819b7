#include "trainer/replay/replay_buffer.h"

#include <gtest/gtest.h>

#include <deque>
#include <utility>

#include "tests/trainer/replay/replay_buffer_fixture.h"

namespace weightcast {
namespace {

TEST_F(ReplayBufferTest, GivesABatchOfWholeGroups) {
  make();
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
  make();
  EXPECT_EQ(arrive("a", 8), "admitted");
  EXPECT_EQ(arrive("a", 7), "stale");
  EXPECT_EQ(arrive("a", 11), "version_unknown");
  EXPECT_EQ(buffer_->stats().refused.at("stale"), 1u);
}

TEST_F(ReplayBufferTest, DropsWhatBecameStaleBeforeSampling) {
  make();
  arrive_group("old", 8);
  arrive("half", 8);
  arrive_group("new", 9);
  step(11);
  EXPECT_EQ(buffer_->stats().expired, 2u);
  EXPECT_EQ(buffer_->stats().given_up, 1u);
  EXPECT_EQ(buffer_->buffered(), 2u);
  EXPECT_EQ(arrive("half", 9), "group_closed");
}

TEST_F(ReplayBufferTest, UnlimitedStalenessTakesAnyPublishedVersion) {
  options_.max_staleness.reset();
  make(1000);
  EXPECT_EQ(arrive("a", 1), "admitted");
  step(2000);
  EXPECT_EQ(buffer_->buffered(), 1u);
  EXPECT_EQ(arrive("a", 1500), "version_never_published");
  EXPECT_EQ(arrive("a", 0), "version_never_published");
}

TEST_F(ReplayBufferTest, CountsARolloutOnce) {
  make();
  EXPECT_EQ(came(rollout("w", 5, "a", 10)), "admitted");
  EXPECT_EQ(came(rollout("w", 5, "a", 10)), "duplicate");
  EXPECT_EQ(came(rollout("v", 5, "a", 10)), "admitted");
  arrive_group("b", 10);
  EXPECT_EQ(take().size(), 2u);
  EXPECT_EQ(came(rollout("w", 5, "a", 10)), "group_closed");
  EXPECT_EQ(buffer_->stats().duplicates, 1u);
  EXPECT_EQ(buffer_->stats().admitted, 4u);
}

TEST_F(ReplayBufferTest, ARefusedRolloutMayComeAgainInOrder) {
  make();
  Trajectory bad = rollout("w", 5, "a", 10);
  bad.logprobs[0] = 1;
  EXPECT_EQ(came(bad), "logprob_positive");
  EXPECT_EQ(came(rollout("w", 5, "a", 10)), "admitted");
}

TEST_F(ReplayBufferTest, AGroupTakesNoMoreThanItsSize) {
  make();
  arrive_group("a", 10);
  EXPECT_EQ(arrive("a", 10), "group_closed");
}

TEST_F(ReplayBufferTest, GivesUpAGroupThatTakesTooLong) {
  options_.group_time_max = std::chrono::seconds(60);
  make();
  arrive("a", 10);
  now_ += std::chrono::seconds(60);
  buffer_->handle_time(now_ - Duration(1));
  EXPECT_EQ(buffer_->stats().given_up, 0u);
  buffer_->handle_time(now_);
  EXPECT_EQ(buffer_->stats().given_up, 1u);
  EXPECT_EQ(arrive("a", 10), "group_closed");
}

TEST_F(ReplayBufferTest, WhenFullItRefusesWhileTheLearnerHasWork) {
  make();
  for (const char* tag : {"a", "b", "c"}) arrive_group(tag, 10);
  arrive("d", 10);
  arrive("e", 10);
  EXPECT_EQ(arrive("e", 10), "full");
  EXPECT_EQ(buffer_->buffered(), 8u);
  EXPECT_EQ(buffer_->stats().full, 1u);
  EXPECT_EQ(take(), (Tags{"a", "b"}));
  EXPECT_EQ(arrive("e", 10), "admitted");
}

TEST_F(ReplayBufferTest, WhenFullOfPiecesItGivesUpTheOldestGroup) {
  make();
  for (const char* tag : {"a", "b", "c", "d", "e", "f", "g", "h"}) arrive(tag, 10);
  EXPECT_EQ(arrive("b", 10), "admitted");
  EXPECT_EQ(buffer_->stats().given_up, 1u);
  EXPECT_EQ(arrive("a", 10), "group_closed");
  EXPECT_EQ(arrive("c", 10), "admitted") << "b is complete, but no batch";
  EXPECT_EQ(take(), (Tags{"b", "c"}));
}

TEST_F(ReplayBufferTest, FiltersGroupsWithoutSignal) {
  options_.filter_equal_rewards = true;
  make();
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
    make();
    for (const auto& [sequence, group] : arrivals) {
      const std::string worker = sequence % 2 == 0 ? "even" : "odd";
      EXPECT_EQ(came(rollout(worker, sequence, group, 10)), "admitted");
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
    options_.order = order;
    options_.seed = seed;
    make();
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
  options_.async_generation_ratio = 0.5;
  make();
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
    options_.rollout_batch_size = 8;
    options_.rollouts_max = 1000;
    options_.max_staleness.reset();
    options_.async_generation_ratio = ratio;
    make(1);
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

TEST_F(ReplayBufferTest, SaysWhenNothingAdmissibleCanCome) {
  make();
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
  make(0);
  EXPECT_EQ(buffer_->supply(), Supply::kExhausted);
  buffer_->handle_step(Version{1});
  EXPECT_EQ(buffer_->supply(), Supply::kExhausted);
  buffer_->handle_published(Version{1});
  EXPECT_EQ(buffer_->supply(), Supply::kWaiting);
}

TEST_F(ReplayBufferTest, WithoutPublicationsUnlimitedStalenessNeverEnds) {
  options_.max_staleness.reset();
  make(1);
  buffer_->handle_step(Version{1'000'000});
  EXPECT_EQ(buffer_->supply(), Supply::kWaiting);
  EXPECT_EQ(arrive("a", 1), "admitted");
}

TEST_F(ReplayBufferTest, AFractionAloneMakesNoBatch) {
  options_.async_generation_ratio = 0.5;
  make();
  buffer_->handle_step(Version{11});
  EXPECT_EQ(buffer_->supply(), Supply::kExhausted) << "half a batch may be of version 10, and nobody has 11";
}

TEST_F(ReplayBufferTest, WhenFullOfLaggingGroupsItMakesRoomForOthers) {
  options_.async_generation_ratio = 0.5;
  make();
  for (const char* tag : {"a", "b", "c", "d"}) arrive_group(tag, 10);
  step(11);
  EXPECT_EQ(buffer_->buffered(), 8u);
  arrive_group("e", 11);
  EXPECT_EQ(buffer_->stats().expired, 2u);
  EXPECT_EQ(buffer_->supply(), Supply::kReady);
}

TEST_F(ReplayBufferTest, EarlierVersionsChangeNothing) {
  make();
  buffer_->handle_step(Version{3});
  buffer_->handle_published(Version{3});
  EXPECT_EQ(buffer_->learner(), Version{10});
  EXPECT_EQ(arrive("a", 10), "admitted");
}

}  // namespace
}  // namespace weightcast
