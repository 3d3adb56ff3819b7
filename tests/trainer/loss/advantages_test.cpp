#include "trainer/loss/advantages.h"

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <cmath>
#include <limits>

#include "tests/trainer/tasks/trajectory_fixture.h"
#include "trainer/loss/gae.h"

namespace weightcast {
namespace {

using Values = std::vector<double>;
using Groups = std::vector<std::size_t>;

Values of(const Values& rewards, const Groups& groups, AdvantageNorm norm) {
  return *advantages(rewards, groups, norm);
}

void expect_near(const Values& got, const Values& wanted) {
  ASSERT_EQ(got.size(), wanted.size());
  for (std::size_t i = 0; i < got.size(); ++i) EXPECT_NEAR(got[i], wanted[i], 1e-12) << i;
}

/// SkyRL's test_ppo_utils.py.
TEST(Advantages, ReferenceOfSkyRl) {
  expect_near(of({6, 3, 9, 12}, {0, 0, 1, 1}, AdvantageNorm::kNone), {1.5, -1.5, -1.5, 1.5});
}

TEST(Advantages, ByHand) {
  const Values rewards{1, 0, 0, 4, 2};
  const Groups groups{7, 7, 7, 2, 2};
  const double std_3 = std::sqrt(1.0 / 3), std_2 = std::sqrt(2.0);
  expect_near(of(rewards, groups, AdvantageNorm::kStd),
              {(2.0 / 3) / (std_3 + 1e-6), (-1.0 / 3) / (std_3 + 1e-6), (-1.0 / 3) / (std_3 + 1e-6), 1 / (std_2 + 1e-6),
               -1 / (std_2 + 1e-6)});
  expect_near(of(rewards, groups, AdvantageNorm::kRloo), {1, -0.5, -0.5, 2, -2});
  const double std_5 = std::sqrt((0.16 + 1.96 * 2 + 6.76 + 0.36) / 4);
  expect_near(of(rewards, groups, AdvantageNorm::kBatch),
              {-0.4 / (std_5 + 1e-6), -1.4 / (std_5 + 1e-6), -1.4 / (std_5 + 1e-6), 2.6 / (std_5 + 1e-6),
               0.6 / (std_5 + 1e-6)});
}

TEST(Advantages, GroupsWithoutSignalGiveZeroExactly) {
  for (const auto norm : {AdvantageNorm::kStd, AdvantageNorm::kNone, AdvantageNorm::kRloo}) {
    EXPECT_EQ(of({0.1, 0.1, 0.1, 5}, {0, 0, 0, 1}, norm), (Values{0, 0, 0, 0}));
  }
  EXPECT_EQ(of({0.1, 0.1, 0.1}, {0, 1, 2}, AdvantageNorm::kBatch), (Values{0, 0, 0}));
  EXPECT_EQ(of({}, {}, AdvantageNorm::kStd), Values());
}

TEST(Advantages, RefusesBadInput) {
  EXPECT_EQ(advantages(Values{1}, Groups{}, AdvantageNorm::kStd).error().detail,
            "advantages: 1 rewards and 0 group ids");
  EXPECT_EQ(advantages(Values{1, std::nan("")}, Groups{0, 0}, AdvantageNorm::kStd).error().detail,
            "advantages: rewards[1] is nan");
  EXPECT_EQ(advantages(Values{1e200, -1e200}, Groups{0, 0}, AdvantageNorm::kStd).error().detail,
            "advantages: rewards[0] is 1e+200; they are at most 1e+30 in size");
  EXPECT_GT(of({1e30, -1e30}, {0, 0}, AdvantageNorm::kStd)[0], 0.7);
  EXPECT_EQ(parse_word<AdvantageNorm>("norm of advantages", "bach").error().detail,
            "'bach' is no norm of advantages; the nearest is 'batch' (all: std, none, rloo, batch)");
}

/// Mostly bounds, what lies just beyond them, and the ends of the types.
rc::Gen<double> any_number() {
  const double most = TrajectoryRules::kRewardMax, least = double{TrajectoryRules::kLogprobMin};
  return rc::gen::oneOf(
      rc::gen::element(0.0, -0.0, 1.0, -1.0, most, -most, std::nextafter(most, 0.0), 1.0001 * most, least,
                       1.0001 * least, 1e-300, 1e30, -1e30, 1e300, -1e300, 1.7e308, -1.7e308, HUGE_VAL, std::nan("")),
      rc::gen::map(rc::gen::inRange(-1000, 1000), [](int n) { return n / 7.0; }), rc::gen::arbitrary<double>());
}

bool all_finite(const Values& values) {
  return std::all_of(values.begin(), values.end(),
                     [](double v) { return std::isfinite(v) && std::isfinite(static_cast<float>(v)); });
}

RC_GTEST_PROP(Advantages, AreFiniteOfWhateverIsAdmitted, ()) {
  Values rewards, of_tokens;
  Groups groups;
  std::size_t tried = 0;
  while (rewards.size() < 2 && ++tried < 50) {
    for (std::size_t i = 0; i < 4; ++i) {
      Trajectory t = valid_trajectory();
      for (float& logprob : t.logprobs) logprob = static_cast<float>(-std::fabs(*any_number()));
      t.turns[0].reward = *any_number();
      t.turns[1].reward = *any_number();
      t.reward = *rc::gen::element(t.turns[0].reward + t.turns[1].reward, *any_number());
      if (*rc::gen::arbitrary<bool>()) t.turns.clear();
      if (check_trajectory(t, rules_of_fixture(), [](Version) { return VersionStanding::kPublished; })) continue;
      rewards.push_back(t.reward);
      groups.push_back(*rc::gen::inRange<std::size_t>(0, 2));
      for (const Turn& turn : t.turns) of_tokens.push_back(turn.reward);
    }
  }
  RC_PRE(rewards.size() >= 2);
  for (const auto norm : {AdvantageNorm::kStd, AdvantageNorm::kNone, AdvantageNorm::kRloo, AdvantageNorm::kBatch}) {
    const auto result = advantages(rewards, groups, norm);
    RC_ASSERT(result.has_value());
    RC_ASSERT(all_finite(*result));
  }
  const auto sequence = gae(of_tokens, std::nullopt, {}, {});
  RC_ASSERT(sequence.has_value());
  RC_ASSERT(all_finite(sequence->advantages));
  Values whitened = sequence->advantages;
  whiten(whitened, {});
  RC_ASSERT(all_finite(whitened));
}

}  // namespace
}  // namespace weightcast
