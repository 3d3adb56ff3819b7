#include "trainer/loss/advantages.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

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
            "advantages: rewards[0] is 1e+200; they are at most 1e+100 in size");
  EXPECT_GT(of({1e100, -1e100}, {0, 0}, AdvantageNorm::kStd)[0], 0.7);
  EXPECT_EQ(parse_advantage_norm("bach").error().detail,
            "'bach' is no norm of advantages; the nearest is 'batch' (all: std, none, rloo, batch)");
}

}  // namespace
}  // namespace weightcast
