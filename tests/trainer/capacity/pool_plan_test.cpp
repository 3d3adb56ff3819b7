#include "trainer/capacity/pool_plan.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

namespace weightcast {
namespace {

using Json = nlohmann::json;

/// Table 2 of ECHO-2: T = 1600 s, kappa = 2, twelve machines of $2.0244 per hour, of which nine give 1.174 mu_min.
Json table_2() {
  Json workers = Json::array();
  for (int i = 0; i < 12; ++i) {
    const double mu = 1.174 * 2 * 128 / (2 * 1600 - 1437) / 9;
    workers.push_back({{"name", "w" + std::to_string(i)}, {"mu", mu}, {"price_per_hour", 18.2205 / 9}});
  }
  return {{"T_s", 1600}, {"R", 128}, {"t_bcast_s", 1437}, {"kappa", 2}, {"S", 3}, {"alpha", 1.1}, {"workers", workers}};
}

PoolPlan planned(const Json& json) {
  const auto pool = parse_pool(json.dump());
  EXPECT_TRUE(pool.has_value()) << pool.error().message();
  const auto plan = plan_pool(*pool, Activation::kCost, 0);
  EXPECT_TRUE(plan.has_value()) << plan.error().message();
  return *plan;
}

std::string refusal(const Json& json) {
  const auto pool = parse_pool(json.dump());
  if (!pool.has_value()) return pool.error().message();
  const auto plan = plan_pool(*pool, Activation::kCost, 0);
  return plan.has_value() ? "not refused" : plan.error().message();
}

TEST(PoolPlan, PlansTable2) {
  const PoolPlan plan = planned(table_2());
  EXPECT_EQ(plan.active.size(), 9u);
  EXPECT_NEAR(plan.cost_per_step, 8.098, 0.001);
  EXPECT_EQ(plan.wait_s, 0);
  EXPECT_EQ(plan.bubble_ratio, 0);
  EXPECT_NEAR(plan.target / plan.mu_min, 1.1, 1e-12);
  EXPECT_EQ(plan.s_max_bound, 3u);  // 2 + ceil((1437 + 751) / 1600) - 1
}

TEST(PoolPlan, TellsWhatGivenWorkersCostWithoutPeerToPeer) {
  Json json = table_2();
  json["t_bcast_s"] = 1830;
  const auto pool = parse_pool(json.dump());
  std::vector<std::string> nine;
  for (int i = 0; i < 9; ++i) nine.push_back("w" + std::to_string(i));
  const PoolPlan plan = *plan_given_workers(*pool, nine);
  EXPECT_NEAR(plan.wait_s, 131.9, 0.5);
  EXPECT_NEAR(plan.cost_per_step, 8.432, 0.002);
  EXPECT_NEAR(plan.bubble_ratio, 131.9 / (3200 + 131.9), 2e-4);
  // Left to choose, it takes more.
  EXPECT_GT(planned(json).active.size(), 9u);
}

TEST(PoolPlan, TenMachinesOfTable2) {
  Json json = table_2();
  json["t_bcast_s"] = 1872;
  const double nine = 1.174 * 2 * 128 / (2 * 1600 - 1437);
  json["workers"] = {{{"name", "nine"}, {"mu", nine}, {"price_per_hour", 18.2205}},
                     {{"name", "tenth"}, {"mu", 0.064 * nine}, {"price_per_hour", 0.70}}};
  const PoolPlan plan = *plan_given_workers(*parse_pool(json.dump()), {"nine", "tenth"});
  EXPECT_NEAR(plan.cost_per_step, 8.630, 0.004);
  EXPECT_NEAR(plan.wait_s, 84.1, 1.5);
}

TEST(PoolPlan, CountsTheLearner) {
  // Four A100 beside nine machines of $0.6645 cost what nine of $2.0244 do without a learner.
  Json json = table_2();
  for (Json& worker : json["workers"]) worker["price_per_hour"] = 0.6645;
  const PoolPlan without = planned(json);
  json["learner_price_per_hour"] = 4 * 3.06;
  const PoolPlan with = planned(json);
  EXPECT_NEAR(with.cost_per_step, 8.098, 0.001);
  EXPECT_NEAR(with.cost_per_step - without.cost_per_step, 12.24 * 1600 / 3600, 1e-9);
  EXPECT_NE(describe(*parse_pool(json.dump()), with).find("learner and workers cost 8.098 per step"),
            std::string::npos);
  json["learner_price_per_hour"] = -1;
  EXPECT_NE(refusal(json).find("'learner_price_per_hour' is -1; it is at least 0"), std::string::npos);
}

TEST(PoolPlan, PrintsTheMembersOfTheContract) {
  const Json json = to_json(planned(table_2()));
  std::vector<std::string> names;
  for (const auto& [name, value] : json.items()) names.push_back(name);
  EXPECT_EQ(names, (std::vector<std::string>{"active", "bubble_ratio", "cost_per_step", "mu_min", "s_max_bound",
                                             "target", "wait_s"}));
}

TEST(PoolPlan, APoolThatIsTooSmallIsPlannedWithItsWait) {
  Json json = table_2();
  json["S"] = 2;
  json["workers"].erase(json["workers"].begin() + 5, json["workers"].end());
  const PoolPlan plan = planned(json);
  EXPECT_EQ(plan.active.size(), 5u);
  EXPECT_GT(plan.wait_s, 0);
  const std::string text = describe(*parse_pool(json.dump()), plan);
  EXPECT_NE(text.find("do not reach the target"), std::string::npos) << text;
  EXPECT_NE(text.find("S is 2: rollouts that lag by more are lost"), std::string::npos) << text;
}

TEST(PoolPlan, AlphaAndSMayBeAbsent) {
  Json json = table_2();
  json.erase("alpha");
  json.erase("S");
  EXPECT_EQ(planned(json).active.size(), 9u);
}

TEST(PoolPlan, RefusesWhatMakesNoSense) {
  EXPECT_NE(refusal("x").find("the pool is no JSON object"), std::string::npos);
  EXPECT_FALSE(parse_pool("{").has_value());
  EXPECT_FALSE(parse_pool(std::string(1000, '[')).has_value());
  const auto with = [](const char* pointer, const Json& value) {
    Json json = table_2();
    json[Json::json_pointer(pointer)] = value;
    return refusal(json);
  };
  EXPECT_NE(with("/T_s", 0).find("'T_s' is 0; it is above 0"), std::string::npos) << with("/T_s", 0);
  EXPECT_NE(with("/T_s", "10").find("'T_s' is no number"), std::string::npos);
  EXPECT_NE(with("/T_s", 1e300).find("at most"), std::string::npos);
  EXPECT_NE(with("/t_bcast_s", -1).find("'t_bcast_s' is -1"), std::string::npos);
  EXPECT_NE(with("/t_bcast_s", 3200).find("waits for every broadcast"), std::string::npos);
  EXPECT_NE(with("/kappa", 0).find("'kappa' is 0"), std::string::npos);
  EXPECT_NE(with("/kappa", 1.5).find("no whole number"), std::string::npos);
  EXPECT_NE(with("/alpha", 0).find("'alpha' is 0"), std::string::npos);
  EXPECT_NE(with("/tbcast_s", 1).find("the nearest is 't_bcast_s'"), std::string::npos);
  EXPECT_NE(with("/workers", Json::array()).find("'workers' is no list of 1 to"), std::string::npos);
  EXPECT_NE(with("/workers/3/name", "w2").find("there is another 'w2'"), std::string::npos);
  EXPECT_NE(with("/workers/3/name", "").find("'name' has 0 bytes"), std::string::npos);
  EXPECT_NE(with("/workers/3/mu", -1).find("workers[3]: 'mu' is -1"), std::string::npos);
  EXPECT_NE(with("/workers/3/mu", nullptr).find("workers[3]: 'mu' is no number"), std::string::npos);
  EXPECT_NE(with("/workers/3/price_per_hours", 1).find("the nearest is 'price_per_hour'"), std::string::npos);
  Json json = table_2();
  for (Json& worker : json["workers"]) worker["mu"] = 0;
  EXPECT_NE(refusal(json).find("no worker of the pool gives rollouts"), std::string::npos);
}

TEST(PoolPlan, NamesTheNearestWorker) {
  const auto plan = plan_given_workers(*parse_pool(table_2().dump()), {"w44"});
  ASSERT_FALSE(plan.has_value());
  EXPECT_NE(plan.error().message().find("the nearest is"), std::string::npos) << plan.error().message();
}

}  // namespace
}  // namespace weightcast
