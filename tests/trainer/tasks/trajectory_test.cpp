#include "trainer/tasks/trajectory/trajectory.h"

#include <gtest/gtest.h>

#include <limits>
#include <set>

#include "tests/trainer/tasks/trajectory_fixture.h"

namespace weightcast {
namespace {

constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
constexpr float kInfinity = std::numeric_limits<float>::infinity();

/// Versions 3, 5, 6 and 7 were published, 4 was not, and the learner is at 8.
VersionStanding standing_of(Version version) {
  if (version > Version{8}) return VersionStanding::kUnknown;
  const bool published = version >= Version{5} && version <= Version{7};
  return published || version == Version{3} ? VersionStanding::kPublished : VersionStanding::kNeverPublished;
}

struct Damage {
  TrajectoryFault fault;
  std::string_view detail;  // a part of it
  std::function<void(Trajectory&)> make;
};

std::vector<Damage> damages() {
  using F = TrajectoryFault;
  using T = Trajectory;
  return {
      {F::kNoWorker, "'worker' is empty", [](T& t) { t.worker.clear(); }},
      {F::kNoGroup, "'group' is empty", [](T& t) { t.group.clear(); }},
      {F::kOtherTask, "'gsm8k'", [](T& t) { t.task = "gsm8k"; }},
      {F::kOtherModel, "'other'", [](T& t) { t.model_digest = "other"; }},
      {F::kOtherModel, "''", [](T& t) { t.model_digest.clear(); }},
      {F::kOtherTokenizer, "'other'", [](T& t) { t.tokenizer_digest = "other"; }},
      {F::kNoTokens, "'tokens' is empty", [](T& t) { t.tokens.clear(); }},
      {F::kTooManyTokens, "9 tokens, of at most 8", [](T& t) { t.tokens.resize(9); }},
      {F::kTokenOutOfRange, "tokens[3] is 100", [](T& t) { t.tokens[3] = kFixtureVocab; }},
      {F::kTokenOutOfRange, "tokens[0] is -1", [](T& t) { t.tokens[0] = -1; }},
      {F::kMaskLength, "5 values for 6 tokens", [](T& t) { t.response_mask.pop_back(); }},
      {F::kMaskLength, "7 values for 6 tokens", [](T& t) { t.response_mask.push_back(0); }},
      {F::kMaskLength, "0 values", [](T& t) { t.response_mask.clear(); }},
      {F::kMaskValue, "response_mask[2] is 2", [](T& t) { t.response_mask[2] = 2; }},
      {F::kNothingSampled, "marks no token", [](T& t) { t.response_mask.assign(6, 0); }},
      {F::kLogprobsMissing, "behaviour_logprobs = recompute", [](T& t) { t.logprobs.clear(); }},
      {F::kLogprobsLength, "2 values for 3", [](T& t) { t.logprobs.pop_back(); }},
      {F::kLogprobsLength, "4 values for 3", [](T& t) { t.logprobs.push_back(-1); }},
      {F::kLogprobNotFinite, "logprobs[1] is nan", [](T& t) { t.logprobs[1] = kNan; }},
      {F::kLogprobNotFinite, "logprobs[1] is -inf", [](T& t) { t.logprobs[1] = -kInfinity; }},
      {F::kLogprobPositive, "logprobs[2] is 0.25", [](T& t) { t.logprobs[2] = 0.25f; }},
      {F::kLogprobTooSmall, "logprobs[0] is -1e+30", [](T& t) { t.logprobs[0] = -1e30f; }},
      {F::kLogprobTooSmall, "logprobs[2] is -100001; nothing below -100000", [](T& t) { t.logprobs[2] = -100001; }},
      {F::kVersionsMissing, "'version_runs' is empty", [](T& t) { t.version_runs.clear(); }},
      {F::kVersionsLength, "leave 1 of 3", [](T& t) { t.version_runs.pop_back(); }},
      {F::kVersionsLength, "has 0 tokens", [](T& t) { t.version_runs[0].tokens = 0; }},
      {F::kVersionsLength, "has 2 tokens, and 1", [](T& t) { t.version_runs[1].tokens = 2; }},
      {F::kVersionsLength, "18446744073709551615", [](T& t) { t.version_runs[1].tokens = ~std::uint64_t{0}; }},
      {F::kVersionUnknown, "version 9 is later", [](T& t) { t.version_runs[1].version = Version{9}; }},
      {F::kVersionNeverPublished, "version 4 was never", [](T& t) { t.version_runs[0].version = Version{4}; }},
      {F::kVersionNeverPublished, "version 0 was never", [](T& t) { t.version_runs[0].version = kNoVersion; }},
      {F::kOldestVersionWrong, "is 6, the oldest of the runs 5", [](T& t) { t.oldest_version = Version{6}; }},
      {F::kOldestVersionWrong, "is 3, the oldest of the runs 5", [](T& t) { t.oldest_version = Version{3}; }},
      {F::kRewardNotFinite, "'reward' is nan", [](T& t) { t.reward = kNan; }},
      {F::kRewardNotFinite, "'reward' is inf", [](T& t) { t.reward = kInfinity; }},
      {F::kRewardTooLarge, "'reward' is 1e+300", [](T& t) { t.reward = 1e300; }},
      {F::kRewardTooLarge, "'reward' is -1000001, and at most 1000000", [](T& t) { t.reward = -1000001; }},
      {F::kTurnsDisagreeWithMask, "turns[0] is [1, 4)", [](T& t) { t.turns[0].begin = 1; }},
      {F::kTurnsDisagreeWithMask, "turns[0] is [2, 5)", [](T& t) { t.turns[0].end = 5; }},
      {F::kTurnsDisagreeWithMask, "turns[0] is [2, 2)", [](T& t) { t.turns[0].end = 2; }},
      {F::kTurnsDisagreeWithMask, "no turn has the sampled tokens [5, 6)", [](T& t) { t.turns.pop_back(); }},
      {F::kTurnsDisagreeWithMask, "turns[2] is [5, 6)",
       [](T& t) {
         t.turns.push_back({5, 6, 0});
       }},
      {F::kTurnRewardNotFinite, "turns[1] is nan", [](T& t) { t.turns[1].reward = kNan; }},
      {F::kTurnRewardTooLarge, "turns[0] is -1e+300", [](T& t) { t.turns[0].reward = -1e300; }},
      {F::kTurnRewardsSum, "add up to 0.75", [](T& t) { t.reward = 0.5; }},
      {F::kMetadataTooLarge, "of at most 200", [](T& t) { t.metadata["x"] = std::string(200, 'x'); }},
      {F::kMetadataTooLarge, "of at most 200", [](T& t) { t.group.assign(200, 'x'); }},
  };
}

TEST(Trajectory, AcceptsAValidOne) {
  EXPECT_FALSE(check_trajectory(valid_trajectory(), rules_of_fixture(), standing_of).has_value());
}

TEST(Trajectory, AcceptsOneWithoutTurns) {
  Trajectory t = valid_trajectory();
  t.turns.clear();
  t.reward = -3;
  EXPECT_FALSE(check_trajectory(t, rules_of_fixture(), standing_of).has_value());
}

TEST(Trajectory, AcceptsTwoAnswersThatFollowEachOther) {
  Trajectory t = valid_trajectory();
  t.turns = {{2, 3, 0.5}, {3, 4, 0}, {5, 6, 0.25}};
  EXPECT_FALSE(check_trajectory(t, rules_of_fixture(), standing_of).has_value());
}

TEST(Trajectory, AcceptsNoLogprobsWhereTheLearnerRecomputesThem) {
  Trajectory t = valid_trajectory();
  t.logprobs.clear();
  TrajectoryRules rules = rules_of_fixture();
  rules.recompute_logprobs = true;
  EXPECT_FALSE(check_trajectory(t, rules, standing_of).has_value());
  t.logprobs = {-1};
  EXPECT_EQ(check_trajectory(t, rules, standing_of)->fault, TrajectoryFault::kLogprobsLength);
}

TEST(Trajectory, AcceptsRewardsThatWereAddedInSinglePrecision) {
  Trajectory t = valid_trajectory();
  t.turns = {{2, 4, 10.9f}, {5, 6, -0.1f}};
  t.reward = static_cast<double>(10.9f + -0.1f);
  EXPECT_FALSE(check_trajectory(t, rules_of_fixture(), standing_of).has_value());
}

TEST(Trajectory, AcceptsNumbersAtTheirBounds) {
  Trajectory t = valid_trajectory();
  t.logprobs[0] = TrajectoryRules::kLogprobMin;
  t.turns = {{2, 4, 0}, {5, 6, -TrajectoryRules::kRewardMax}};
  t.reward = -TrajectoryRules::kRewardMax;
  EXPECT_FALSE(check_trajectory(t, rules_of_fixture(), standing_of).has_value());
}

TEST(Trajectory, RefusesEachDamageForItsReason) {
  std::set<TrajectoryFault> seen;
  for (const Damage& damage : damages()) {
    Trajectory t = valid_trajectory();
    damage.make(t);
    const auto refusal = check_trajectory(t, rules_of_fixture(), standing_of);
    ASSERT_TRUE(refusal.has_value()) << damage.detail;
    EXPECT_EQ(to_string(refusal->fault), to_string(damage.fault));
    EXPECT_NE(refusal->detail.find(damage.detail), std::string::npos) << refusal->detail;
    seen.insert(damage.fault);
  }
  EXPECT_EQ(seen.size(), kTrajectoryFaultCount) << "a reason has no test";
}

TEST(Trajectory, EveryReasonHasANameOfItsOwn) {
  std::set<std::string_view> names;
  for (std::size_t i = 0; i < kTrajectoryFaultCount; ++i) names.insert(to_string(static_cast<TrajectoryFault>(i)));
  EXPECT_EQ(names.size(), kTrajectoryFaultCount);
  EXPECT_EQ(names.count("unknown"), 0u);
}

TEST(Trajectory, SizeCountsWhatItHolds) {
  Trajectory t = valid_trajectory();
  const std::size_t before = t.size_bytes();
  t.tokens.resize(1006);
  EXPECT_EQ(t.size_bytes(), before + 4000);
}

}  // namespace
}  // namespace weightcast
