#include "transport/core/origin/relays/pace_watch.h"

#include <gtest/gtest.h>

#include <functional>

namespace weightcast {
namespace {

using namespace std::chrono_literals;

constexpr PeerId kA{1}, kB{2}, kC{3}, kD{4};

/// Two chains: origin, A, B; origin, C, D. A payload of 1000 chunks.
struct PaceWatchTest : testing::Test {
  PaceWatchTest() {
    plan.members = {kA, kB, kC, kD};
    plan.stripes = {{1, {kOriginId, kA, kOriginId, kC}}};
  }
  /// Of the two only that of A and B is left.
  void keep_one_chain() {
    plan.members = {kA, kB};
    plan.stripes = {{1, {kOriginId, kA}}};
    has_all.resize(2);
  }
  /// For so long each member lacks what its function gives for the seconds since the beginning.
  std::vector<std::pair<PeerId, PeerId>> run(Duration lasts,
                                             const std::vector<std::function<double(double)>>& missing) {
    std::vector<std::pair<PeerId, PeerId>> found;
    for (const Instant end = now + lasts; now < end; now += 500ms) {
      for (std::size_t i = 0; i < missing.size(); ++i) {
        const double left = std::max(0.0, missing[i](to_seconds(now - start)));
        watch.handle_progress(now, plan.members[i], {static_cast<std::uint32_t>(left)});
      }
      for (const PaceWatch::Lag& lag : watch.lagging(now, plan, has_all)) found.push_back({lag.parent, lag.child});
    }
    return found;
  }
  static std::function<double(double)> at(double chunks_per_s) {
    return [=](double s) { return 1000 - chunks_per_s * s; };
  }

