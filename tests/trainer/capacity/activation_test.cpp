#include "trainer/capacity/activation.h"

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <algorithm>
#include <numeric>

namespace weightcast {
namespace {

using Positions = std::vector<std::size_t>;

TEST(Activation, CheapestRolloutsFirst) {
  const std::vector<PoolWorker> pool{{"a100", 4, 3.06}, {"rtx", 1, 0.35}, {"slow", 0.1, 0.1}};
  EXPECT_EQ(activation_order(pool, Activation::kCost, 0), (Positions{1, 0, 2}));
}

TEST(Activation, OfEqualCostTheFasterThenByName) {
  const std::vector<PoolWorker> pool{{"b", 1, 1}, {"a", 1, 1}, {"c", 2, 2}};
  EXPECT_EQ(activation_order(pool, Activation::kCost, 0), (Positions{2, 1, 0}));
}

TEST(Activation, WorkersWithoutRolloutsAreNeverChosen) {
  const std::vector<PoolWorker> pool{{"dead", 0, 0}, {"a", 1, 1}};
  EXPECT_EQ(activation_order(pool, Activation::kCost, 0), (Positions{1, 0}));
  EXPECT_EQ(choose_active(pool, 5, Activation::kCost, 0), (Positions{1}));
}

TEST(Activation, ASumThatRoundingLeftBelowTheTargetReachesIt) {
  const std::vector<PoolWorker> pool(10, PoolWorker{"w", 0.1, 1});
  EXPECT_EQ(choose_active(pool, 1, Activation::kCost, 0).size(), 10u);
  EXPECT_EQ(choose_active(pool, 0.7, Activation::kCost, 0).size(), 7u);
}

TEST(Activation, RandomOrderFollowsFromTheSeed) {
  std::vector<PoolWorker> pool;
  for (int i = 0; i < 50; ++i) pool.push_back({std::to_string(i), 1, 1.0 + i});
  EXPECT_EQ(activation_order(pool, Activation::kRandom, 7), activation_order(pool, Activation::kRandom, 7));
  EXPECT_NE(activation_order(pool, Activation::kRandom, 7), activation_order(pool, Activation::kRandom, 8));
}

RC_GTEST_PROP(Activation, ChoosesNoWorkerTooMany, ()) {
  const auto count = *rc::gen::inRange(1, 20);
  std::vector<PoolWorker> pool;
  for (int i = 0; i < count; ++i) {
    pool.push_back({std::to_string(i), *rc::gen::inRange(0, 10) / 4.0, *rc::gen::inRange(0, 10) / 3.0});
  }
  const double target = *rc::gen::inRange(1, 100) / 8.0;
  const auto activation = *rc::gen::element(Activation::kCost, Activation::kRandom);
  const Positions chosen = choose_active(pool, target, activation, 3);
  double mu = 0, all = 0;
  for (const std::size_t i : chosen) mu += pool[i].mu;
  for (const PoolWorker& worker : pool) all += worker.mu;
  RC_ASSERT(reaches(mu, target) || mu == all);
  if (!chosen.empty()) RC_ASSERT(!reaches(mu - pool[chosen.back()].mu, target));
  RC_ASSERT(Positions(chosen).size() <= pool.size());
}

}  // namespace
}  // namespace weightcast
