#include "trainer/tasks/trajectory/trajectory_builder.h"

#include <gtest/gtest.h>

namespace weightcast {
namespace {

using Tokens = std::vector<std::int32_t>;

/// Why a learner would refuse it; "" if it would not.
std::string fault_of(Trajectory t) {
  t.worker = "w";
  t.group = "g";
  TrajectoryRules rules;
  rules.vocab_size = 100;
  const auto refusal = check_trajectory(t, rules, [](Version) { return VersionStanding::kPublished; });
  return refusal ? refusal->detail : "";
}

TEST(TrajectoryBuilder, KeepsTurnsWithTheirRewards) {
  TrajectoryBuilder builder(Tokens{1, 2});
  builder.add_sampled(Tokens{3}, std::vector<float>{-0.1F}, Version{7});
  builder.add_sampled(Tokens{4, 5}, std::vector<float>{-0.2F, -0.3F}, Version{8});  // the weights changed within a turn
  builder.end_turn(0.5);
  builder.add_observation(Tokens{6, 7});
  EXPECT_EQ(builder.tokens(), (Tokens{1, 2, 3, 4, 5, 6, 7}));
  builder.add_sampled(Tokens{8}, std::vector<float>{-0.4F}, Version{8});
  builder.end_turn(-0.25);
  EXPECT_EQ(builder.sampled(), 4u);
  const Trajectory t = builder.finish();
  EXPECT_EQ(t.tokens, (Tokens{1, 2, 3, 4, 5, 6, 7, 8}));
  EXPECT_EQ(t.response_mask, (std::vector<std::uint8_t>{0, 0, 1, 1, 1, 0, 0, 1}));
  EXPECT_EQ(t.logprobs, (std::vector<float>{-0.1F, -0.2F, -0.3F, -0.4F}));
  EXPECT_EQ(t.version_runs, (std::vector<VersionRun>{{Version{7}, 1}, {Version{8}, 3}}));
  EXPECT_EQ(t.oldest_version, Version{7});
  EXPECT_EQ(t.turns, (std::vector<Turn>{{2, 5, 0.5}, {7, 8, -0.25}}));
  EXPECT_EQ(t.reward, 0.25);
  EXPECT_EQ(fault_of(t), "");
}

TEST(TrajectoryBuilder, ListsNoTurnsWhereThereIsOne) {
  TrajectoryBuilder builder(Tokens{1});
  builder.add_sampled(Tokens{3}, std::vector<float>{-0.1F}, Version{7});
  builder.end_turn(2);
  const Trajectory t = builder.finish();
  EXPECT_TRUE(t.turns.empty());
  EXPECT_EQ(t.reward, 2);
  EXPECT_EQ(fault_of(t), "");
}

TEST(TrajectoryBuilder, EndsTurnsThatNobodyRewarded) {
  TrajectoryBuilder builder(Tokens{1});
  builder.add_sampled(Tokens{3}, std::vector<float>{-0.1F}, Version{9});
  builder.add_observation(Tokens{4});
  builder.add_sampled(Tokens{5}, std::vector<float>{-0.1F}, Version{7});
  const Trajectory t = builder.finish();
  EXPECT_EQ(t.turns, (std::vector<Turn>{{1, 2, 0}, {3, 4, 0}}));
  EXPECT_EQ(t.oldest_version, Version{7});
  EXPECT_EQ(fault_of(t), "");
}

}  // namespace
}  // namespace weightcast
