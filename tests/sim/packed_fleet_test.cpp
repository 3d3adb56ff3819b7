// Whole stories of full payloads that travel packed, told by cores in a simulation.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/sim/fleet.h"

namespace weightcast::sim {
namespace {

using namespace std::chrono_literals;
using testing::Contains;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::Not;

constexpr std::uint32_t kPackedChunks = 66;

PayloadId packed(std::uint64_t version) { return packed_of(Version{version}); }

OriginConfig origin_config(Rate uplink = Rate::bits(100e6), Packing packing = Packing::kAuto) {
  OriginConfig config = chain_config();
  config.uplink = uplink;
  config.packing = packing;
  config.pack_bytes_per_s = 1.2e9;
  return config;
}

WorkerConfig worker_config(Rate rate = Rate::bits(100e6)) {
  WorkerConfig config;
  config.uplink = config.downlink = rate;
  config.unpack_bytes_per_s = 2e9;
  return config;
}

std::uint32_t chunks_of(PayloadId payload) { return payload.is_packed() ? kPackedChunks : 2; }

struct PackedFleet : ChainOfTwo {
  PackedFleet() : ChainOfTwo(chunks_of, origin_config(), worker_config()) {}
};

/// What one worker on such a link receives of a first version.
std::vector<PayloadId> first_payloads(const OriginConfig& config, const WorkerConfig& worker) {
  Fleet fleet(config, chunks_of);
  Fleet::Node& w = fleet.add("w", worker);
  EXPECT_TRUE(fleet.run_until([&] { return w.worker->joined(); }));
  EXPECT_TRUE(fleet.install(1, kChunks));
  return fleet.payloads_to("w");
}

TEST_F(PackedFleet, FirstVersionTravelsPackedFromParentToChild) {
  publish(1);
  EXPECT_THAT(fleet.payloads_to("a"), ElementsAre(packed(1)));
  EXPECT_THAT(fleet.payloads_to("b"), ElementsAre(packed(1)));
  EXPECT_EQ(fleet.deliveries_to("b"), kPackedChunks);
  EXPECT_GT(std::ranges::count_if(fleet.deliveries(), [](const auto& d) { return d.from == "a" && d.to == "b"; }), 0);
  const auto progress = fleet.origin().publications().progress(Version{1});
  EXPECT_EQ(progress->kind, PayloadKind::kPacked);
  EXPECT_EQ(fleet.member("a").installed_path, CatchUpPath::kPacked);
  publish(2);
  EXPECT_THAT(fleet.payloads_to("a"), ElementsAre(packed(1), patch(1, 2)));
}

TEST(Packing, IsTriedOnlyWhereSendingTakesLongerByRatesThatAreKnown) {
  const WorkerConfig slow = worker_config(), fast = worker_config(Rate::bits(10e9)), unknown = worker_config(Rate{});
  EXPECT_THAT(first_payloads(origin_config(), slow), ElementsAre(packed(1)));
  EXPECT_THAT(first_payloads(origin_config(Rate::bits(10e9)), fast), ElementsAre(full(1)));
  EXPECT_THAT(first_payloads(origin_config(), unknown), ElementsAre(full(1)));
  EXPECT_THAT(first_payloads(origin_config(Rate{}), slow), ElementsAre(full(1)));
  EXPECT_THAT(first_payloads(origin_config(Rate{}, Packing::kAlways), unknown), ElementsAre(packed(1)));
  WorkerConfig cannot_keep_up = slow;
  cannot_keep_up.unpack_bytes_per_s = 10e6;
  EXPECT_THAT(first_payloads(origin_config(), cannot_keep_up), ElementsAre(full(1)));
  WorkerConfig says_nothing = slow;
  says_nothing.unpack_bytes_per_s = 0;
  EXPECT_THAT(first_payloads(origin_config(), says_nothing), ElementsAre(full(1)));
  OriginConfig packs_slowly = origin_config();
  packs_slowly.pack_bytes_per_s = 10e6;
  EXPECT_THAT(first_payloads(packs_slowly, slow), ElementsAre(full(1)));
  EXPECT_THAT(first_payloads(origin_config(Rate::bits(100e6), Packing::kNever), slow), ElementsAre(full(1)));
}

TEST(Packing, IsTriedByRatesThatWereMeasured) {
  for (const bool slow : {true, false}) {
    OriginConfig config = origin_config(Rate{});
    config.pack_bytes_per_s = 100e6;
    Fleet fleet(config, chunks_of);
    Fleet::Node& w = fleet.add("w", worker_config(Rate{}));
    const Duration chunk_time = slow ? 5ms : 5us;  // 105 Mbit/s, and 105 Gbit/s
    for (const std::string& name : {config.name, w.name}) fleet.set_chunk_time(fleet[name], chunk_time);
    ASSERT_TRUE(fleet.run_until([&] { return fleet.origin().planned_uplink().limited(); }));
    ASSERT_TRUE(fleet.install(1, kChunks));
    EXPECT_THAT(fleet.payloads_to("w"), ElementsAre(slow ? packed(1) : full(1)));
  }
}

TEST(Packing, ThatIsOfNoUseIsTriedOncePerVersion) {
  int asked = 0;
  Fleet fleet(origin_config(), [&](PayloadId p) {
    asked += p.is_packed() ? 1 : 0;
    return 0u;
  });
  fleet.join("w", worker_config());
  for (std::uint64_t version = 1; version <= 2; ++version) {
    ASSERT_TRUE(fleet.install(version, kChunks));
  }
  fleet.add("late", worker_config());
  ASSERT_TRUE(fleet.run_until_installed(2));
  EXPECT_THAT(fleet.payloads_to("w"), ElementsAre(full(1), full(2)));
  EXPECT_THAT(fleet.payloads_to("late"), ElementsAre(full(2)));
  EXPECT_EQ(asked, 2);
}

TEST_F(PackedFleet, LateJoinerGetsWhatWasPackedForTheOthers) {
  publish(1);
  fleet.add("late", worker_config());
  ASSERT_TRUE(fleet.run_until_installed(1));
  EXPECT_THAT(fleet.payloads_to("late"), ElementsAre(packed(1)));
}

TEST_F(PackedFleet, WhoGetsTheVersionAsItIsGoesOnWithThat) {
  Fleet other(origin_config(Rate::bits(10e9)), chunks_of);
  Fleet::Node& fast = other.join("fast", worker_config(Rate::bits(10e9)));
  other.publish(1, kChunks);
  ASSERT_TRUE(other.run_until([&] { return fast.worker->intake().chunks_verified() > 10; }));
  other.add("slow", worker_config());
  ASSERT_TRUE(other.run_until_installed(1));
  EXPECT_THAT(other.payloads_to("fast"), ElementsAre(full(1)));
  EXPECT_THAT(other.payloads_to("slow"), ElementsAre(packed(1)));
}

TEST_F(PackedFleet, WorkerThatCannotUnpackGetsTheVersionAsItIs) {
  fleet.disk(a).damages_bases = true;  // nothing that is coded can be made into a version there
  publish(1);
  EXPECT_THAT(fleet.payloads_to("a"), ElementsAre(packed(1), full(1)));
  EXPECT_THAT(fleet.payloads_to("b"), Not(Contains(full(1))));
  fleet.disk(a).damages_bases = false;
  publish(2);
  EXPECT_THAT(fleet.payloads_to("a"), Contains(patch(1, 2)));
}

TEST_F(PackedFleet, WorkerWithoutRoomForBothGetsTheVersionAsItIs) {
  fleet.fill_disk(a);
  fleet.publish(1, kChunks);
  ASSERT_TRUE(fleet.run_until([&] { return !a.worker->last_error().empty(); }));
  fleet.clear_disk(a);
  ASSERT_TRUE(fleet.run_until_installed(1, 5s)) << "not ten seconds later, and the same again";
  EXPECT_THAT(fleet.payloads_to("a"), Contains(full(1)));
}

TEST_F(PackedFleet, IsForgottenWithTheNextVersion) {
  publish(1);
  EXPECT_TRUE(fleet.origin().holdings().contains(packed(1)));
  EXPECT_TRUE(a.worker->holdings().contains(packed(1)));
  publish(2);
  EXPECT_FALSE(fleet.origin().holdings().contains(packed(1)));
  EXPECT_FALSE(a.worker->holdings().contains(packed(1)));
  EXPECT_FALSE(b.worker->holdings().contains(packed(1)));
}

TEST_F(PackedFleet, WhoWouldGetItPackedWaitsUntilItIsTakenOver) {
  fleet.grow_versions(4);
  publish(1);
  EXPECT_THAT(fleet.payloads_to("a"), ElementsAre(packed(1)));
  EXPECT_THAT(fleet.payloads_to("b"), ElementsAre(packed(1)));
}

TEST_F(PackedFleet, WhatIsNotPackableIsSentWhileItIsTakenOver) {
  fleet.grow_versions(4);
  fleet.set_packable(false);
  fleet.publish(1, kChunks);
  ASSERT_TRUE(fleet.run_until([&] { return b.worker->intake().chunks_verified() > 0; }));
  EXPECT_TRUE(is_open(full(1)));
  ASSERT_TRUE(fleet.run_until_installed(1));
  EXPECT_THAT(fleet.payloads_to("b"), ElementsAre(full(1)));
  fleet.set_packable(true);
  fleet.add("late", worker_config());
  ASSERT_TRUE(fleet.run_until_installed(1));
  EXPECT_THAT(fleet.payloads_to("late"), ElementsAre(full(1))) << "nor later";
}

TEST_F(PackedFleet, RefusedVersionMayBePackableUnderItsNumberTheNextTime) {
  fleet.grow_versions(4);
  fleet.set_packable(false);
  fleet.refuse_versions(true);
  fleet.publish(1, kChunks);
  fleet.run_for(1s);
  fleet.set_packable(true);
  fleet.refuse_versions(false);
  publish(1);
  EXPECT_THAT(fleet.payloads_to("b"), Contains(packed(1)));
}

TEST_F(PackedFleet, ThatIsWithdrawnIsMadeUpForByTheVersionAsItIs) {
  fleet.grow_patches(4);
  fleet.withdraw_patches(true);
  publish(1);
  EXPECT_THAT(fleet.payloads_to("b"), ElementsAre(packed(1), full(1)));
  EXPECT_FALSE(fleet.origin().holdings().contains(packed(1)));
}

TEST_F(PackedFleet, WorkerThatRestartsInTheMiddleGetsAllOfIt) {
  fleet.grow_patches(4);
  fleet.publish(1, kChunks);
  ASSERT_TRUE(fleet.run_until([&] { return b.worker->intake().chunks_verified() > 10; }));
  fleet.kill(b);
  fleet.run_for(20ms);
  fleet.restart(b);
  ASSERT_TRUE(fleet.run_until_installed(1));
  EXPECT_THAT(fleet.payloads_to("b"), ElementsAre(packed(1)));
}

}  // namespace
}  // namespace weightcast::sim
