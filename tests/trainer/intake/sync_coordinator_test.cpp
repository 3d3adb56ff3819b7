#include "trainer/intake/sync_coordinator.h"

#include <gtest/gtest.h>

#include <map>

#include "base/random.h"

namespace weightcast {
namespace {

using namespace std::chrono_literals;

class SyncCoordinatorTest : public testing::Test {
 protected:
  void workers(const std::vector<std::uint64_t>& versions) {
    std::vector<IntakeWorker> rows;
    for (std::size_t i = 0; i < versions.size(); ++i) {
      IntakeWorker row;
      row.name = "w" + std::to_string(i);
      row.said.is_active = true;
      row.said.weights = Version{versions[i]};
      rows.push_back(row);
    }
    sync_.handle_workers(now_, rows);
  }
  /// Steps from `first` to `last`, until one is published.
  std::uint64_t publishes_at(std::uint64_t first, std::uint64_t last) {
    for (std::uint64_t step = first; step <= last; ++step) {
      sync_.handle_step(Version{step});
      if (sync_.wants_publication()) return step;
    }
    return 0;
  }

  SyncCoordinator sync_{{.drift_max = 3, .sync_time_max = 10s}};
  Instant now_{1h};
};

TEST_F(SyncCoordinatorTest, ASyncBeginsWhenTheDriftIsAboveItsMaximum) {
  sync_.handle_published(Version{1});
  workers({1, 1});
  EXPECT_EQ(publishes_at(1, 10), 5u) << "5 - 1 > 3";
  EXPECT_EQ(sync_.drift(), 4u);
  EXPECT_EQ(sync_.begin_at_least(), kNoVersion) << "the origin does not have it";
  sync_.handle_published(Version{5});
  workers({1, 1});
  EXPECT_FALSE(sync_.wants_publication());
  EXPECT_EQ(sync_.begin_at_least(), Version{5});
  EXPECT_EQ(publishes_at(6, 12), 0u) << "one at a time";
  workers({5, 1});
  EXPECT_EQ(sync_.begin_at_least(), Version{5});
  workers({5, 5});
  EXPECT_EQ(sync_.begin_at_least(), kNoVersion);
  EXPECT_EQ(publishes_at(13, 20), 13u);
}

TEST_F(SyncCoordinatorTest, WhoDoesNotTakeItInTimeDoesNotCount) {
  sync_.handle_published(Version{1});
  workers({1, 1});
  ASSERT_EQ(publishes_at(1, 10), 5u);
  sync_.handle_published(Version{5});
  workers({5, 1});
  now_ += 10s;
  workers({5, 1});
  EXPECT_EQ(sync_.begin_at_least(), kNoVersion) << "nobody waits for it any longer";
  EXPECT_EQ(publishes_at(6, 20), 9u) << "it counts from version 5 on";
  sync_.handle_published(Version{9});
  workers({9, 9});
  EXPECT_EQ(publishes_at(10, 20), 13u);
  sync_.handle_published(Version{13});
  workers({13, 9});
  EXPECT_EQ(sync_.begin_at_least(), Version{13}) << "it counts again";
}

TEST_F(SyncCoordinatorTest, WithoutWorkersTheDriftIsFromWhatIsPublished) {
  EXPECT_EQ(publishes_at(0, 5), 0u) << "the first publication is the learner's to make";
  sync_.handle_published(Version{6});
  workers({});
  EXPECT_EQ(publishes_at(6, 20), 10u);
}

TEST_F(SyncCoordinatorTest, APublicationThatFailsIsTriedAgainAndHoldsNobody) {
  sync_.handle_published(Version{1});
  workers({1});
  ASSERT_EQ(publishes_at(1, 10), 5u);
  for (std::uint64_t step = 6; step < 30; ++step) {
    workers({1});
    sync_.handle_step(Version{step});
    EXPECT_TRUE(sync_.wants_publication());
    EXPECT_EQ(sync_.begin_at_least(), kNoVersion);
  }
}

TEST_F(SyncCoordinatorTest, SilentAndIdleWorkersDoNotCount) {
  sync_.handle_published(Version{9});
  IntakeWorker idle, silent, fresh;
  idle.said.weights = silent.said.weights = Version{1};
  silent.said.is_active = silent.is_silent = fresh.said.is_active = true;
  sync_.handle_workers(now_, std::vector{idle, silent, fresh});
  EXPECT_EQ(publishes_at(9, 20), 13u);
}

/// With publications that arrive at each worker after a while, or never: each sync is of a later version, ends within
/// its bound, and the drift of workers that keep up never exceeds drift_max by more than the steps that a sync takes.
TEST(SyncCoordinatorSchedules, DriftIsBounded) {
  for (std::uint64_t seed = 1; seed <= 300; ++seed) {
    SCOPED_TRACE(seed);
    Random random(seed);
    const std::uint64_t drift_max = random.below(6);
    SyncCoordinator sync({.drift_max = drift_max, .sync_time_max = 10s});
    std::vector<IntakeWorker> workers(1 + random.below(4));
    const bool has_dead_one = workers.size() > 1 && random.chance(0.5);
    for (std::size_t i = 0; i < workers.size(); ++i) {
      workers[i].name = std::to_string(i);
      workers[i].said.is_active = true;
      workers[i].said.weights = Version{1};
    }
    Instant now{1h};
    std::uint64_t published = 1, last_begun = 0;
    std::map<std::string, std::pair<Instant, Version>> arriving;
    sync.handle_published(Version{1});
    Instant held_since{};
    for (std::uint64_t step = 1; step < 300; ++step) {
      now += 1s;
      for (IntakeWorker& worker : workers) {
        const auto found = arriving.find(worker.name);
        if (found != arriving.end() && now >= found->second.first) worker.said.weights = found->second.second;
      }
      sync.handle_workers(now, workers);
      sync.handle_step(Version{step});
      if (sync.begin_at_least() == kNoVersion) {
        held_since = {};
      } else {
        if (held_since == Instant{}) held_since = now;
        ASSERT_LE(now - held_since, 11s);
      }
      if (sync.wants_publication() && random.chance(0.7)) {
        ASSERT_GT(step, last_begun);
        ASSERT_GT(step, published);
        last_begun = published = step;
        sync.handle_published(Version{step});
        for (std::size_t i = 0; i < workers.size(); ++i) {
          if (has_dead_one && i == 0) continue;
          arriving[workers[i].name] = {now + random.duration(0s, 4s), Version{step}};
        }
      }
      // Steps of a sync: until the origin takes it, 5 s to arrive, or 10 s for the one that never does.
      ASSERT_LE(step - published, drift_max + 30);
    }
    ASSERT_GT(published, 200u);
  }
}

}  // namespace
}  // namespace weightcast
