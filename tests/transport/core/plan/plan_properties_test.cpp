#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <algorithm>
#include <bit>

#include "plan_fixture.h"
#include "proto/limits.h"
#include "transport/core/plan/plan.h"
#include "transport/core/plan/plan_evaluate.h"

namespace weightcast {
namespace {

RC_GTEST_PROP(PlanProperty, IsSoundAndNeverFasterThanTheBound, ()) {
  const PlanRequest request = any_request(*any_topology());
  const Plan plan = make_plan(request);
  assert_sound(plan, request);
  assert_interior_in_one_stripe(plan);
  RC_ASSERT(to_seconds(plan.predicted_t100) >= to_seconds(plan.bound) * (1 - 1e-6));
  RC_ASSERT(plan.predicted(0.5) <= plan.predicted(0.9));
  RC_ASSERT(plan.predicted(1.0) == plan.predicted_t100);
}

RC_GTEST_PROP(PlanProperty, IsTheSameForTheSameRequest, ()) {
  const PlanRequest request = any_request(*any_topology());
  const Plan a = make_plan(request), b = make_plan(request);
  RC_ASSERT(a.topology == b.topology);
  RC_ASSERT(a.chunk_bytes == b.chunk_bytes);
  RC_ASSERT(a.stripes.size() == b.stripes.size());
  for (std::size_t s = 0; s < a.stripes.size(); ++s) RC_ASSERT(a.stripes[s].parents == b.stripes[s].parents);
  RC_ASSERT(a.finish == b.finish);
}

RC_GTEST_PROP(PlanProperty, NoLinkIsPredictedToCarryMoreThanItCan, ()) {
  const PlanRequest request = any_request(*any_topology());
  const Plan plan = make_plan(request);
  for (std::size_t i = 0; i < plan.members.size(); ++i) {
    const Rate down = request.members[i].downlink;
    if (down.limited()) RC_ASSERT(plan.rates[i].bytes_per_s <= down.bytes_per_s * (1 + 1e-9));
  }
  if (plan.stripes.size() != 1) return;
  std::map<PeerId, double> sent;
  for (std::size_t i = 0; i < plan.members.size(); ++i) sent[plan.stripes[0].parents[i]] += plan.rates[i].bytes_per_s;
  if (request.origin_uplink.limited()) RC_ASSERT(sent[kOriginId] <= request.origin_uplink.bytes_per_s * (1 + 1e-9));
  for (const PlanMember& member : request.members) {
    if (member.uplink.limited()) RC_ASSERT(sent[member.id] <= member.uplink.bytes_per_s * (1 + 1e-9));
  }
}

RC_GTEST_PROP(PlanProperty, AutoIsNotClearlySlowerThanAnyTopology, ()) {
  PlanRequest request = any_request(Topology::kAuto);
  const Plan best = make_plan(request);
  for (const Topology topology : {Topology::kStar, Topology::kChain, Topology::kTree, Topology::kStriped}) {
    request.topology = topology;
    RC_ASSERT(to_seconds(best.predicted_t100) <= to_seconds(make_plan(request).predicted_t100) * 1.01 + 1e-9);
  }
}

RC_GTEST_PROP(PlanProperty, ChainsForkOnlyForMembersThatCannotRelay, ()) {
  const PlanRequest request = any_request(Topology::kChain);
  const Plan plan = make_plan(request);
  std::map<PeerId, int> relays_fed;
  for (std::size_t i = 0; i < plan.members.size(); ++i) {
    if (request.members[i].can_relay) ++relays_fed[plan.stripes[0].parents[i]];
  }
  relays_fed.erase(kOriginId);
  for (const auto& [feeder, fed] : relays_fed) RC_ASSERT(fed == 1);
}

RC_GTEST_PROP(PlanProperty, ChainTimeIsTheFormulaOfTheDesignForAnyEqualMembers, ()) {
  PlanRequest request = echo_request(*rc::gen::inRange(3u, 100u), Topology::kChain);
  request.chunk_bytes = std::uint32_t{1} << *rc::gen::inRange(12, 21);
  request.hop_delay = std::chrono::microseconds(*rc::gen::inRange(0, 50'000));
  const double b = 12.5e6, chunk = *request.chunk_bytes;
  const auto depth = static_cast<double>((request.members.size() + 2) / 3);  // m = 3
  const double expected = double(request.payload_bytes) / b + (depth - 1) * (chunk / b + to_seconds(request.hop_delay));
  RC_ASSERT(std::abs(to_seconds(make_plan(request).predicted_t100) - expected) < 1e-6);
}

RC_GTEST_PROP(ChunkSize, IsWithinLimitsForEveryPayloadAndDepth, ()) {
  const auto payload = std::uint64_t{1} << *rc::gen::inRange(0, 45);
  const auto depth = *rc::gen::inRange(1u, 10'001u);
  const auto stripes = *rc::gen::inRange(1u, 65u);
  const std::uint32_t chunk = choose_chunk_bytes(payload, depth, stripes);
  RC_ASSERT(std::has_single_bit(chunk));
  RC_ASSERT(chunk >= kChunkBytesMin && chunk <= kChunkBytesMax);
  RC_ASSERT((payload + chunk - 1) / chunk <= kChunksMax);
  if (payload >= kMiB) RC_ASSERT(chunk >= 16 * kKiB);
  if (chunk > 16 * kKiB && chunk <= kMiB && payload / chunk < kChunksMax / 2) {
    RC_ASSERT(double(std::max(depth, 2u) - 1) * stripes * chunk <= 0.008 * double(payload));
  }
}

TEST(ChunkSize, IsWhatTheLimitsSayAtTheEnds) {
  EXPECT_EQ(choose_chunk_bytes(0, 1, 1), 4 * kKiB);
  EXPECT_EQ(choose_chunk_bytes(64 * kMiB, 8, 1), 64 * kKiB);  // 7 * 64 KiB is 0.68 % of it, twice as much 1.37 %
  EXPECT_EQ(choose_chunk_bytes(kGiB, 1, 1), kMiB);
  EXPECT_EQ(choose_chunk_bytes(kPayloadBytesMax, 10'000, 64), kChunkBytesMax);
}

TEST(Evaluate, SharesAnUplinkMaxMinAndHoldsBackWhatIsBelow) {
  // origin (90) feeds 1 and 2; 1 (up 30) feeds 3 and 4; 2 takes only 10, so 1 gets 80; 3 takes only 5, so 4 gets 25.
  PlanNetwork network{.uplink = {90, 30, 1, 1, 1},
                      .downlink = {0, 100, 10, 5, 100},
                      .can_relay = std::vector<bool>(5, true),
                      .payload_bytes = 1000,
                      .hop_s = 2};
  const Forecast forecast = evaluate(network, {StripeTree{1, {0, 0, 0, 1, 1}}}, 40);
  const std::vector<double> rates{80, 10, 5, 25};
  for (std::size_t i = 0; i < rates.size(); ++i) EXPECT_DOUBLE_EQ(forecast.rates[i], rates[i]);
  EXPECT_DOUBLE_EQ(forecast.finish_s[0], 1000 / 80.0);
  EXPECT_DOUBLE_EQ(forecast.finish_s[2], 40 / 80.0 + 2 + 1000 / 5.0);
  EXPECT_DOUBLE_EQ(forecast.t100_s, 40 / 80.0 + 2 + 1000 / 5.0);
}

TEST(Evaluate, SharesInProportionToTheWeightsOfTheStripes) {
  // One member, both stripes from the origin: 3 of 4 chunks in the first, so both end at once.
  PlanNetwork network{
      .uplink = {100, 1}, .downlink = {0, 80}, .can_relay = {true, true}, .payload_bytes = 1600, .hop_s = 0};
  const Forecast forecast = evaluate(network, {StripeTree{3, {0, 0}}, StripeTree{1, {0, 0}}}, 1);
  EXPECT_DOUBLE_EQ(forecast.rates[0], 80);
  EXPECT_DOUBLE_EQ(forecast.t100_s, 20);
}

TEST(Bound, CountsOnlyUplinksThatCanBeUsed) {
  PlanNetwork network{.uplink = {10, 10, 1000},
                      .downlink = {0, 100, 100},
                      .can_relay = {true, true, false},
                      .payload_bytes = 100,
                      .hop_s = 0};
  EXPECT_DOUBLE_EQ(bound_s(network), 10);
  network.uplink[0] = 1000;
  EXPECT_DOUBLE_EQ(bound_s(network), 1);
  network.uplink[0] = 90;  // (90 + 10) / 2
  EXPECT_DOUBLE_EQ(bound_s(network), 2);
}

}  // namespace
}  // namespace weightcast
