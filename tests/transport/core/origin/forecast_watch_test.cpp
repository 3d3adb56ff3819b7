#include "transport/core/origin/forecast_watch.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace weightcast {
namespace {

using namespace std::chrono_literals;
using testing::ElementsAre;

constexpr PayloadId kPayload = Version{1};
constexpr std::uint64_t kBytes = 100'000'000;

/// The origin feeds member 1, that one member 2, and so on; all at 10 MB/s, so that the payload takes 10 s.
Plan chain_of(std::uint32_t members) {
  Plan plan;
  plan.topology = Topology::kChain;
  StripePlan& stripe = plan.stripes.emplace_back();
  for (std::uint32_t i = 1; i <= members; ++i) {
    plan.members.push_back(PeerId{i});
    stripe.parents.push_back(PeerId{i - 1});
    plan.rates.push_back(Rate{10e6});
  }
  return plan;
}

TEST(ForecastWatch, FindsTheEdgeThatWasSlowAndNotThoseBelow) {
  ForecastWatch watch;
  const Plan plan = chain_of(4);
  EXPECT_FALSE(watch.handle_received(plan, kPayload, PeerId{1}, kBytes, 10.1).has_value());
  const auto miss = watch.handle_received(plan, kPayload, PeerId{2}, kBytes, 40);
  ASSERT_TRUE(miss.has_value());
  EXPECT_THAT(miss->parents, ElementsAre(PeerId{1}));
  EXPECT_EQ(miss->planned, Rate{10e6});
  EXPECT_EQ(miss->reached, Rate{2.5e6});
  EXPECT_TRUE(miss->first);
  EXPECT_FALSE(watch.handle_received(plan, kPayload, PeerId{3}, kBytes, 40).has_value());
}

TEST(ForecastWatch, SaysWhichMissIsTheFirstOfAPayload) {
  ForecastWatch watch;
  const Plan plan = chain_of(4);
  EXPECT_TRUE(watch.handle_received(plan, kPayload, PeerId{2}, kBytes, 40)->first);
  EXPECT_FALSE(watch.handle_received(plan, kPayload, PeerId{4}, kBytes, 40)->first);
  watch.forget(kPayload);
  EXPECT_TRUE(watch.handle_received(plan, kPayload, PeerId{4}, kBytes, 40)->first);
}

TEST(ForecastWatch, AllowsAFactorAndHalfASecond) {
  ForecastWatch watch;
  const Plan plan = chain_of(1);
  EXPECT_FALSE(watch.handle_received(plan, kPayload, PeerId{1}, kBytes, 14.9).has_value());
  EXPECT_FALSE(watch.handle_received(plan, kPayload, PeerId{1}, kBytes / 100, 0.5).has_value());
  EXPECT_TRUE(watch.handle_received(plan, kPayload, PeerId{1}, kBytes, 15.1).has_value());
}

TEST(ForecastWatch, BlamesNobodyWhileTheOriginMadeThePayload) {
  ForecastWatch watch;
  watch.handle_made(kPayload, 30s);
  EXPECT_FALSE(watch.handle_received(chain_of(1), kPayload, PeerId{1}, kBytes, 31).has_value());
  EXPECT_TRUE(watch.handle_received(chain_of(1), kPayload, PeerId{1}, kBytes, 50).has_value());
}

TEST(ForecastWatch, KnowsNothingOfWhoIsNotPlanned) {
  ForecastWatch watch;
  EXPECT_FALSE(watch.handle_received(chain_of(1), kPayload, PeerId{9}, kBytes, 1000).has_value());
}

}  // namespace
}  // namespace weightcast
