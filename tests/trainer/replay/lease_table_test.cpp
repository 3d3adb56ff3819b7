#include "trainer/replay/lease_table.h"

#include <gtest/gtest.h>

#include <functional>

namespace weightcast {
namespace {

using namespace std::chrono_literals;

class LeaseTableTest : public testing::Test {
 protected:
  void grant(const std::string& worker, std::uint64_t first, std::uint64_t size = 2, std::uint64_t version = 5) {
    table_.add(worker,
               {.group = next_group_++, .first = first, .size = size, .version = Version{version}, .granted = now_});
  }
  void deliver(const std::string& worker, std::uint64_t first) {
    for (const std::uint64_t sequence : {first, first + 1}) table_.handle_arrived(worker, sequence, "g");
    table_.handle_group_whole(now_, worker, first);
  }

  LeaseTable table_{2, 60s, 20s};
  Instant now_{1h};
  std::uint64_t next_group_ = 0;
};

TEST_F(LeaseTableTest, FindsTheLeaseOfARollout) {
  grant("w", 10);
  grant("w", 12);
  EXPECT_EQ(table_.find("w", 9), nullptr);
  EXPECT_EQ(table_.find("w", 11)->group, 0u);
  EXPECT_EQ(table_.find("w", 12)->group, 1u);
  EXPECT_EQ(table_.find("w", 14), nullptr);
  EXPECT_EQ(table_.find("v", 11), nullptr);
  grant("w", 13);
  EXPECT_EQ(table_.all().size(), 2u) << "one that overlaps is none";
  grant("w", 8, 3);
  EXPECT_EQ(table_.all().size(), 2u);
}

TEST_F(LeaseTableTest, AWorkerAloneMayHaveAllAndOneOfManyTwiceItsShare) {
  EXPECT_GE(table_.share_left(now_, "a", 12), 12u);
  for (const char* other : {"b", "c", "d", "e", "f"}) (void)table_.share_left(now_, other, 12);
  EXPECT_EQ(table_.share_left(now_, "a", 12), 4u);
  for (std::uint64_t first = 0; first < 6; first += 2) grant("a", first);
  EXPECT_EQ(table_.share_left(now_, "a", 12), 1u);
  now_ += 1min;  // the others have not asked since, and have nothing
  EXPECT_GE(table_.share_left(now_, "a", 12), 9u);
}

TEST_F(LeaseTableTest, SharesFollowWhatIsDelivered) {
  for (const char* worker : {"fast", "slow"}) (void)table_.share_left(now_, worker, 20);
  for (std::uint64_t first = 0; first < 18; first += 2) {
    grant("fast", first);
    deliver("fast", first);
  }
  now_ += 1s;
  EXPECT_GE(table_.share_left(now_, "fast", 20), 20u);
  EXPECT_EQ(table_.share_left(now_, "slow", 20), 4u) << "twice one of eleven";
  EXPECT_EQ(table_.share_left(now_, "new", 1), 1u) << "at least one";
}

TEST_F(LeaseTableTest, WhatIsOverdueIsNotExpectedAndStillTaken) {
  for (std::uint64_t first = 0; first < 20; first += 2) {
    grant("w", first);
    now_ += 1s;
    deliver("w", first);
  }
  ASSERT_EQ(table_.group_s(), 1.0);
  grant("late", 0);
  now_ += 19s;
  EXPECT_EQ(table_.handle_time(now_), 0u);
  EXPECT_EQ(table_.expected(), 1u);
  now_ += 2s;
  EXPECT_EQ(table_.handle_time(now_), 0u);
  EXPECT_EQ(table_.expected(), 0u);
  EXPECT_EQ(table_.record_of("late").groups_overdue, 1u);
  EXPECT_NE(table_.find("late", 1), nullptr);
  deliver("late", 0);
  EXPECT_EQ(table_.record_of("late").groups_leased, 0u);
  EXPECT_EQ(table_.record_of("late").groups_delivered, 1u);
}

TEST_F(LeaseTableTest, HoldsBackAWorkerThatBringsNothingWhateverItDoesWithItsLeases) {
  const std::vector<std::function<void(std::uint64_t)>> renewals = {
      [&](std::uint64_t first) {
        for (const std::uint64_t one : {first, first + 1}) (void)table_.handle_abandoned("w", one);
      },
      [&](std::uint64_t first) { (void)table_.handle_not_granted("w", first); },
      [&](std::uint64_t) { (void)table_.handle_worker_lost("w"); }, [&](std::uint64_t) {}};
  for (const auto& renew : renewals) {
    table_ = LeaseTable(2, 24h, 20s);
    for (std::uint64_t first = 0; first < 2000; first += 2) {
      if (table_.share_left(now_, "w", 100) > 0) grant("w", first);
      now_ += 1s;
      renew(first);
      (void)table_.handle_time(now_);
    }
    EXPECT_TRUE(table_.record_of("w").is_held_back);
    EXPECT_EQ(table_.expected(), 0u) << "nobody counts on it any more";
    while (table_.share_left(now_, "w", 100) == 0) now_ += 1min;
    EXPECT_EQ(table_.share_left(now_, "w", 100), 1u);
    grant("w", 5000);
    EXPECT_EQ(table_.expected(), 0u);
    EXPECT_EQ(table_.share_left(now_, "w", 100), 0u);
    deliver("w", 5000);
    EXPECT_FALSE(table_.record_of("w").is_held_back);
    EXPECT_GT(table_.share_left(now_, "w", 100), 1u);
  }
}

TEST_F(LeaseTableTest, AWorkerThatGivesBackEachLeaseDoesNotTakeEachPlace) {
  std::uint64_t first = 0, counted = 0;
  for (int i = 0; i < 1000; ++i, first += 2, now_ += 10ms) {
    if (table_.share_left(now_, "w", 4) == 0) continue;
    grant("w", first);
    counted += table_.expected();
    (void)table_.handle_abandoned("w", first);
  }
  EXPECT_EQ(counted, 8u) << "of the 1,000 leases that it asked for";
  EXPECT_TRUE(table_.record_of("w").is_held_back);
  EXPECT_EQ(table_.share_left(now_ + 1h, "w", 4), 1u);
  grant("w", first);
  deliver("w", first);
  EXPECT_FALSE(table_.record_of("w").is_held_back);
}

TEST_F(LeaseTableTest, AWorkerThatRestartsIsNotHeldBack) {
  (void)table_.share_left(now_, "w", 100);
  for (std::uint64_t first = 0; first < 40; first += 2) grant("w", first);
  (void)table_.handle_worker_lost("w");
  EXPECT_FALSE(table_.record_of("w").is_held_back);
  EXPECT_GT(table_.share_left(now_, "w", 100), 20u);
  for (std::uint64_t first = 100; first < 140; first += 2) grant("w", first);
  for (std::uint64_t sequence = 100; sequence < 140; ++sequence) (void)table_.handle_abandoned("w", sequence);
  EXPECT_FALSE(table_.record_of("w").is_held_back);
}

TEST_F(LeaseTableTest, AWorkerThatBringsNothingGetsNoMoreForWhatIsOverdue) {
  for (std::uint64_t first = 0; first < 20; first += 2) {
    grant("honest", first);
    now_ += 1s;
    deliver("honest", first);
  }
  (void)table_.share_left(now_, "honest", 20);
  const std::uint64_t share = table_.share_left(now_, "thief", 20);
  for (std::uint64_t i = 0; i < share; ++i) grant("thief", 2 * i);
  now_ += 21s;
  (void)table_.handle_time(now_);
  EXPECT_EQ(table_.expected(), 0u);
  (void)table_.share_left(now_, "honest", 20);
  EXPECT_EQ(table_.share_left(now_, "thief", 20), 0u);
  deliver("thief", 0);
  EXPECT_GT(table_.share_left(now_, "thief", 20), 0u) << "it was slow";
}

TEST_F(LeaseTableTest, WhatABatchHadNoUseForIsNobodysFault) {
  grant("w", 0, 2, 5);
  EXPECT_EQ(table_.handle_floor(Version{6}).size(), 2u);
  EXPECT_EQ(table_.record_of("w").groups_failed, 0u);
  EXPECT_NE(table_.find("w", 1), nullptr) << "it may have begun later, and be fresh enough";
  EXPECT_TRUE(table_.handle_floor(Version{20}).empty());
  EXPECT_EQ(table_.find("w", 1), nullptr);
}

TEST_F(LeaseTableTest, AGroupThatCannotBecomeWholeEnds) {
  grant("w", 0, 3);
  EXPECT_EQ(table_.handle_abandoned("w", 2), std::nullopt) << "a redundant one";
  EXPECT_EQ(table_.handle_abandoned("w", 2), std::nullopt) << "told again";
  EXPECT_EQ(table_.expected(), 1u);
  table_.handle_arrived("w", 0, "tag");
  EXPECT_EQ(table_.handle_abandoned("w", 1), "tag");
  EXPECT_EQ(table_.expected(), 0u);
  EXPECT_EQ(table_.find("w", 1), nullptr);
}

TEST_F(LeaseTableTest, ALostWorkersLeasesEnd) {
  grant("w", 0);
  table_.handle_arrived("w", 0, "g");
  const std::vector<Lease> lost = table_.handle_worker_lost("w");
  ASSERT_EQ(lost.size(), 1u);
  EXPECT_EQ(lost[0].tag, "g");
  EXPECT_EQ(table_.expected(), 0u);
  EXPECT_EQ(table_.rollouts_under_way(), 0u);
  EXPECT_EQ(table_.find("w", 1), nullptr);
  EXPECT_TRUE(table_.has_ended("w", 1));
  EXPECT_FALSE(table_.has_ended("w", 2));
  EXPECT_FALSE(table_.has_ended("v", 0));
  table_.handle_resumed();
  EXPECT_TRUE(table_.has_ended("v", 0)) << "it may have had it before";
}

TEST_F(LeaseTableTest, EndsWhatIsTooOldAndSaysWhoWorksInVain) {
  grant("w", 0, 2, 4);
  grant("w", 2, 2, 5);
  table_.handle_arrived("w", 0, "g");
  EXPECT_EQ(table_.handle_floor(Version{5}), (std::vector<LeaseTable::Key>{{"w", 1}}));
  EXPECT_EQ(table_.expected(), 1u);
}

TEST_F(LeaseTableTest, ForgetsWhatItsWorkerNeverHeardOf) {
  grant("w", 0);
  grant("w", 2);
  grant("w", 4);
  table_.handle_arrived("w", 4, "g");
  EXPECT_EQ(table_.handle_not_granted("w", 2), std::vector<std::uint64_t>{1});
  EXPECT_NE(table_.find("w", 0), nullptr);
  EXPECT_EQ(table_.find("w", 2), nullptr);
  EXPECT_NE(table_.find("w", 4), nullptr) << "something of it has come";
}

}  // namespace
}  // namespace weightcast
