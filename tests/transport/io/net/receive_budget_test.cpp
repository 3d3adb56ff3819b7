#include "transport/io/net/receive_budget.h"

#include <gtest/gtest.h>

#include <memory>
#include <vector>

namespace weightcast {
namespace {

struct ReceiveBudgetTest : testing::Test {
  ReceiveBudget budget{100};
  std::vector<char> told;
  ReceiveBudget::Share a{[this] { told.push_back('a'); }};
  ReceiveBudget::Share b{[this] { told.push_back('b'); }};
  ReceiveBudget::Share c{[this] { told.push_back('c'); }};
};

TEST_F(ReceiveBudgetTest, GivesWhileThereIsSome) {
  EXPECT_TRUE(a.take(budget, 60));
  EXPECT_TRUE(b.take(budget, 40));
  EXPECT_FALSE(c.take(budget, 1));
  EXPECT_EQ(budget.taken_bytes(), 100u);
  EXPECT_TRUE(a.taken() && b.taken() && c.waiting());
  EXPECT_TRUE(told.empty());
}

TEST_F(ReceiveBudgetTest, ServesInTurnAlthoughALaterOneWouldFit) {
  EXPECT_TRUE(a.take(budget, 60));
  EXPECT_FALSE(b.take(budget, 90));
  EXPECT_FALSE(c.take(budget, 10)) << "or those who want much would never have it";
  a.give_back();
  EXPECT_EQ(told, (std::vector<char>{'b', 'c'}));
  EXPECT_EQ(budget.taken_bytes(), 100u);
}

TEST_F(ReceiveBudgetTest, WhoStopsWaitingMakesWayForTheNext) {
  EXPECT_TRUE(a.take(budget, 60));
  EXPECT_FALSE(b.take(budget, 90));
  EXPECT_FALSE(c.take(budget, 10));
  b.give_back();
  EXPECT_EQ(told, std::vector<char>{'c'});
  EXPECT_EQ(budget.taken_bytes(), 70u);
}

TEST_F(ReceiveBudgetTest, MoreThanThereEverIsTakesAll) {
  EXPECT_TRUE(a.take(budget, 1000));
  EXPECT_EQ(budget.taken_bytes(), 100u);
  a.give_back();
  EXPECT_EQ(budget.taken_bytes(), 0u);
}

TEST_F(ReceiveBudgetTest, AHolderWithManyConnectionsTakesItsPartAndHoldsNobodyElseUp) {
  const auto greedy = std::make_shared<ReceiveBudget::Holder>();
  EXPECT_TRUE(a.take(budget, 10, greedy));
  EXPECT_FALSE(b.take(budget, 10, greedy)) << "above an eighth of it";
  EXPECT_TRUE(c.take(budget, 90)) << "who waits for itself keeps no place";
  c.give_back();
  EXPECT_TRUE(told.empty());
  a.give_back();
  EXPECT_EQ(told, std::vector<char>{'b'});
  EXPECT_EQ(greedy->taken_bytes, 10u);
  b.give_back();
  EXPECT_EQ(greedy->taken_bytes, 0u);
  EXPECT_TRUE(a.take(budget, 80, greedy)) << "or it could never send one that is larger than its part";
}

TEST_F(ReceiveBudgetTest, AShareThatGoesAwayGivesBack) {
  auto gone = std::make_unique<ReceiveBudget::Share>([] {});
  EXPECT_TRUE(gone->take(budget, 100));
  EXPECT_FALSE(a.take(budget, 100));
  gone.reset();
  EXPECT_TRUE(a.taken());
  a.give_back();
  a.give_back();
  EXPECT_EQ(budget.taken_bytes(), 0u);
}

}  // namespace
}  // namespace weightcast
