#include "transport/core/origin/members/forecast_watch.h"

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

struct ForecastWatchTest : testing::Test {
  ForecastWatch watch;
  Instant now{1h};

  std::vector<ForecastWatch::Miss> receives(std::uint32_t member, double seconds, std::uint64_t bytes = kBytes) {
    return watch.handle_received(now, plan, payload, PeerId{member}, bytes, seconds);
  }
  Plan plan = chain_of(4);
  PayloadId payload = kPayload;
};

TEST_F(ForecastWatchTest, FindsTheEdgeThatWasSlowAndNotThoseBelow) {
  EXPECT_TRUE(receives(1, 10.1).empty());
  const auto misses = receives(2, 40);
  ASSERT_EQ(misses.size(), 1u);
  EXPECT_EQ(misses[0].member, PeerId{2});
  EXPECT_THAT(misses[0].parents, ElementsAre(PeerId{1}));
  EXPECT_EQ(misses[0].planned, Rate{10e6});
  EXPECT_EQ(misses[0].reached, Rate{2.5e6});
  EXPECT_TRUE(misses[0].first);
  EXPECT_TRUE(receives(3, 40).empty());
}

TEST_F(ForecastWatchTest, WaitsForTheParentWhoseDiskIsSlower) {
  EXPECT_TRUE(receives(2, 40).empty()) << "its parent may have been as slow";
  const auto misses = receives(1, 40);
  ASSERT_EQ(misses.size(), 1u);
  EXPECT_EQ(misses[0].member, PeerId{1});
  EXPECT_THAT(misses[0].parents, ElementsAre(kOriginId));
  EXPECT_TRUE(watch.end(now, payload).empty());
}

TEST_F(ForecastWatchTest, DecidesWhenAParentHasItWhoSaysNothingOfItsTime) {
  EXPECT_TRUE(receives(2, 40).empty());
  EXPECT_EQ(watch.handle_has(now, payload, PeerId{1}).size(), 1u);
}

TEST_F(ForecastWatchTest, DecidesWhatIsLeftAtTheEnd) {
  EXPECT_TRUE(receives(3, 40).empty());
  ASSERT_EQ(watch.end(now, payload).size(), 1u);
  EXPECT_TRUE(watch.end(now, payload).empty());
}

TEST_F(ForecastWatchTest, SaysWhichMissIsTheFirstOfAPayload) {
  for (const std::uint32_t member : {1, 3}) EXPECT_TRUE(receives(member, 10).empty());
  EXPECT_TRUE(receives(2, 40).at(0).first);
  EXPECT_FALSE(receives(4, 40).at(0).first);
}

TEST_F(ForecastWatchTest, DoesNotSayAgainWhatMissesAsItDidBefore) {
  EXPECT_EQ(receives(1, 40).size(), 1u);
  payload = Version{2};
  EXPECT_TRUE(receives(1, 45).empty());
  payload = Version{3};
  EXPECT_EQ(receives(1, 90).size(), 1u) << "it is far slower now";
  payload = Version{4};
  plan.rates[0] = Rate{4e6};
  EXPECT_EQ(receives(1, 90).size(), 1u) << "another plan, which misses as well";
  payload = Version{5};
  now += ForecastWatch::kKnownFor + 1s;
  EXPECT_EQ(receives(1, 90).size(), 1u);
}

TEST_F(ForecastWatchTest, AllowsAFactorAndHalfASecond) {
  EXPECT_TRUE(receives(1, 14.9).empty());
  EXPECT_TRUE(receives(1, 0.5, kBytes / 100).empty());
  EXPECT_EQ(receives(1, 15.1).size(), 1u);
}

TEST_F(ForecastWatchTest, BlamesNobodyWhileTheOriginMadeThePayload) {
  watch.handle_made(payload, 30s);
  EXPECT_TRUE(receives(1, 31).empty());
  EXPECT_EQ(receives(1, 50).size(), 1u);
}

TEST_F(ForecastWatchTest, KnowsNothingOfWhoIsNotPlanned) { EXPECT_TRUE(receives(9, 1000).empty()); }

TEST_F(ForecastWatchTest, ForgetsTheOldestPayloads) {
  EXPECT_TRUE(receives(2, 40).empty());
  for (std::uint64_t i = 2; i < 2 + ForecastWatch::kPayloadsMax; ++i) watch.handle_made(Version{i}, 1s);
  EXPECT_TRUE(watch.end(now, payload).empty());
}

}  // namespace
}  // namespace weightcast