  Plan plan;
  PaceWatch watch;
  std::vector<PaceWatch::Known> has_all = std::vector<PaceWatch::Known>(4);
  Instant start{1h};
  Instant now = start;
};

TEST_F(PaceWatchTest, FindsTheRelayThatPassesOnAChunkNowAndThen) {
  const auto found = run(5s, {at(100), at(1), at(100), at(99)});
  ASSERT_FALSE(found.empty());
  for (const auto& edge : found) EXPECT_EQ(edge, std::pair(kA, kB));
}

TEST_F(PaceWatchTest, FindsItWithinThreeSecondsAndBeforeThereIsAnybodyToCompareWith) {
  keep_one_chain();
  EXPECT_FALSE(run(3s, {at(100), at(2)}).empty());
}

TEST_F(PaceWatchTest, ExpectsWhatThePlanPredictsAndWhatTheParentSaysThatItReceived) {
  keep_one_chain();
  has_all = {{.has_all = true}, {}};
  EXPECT_TRUE(run(5s, {at(0), at(2)}).empty()) << "for all that is known";
  has_all[1].predicted_chunks_per_s = 17;
  EXPECT_FALSE(run(1s, {at(0), at(2)}).empty());
  has_all[1].predicted_chunks_per_s = 15;
  EXPECT_TRUE(run(1s, {at(0), at(2)}).empty());
  watch.handle_received(kA, 100);
  EXPECT_FALSE(run(1s, {at(0), at(2)}).empty());
}

TEST_F(PaceWatchTest, ExpectsAnEighthOfThePaceAtWhichTheChildReceivedItsLastPayload) {
  keep_one_chain();
  has_all = {{.has_all = true}, {.before_chunks_per_s = 15}};
  EXPECT_TRUE(run(5s, {at(0), at(2)}).empty());
  has_all[1].before_chunks_per_s = 17;
  EXPECT_FALSE(run(1s, {at(0), at(2)}).empty());
}

TEST_F(PaceWatchTest, ThinksNothingOfAChildThatIsAsSlowAsThePlanPredicts) {
  EXPECT_FALSE(run(5s, {at(100), at(10), at(100), at(99)}).empty());
  has_all[1].predicted_chunks_per_s = 12;
  EXPECT_TRUE(run(5s, {at(100), at(10), at(100), at(99)}).empty());
  has_all[1].predicted_chunks_per_s = 30;
  EXPECT_FALSE(run(3s, {at(100), at(10), at(100), at(99)}).empty());
}

TEST_F(PaceWatchTest, ComparesTheLastOneWithThoseThatHadAllBeforeAHeartbeatCouldTell) {
  has_all = {{.has_all = true}, {}, {.has_all = true}, {.has_all = true}};
  const auto last_is_at_2 = [&](Duration lasts) { return run(lasts, {at(0), at(2), at(0), at(0)}); };
  EXPECT_TRUE(last_is_at_2(4s).empty()) << "for all that is known";
  for (const PeerId member : {kC, kD}) watch.handle_received(member, 100);
  const auto lags = last_is_at_2(1s);
  ASSERT_FALSE(lags.empty());
  EXPECT_EQ(lags.front(), std::pair(kA, kB));
  EXPECT_TRUE(watch.lagging(now, plan, has_all).front().far_behind);
  for (const PeerId member : {kC, kD}) watch.handle_received(member, 15);
  EXPECT_TRUE(last_is_at_2(1s).empty()) << "half of them were not much faster";
}

TEST_F(PaceWatchTest, ExpectsOfARelayThatItSharesItsUplinkAmongItsChildren) {
  plan.stripes = {{1, {kOriginId, kA, kA, kA}}};
  has_all[0].has_all = true;
  watch.handle_received(kA, 100);
  EXPECT_TRUE(run(5s, {at(0), at(5), at(5), at(5)}).empty());
  EXPECT_FALSE(run(5s, {at(0), at(3), at(3), at(3)}).empty());
  has_all[2].has_all = has_all[3].has_all = true;
  EXPECT_FALSE(run(5s, {at(0), at(5), at(0), at(0)}).empty()) << "the others lack nothing any more";
}

TEST_F(PaceWatchTest, NamesOnlyTheHighestOfTheEdgesThatWaitForOneAnother) {
  plan.stripes = {{1, {kOriginId, kA, kB, kC}}};
  const auto found = run(6s, {at(100), at(5), at(4), at(3)});
  ASSERT_FALSE(found.empty());
  for (const auto& edge : found) EXPECT_EQ(edge, std::pair(kA, kB));
}

TEST_F(PaceWatchTest, FindsTheRelayBehindWhichMostMembersGetADrip) {
  plan.stripes = {{1, {kOriginId, kA, kB, kC}}};
  has_all = {{.has_all = true}, {.has_all = true}, {}, {}};
  watch.handle_received(kA, 95);
  const auto found = run(6s, {at(0), at(0), at(3), at(2.9)});
  ASSERT_FALSE(found.empty()) << "who gets it from the origin tells the pace";
  for (const auto& edge : found) EXPECT_EQ(edge, std::pair(kB, kC));
}

TEST_F(PaceWatchTest, ThinksNothingOfAFleetThatIsSlowAsAWhole) {
  EXPECT_TRUE(run(20s, {at(3), at(2.9), at(3), at(2.8)}).empty());
}

TEST_F(PaceWatchTest, ThinksNothingOfAChildWhoseParentHasNoMoreThanIt) {
  EXPECT_TRUE(run(8s, {at(100), [](double s) { return 1000 - 100 * s; }, at(1), at(1)}).size() > 0)
      << "C gets far less from the origin than A does";
  watch = {};
  start = now;
  has_all[0].has_all = has_all[1].has_all = true;
  const auto found = run(8s, {at(0), at(0), at(1), at(1)});
  EXPECT_TRUE(found.empty()) << "and now nobody is faster";
}

TEST_F(PaceWatchTest, DoesNotJudgeByAChunkMoreOrLess) {
  EXPECT_TRUE(run(60s, {at(2), at(0.2), at(2), at(0.2)}).empty()) << "a chunk takes seconds";
}

TEST_F(PaceWatchTest, FindsARelayThatSaysThatItGetsNothingFromTheOrigin) {
  const auto found = run(5s, {at(1), at(1), at(100), at(99)});
  ASSERT_FALSE(found.empty());
  for (const auto& edge : found) EXPECT_EQ(edge, std::pair(kOriginId, kA));
}

TEST_F(PaceWatchTest, DoesNotJudgeByAWindowInWhichTheChildWasSilentOrMoved) {
  EXPECT_TRUE(run(1500ms, {at(100), at(1), at(100), at(99)}).empty());
  now += 2s;
  EXPECT_TRUE(run(1500ms, {at(100), at(1), at(100), at(99)}).empty()) << "it was silent";
  plan.stripes[0].parents[1] = kC;
  EXPECT_TRUE(run(2s, {at(100), at(1), at(100), at(99)}).empty()) << "it has just moved";
  EXPECT_FALSE(run(2s, {at(100), at(1), at(100), at(99)}).empty());
}

TEST_F(PaceWatchTest, FindsTheOneStripeThatIsWithheld) {
  plan.stripes = {{1, {kOriginId, kA, kOriginId, kC}}, {1, {kOriginId, kC, kOriginId, kA}}};
  std::vector<PaceWatch::Lag> found;
  for (; now < start + 5s; now += 500ms) {
    const auto left = static_cast<std::uint32_t>(1000 - 100 * to_seconds(now - start));
    for (const PeerId id : {kA, kC, kD}) watch.handle_progress(now, id, {left, left});
    watch.handle_progress(now, kB, {1000, left});
    for (const PaceWatch::Lag& lag : watch.lagging(now, plan, has_all)) found.push_back(lag);
  }
  ASSERT_FALSE(found.empty());
  EXPECT_EQ(found.front().parent, kA);
  EXPECT_EQ(found.front().child, kB);
  EXPECT_EQ(found.front().stripe, 0u);
}

TEST_F(PaceWatchTest, TakesAnyHeartbeats) {
  for (int i = 0; i < 1000; ++i) {
    watch.handle_progress(now, kA, {static_cast<std::uint32_t>(i * 7919)});
    watch.handle_progress(now, kB, {});
    watch.handle_progress(now, PeerId{99}, {1, 2, 3});
    (void)watch.lagging(now, plan, has_all);
    now += std::chrono::milliseconds(i % 700);
  }
  EXPECT_TRUE(watch.lagging(now, plan, has_all).empty());
}

}  // namespace
}  // namespace weightcast
