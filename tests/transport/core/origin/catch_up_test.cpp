#include "transport/core/origin/catch_up.h"

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

namespace weightcast {
namespace {

constexpr std::uint64_t kFullBytes = 1'000'000;

void add(Holdings& holdings, PayloadId payload, std::uint64_t bytes) {
  auto manifest = std::make_shared<Manifest>();
  manifest->version = payload.version;
  manifest->base_version = payload.base;
  manifest->kind = payload.kind;
  manifest->payload_bytes = bytes;
  manifest->chunk_bytes = kChunkBytesMin;
  manifest->part_digests.resize(manifest->part_count());
  holdings.emplace(payload, Holding(manifest));
}

PayloadId patch(std::uint64_t base, std::uint64_t version) { return patch_of(Version{version}, Version{base}); }

/// Version 5 whole, and patches 1 -> 2 -> ... -> 5 of `bytes` each.
Holdings chain(std::uint64_t bytes) {
  Holdings holdings;
  add(holdings, Version{5}, kFullBytes);
  for (std::uint64_t v = 1; v < 5; ++v) add(holdings, patch(v, v + 1), bytes);
  return holdings;
}

CatchUpRequest request(std::uint64_t installed) {
  CatchUpRequest r;
  r.installed = Version{installed};
  r.latest = Version{5};
  r.full_bytes = kFullBytes;
  r.patches_max = 16;
  r.can_make = [](PayloadId) { return false; };
  return r;
}

TEST(CatchUp, WorkerWithoutAVersionGetsTheFullPayload) {
  EXPECT_EQ(choose_payload(chain(10), request(0)).next, PayloadId(Version{5}));
}

TEST(CatchUp, OneVersionBehindGetsThePatch) {
  const CatchUp way = choose_payload(chain(10), request(4));
  EXPECT_EQ(way.next, patch(4, 5));
  EXPECT_EQ(way.total_bytes, 10u);
}

TEST(CatchUp, FoldThatIsHeldGoesBeforeTheChain) {
  Holdings holdings = chain(10);
  add(holdings, patch(1, 5), 25);
  EXPECT_EQ(choose_payload(holdings, request(1)).next, patch(1, 5));
}

TEST(CatchUp, FoldThatCanBeMadeIsWaitedFor) {
  CatchUpRequest r = request(1);
  r.can_make = [](PayloadId p) { return p == patch(1, 5); };
  const CatchUp way = choose_payload(chain(10), r);
  EXPECT_TRUE(way.make);
  EXPECT_EQ(way.next, patch(1, 5));
}

TEST(CatchUp, WithoutAFoldStoredPatchesAreTakenInTurn) {
  const CatchUp way = choose_payload(chain(10), request(1));
  EXPECT_EQ(way.next, patch(1, 2));
  EXPECT_EQ(way.total_bytes, 40u);
}

TEST(CatchUp, ChainThatIsNearlyAsLargeAsTheFullPayloadIsNotTaken) {
  EXPECT_EQ(choose_payload(chain(149'000), request(1)).next, patch(1, 2));
  EXPECT_EQ(choose_payload(chain(150'000), request(1)).next, PayloadId(Version{5}));
}

TEST(CatchUp, ChainOfMorePatchesThanAllowedIsNotTaken) {
  CatchUpRequest r = request(1);
  r.patches_max = 3;
  EXPECT_EQ(choose_payload(chain(10), r).next, PayloadId(Version{5}));
  r.installed = Version{2};
  EXPECT_EQ(choose_payload(chain(10), r).next, patch(2, 3));
}

TEST(CatchUp, BrokenChainLeadsNowhere) {
  Holdings holdings = chain(10);
  holdings.erase(patch(3, 4));
  EXPECT_EQ(choose_payload(holdings, request(2)).next, PayloadId(Version{5}));
}

TEST(CatchUp, DamagedBaseGetsTheFullPayloadWhateverThereIs) {
  CatchUpRequest r = request(4);
  r.patches_fit = false;
  r.can_make = [](PayloadId) { return true; };
  EXPECT_EQ(choose_payload(chain(10), r).next, PayloadId(Version{5}));
  EXPECT_FALSE(choose_payload(chain(10), r).make);
}

TEST(CatchUp, FullPayloadIsPackedWhereThatIsHeld) {
  Holdings holdings = chain(10);
  add(holdings, packed_of(Version{5}), 660'000);
  const CatchUp way = choose_payload(holdings, request(0));
  EXPECT_EQ(way.next, packed_of(Version{5}));
  EXPECT_EQ(way.total_bytes, 660'000u);
  EXPECT_EQ(choose_payload(holdings, request(4)).next, patch(4, 5)) << "a patch goes before it";
  CatchUpRequest damaged = request(4);
  damaged.patches_fit = false;
  EXPECT_EQ(choose_payload(holdings, damaged).next, PayloadId(Version{5}));
}

TEST(CatchUp, PackedPayloadThatCanBeMadeIsWaitedForWhereNoPatchLeads) {
  CatchUpRequest r = request(0);
  r.can_make = [](PayloadId p) { return p.is_packed(); };
  const CatchUp way = choose_payload(chain(10), r);
  EXPECT_TRUE(way.make);
  EXPECT_EQ(way.next, packed_of(Version{5}));
  r.installed = Version{1};
  EXPECT_EQ(choose_payload(chain(10), r).next, patch(1, 2));
  EXPECT_EQ(choose_payload(chain(150'000), r).next, packed_of(Version{5})) << "nor a chain that is worth it";
}

/// Patches 1 -> 2 -> ... -> 5 of `bytes` each, and no full payload of version 5.
Holdings patches_alone(std::uint64_t bytes) {
  Holdings holdings = chain(bytes);
  holdings.erase(Version{5});
  return holdings;
}

TEST(CatchUp, FullPayloadThatIsNotHeldIsMadeOnlyWhereNoChainIsWorthIt) {
  CatchUpRequest r = request(1);
  r.can_make = [](PayloadId p) { return p.is_full(); };
  EXPECT_EQ(choose_payload(patches_alone(149'000), r).next, patch(1, 2));
  const CatchUp way = choose_payload(patches_alone(150'000), r);
  EXPECT_TRUE(way.make);
  EXPECT_EQ(way.next, PayloadId(Version{5}));
  EXPECT_EQ(way.total_bytes, kFullBytes);
  r.installed = kNoVersion;
  EXPECT_TRUE(choose_payload(patches_alone(10), r).make);
}

TEST(CatchUp, OlderFullPayloadTakesThePlaceOfOneThatWouldHaveToBeMade) {
  Holdings holdings = patches_alone(10);
  add(holdings, Version{3}, kFullBytes);
  CatchUpRequest r = request(0);
  r.can_make = [](PayloadId p) { return p.is_full(); };
  r.whole = {Version{2}, Version{3}};
  CatchUp way = choose_payload(holdings, r);
  EXPECT_EQ(way.next, PayloadId(Version{3}));
  EXPECT_FALSE(way.make);
  EXPECT_EQ(way.total_bytes, kFullBytes + 20);

  r.whole = {Version{2}};
  way = choose_payload(holdings, r);
  EXPECT_EQ(way.next, PayloadId(Version{2})) << "it is being made";
  EXPECT_TRUE(way.make);

  r.installed = Version{3}, r.patches_fit = false, r.whole = {Version{3}};
  EXPECT_EQ(choose_payload(holdings, r).next, PayloadId(Version{5})) << "what it has is of no use to it";
  holdings.erase(patch(3, 4));
  r.installed = kNoVersion;
  EXPECT_EQ(choose_payload(holdings, r).next, PayloadId(Version{5})) << "nothing leads on";
}

TEST(CatchUp, NothingLeadsToAVersionOfWhichNothingCanBeMade) {
  EXPECT_EQ(choose_payload(patches_alone(10), request(0)).next.version, kNoVersion);
  EXPECT_EQ(choose_payload(patches_alone(10), request(2)).next, patch(2, 3));
}

TEST(UsefulChain, PackedPayloadIsNoLinkOfIt) {
  Holdings holdings = chain(10);
  add(holdings, packed_of(Version{5}), 10);
  EXPECT_EQ(useful_chain(holdings, Version{5}, kFullBytes, 2), (std::set<PayloadId>{patch(3, 4), patch(4, 5)}));
}

TEST(UsefulChain, KeepsWhatLeadsToTheLatestVersionWithinItsBounds) {
  EXPECT_EQ(useful_chain(chain(10), Version{5}, kFullBytes, 16).size(), 4u);
  EXPECT_EQ(useful_chain(chain(10), Version{5}, kFullBytes, 2), (std::set<PayloadId>{patch(3, 4), patch(4, 5)}));
  EXPECT_EQ(useful_chain(chain(200'000), Version{5}, kFullBytes, 16).size(), 2u);
  Holdings broken = chain(10);
  broken.erase(patch(3, 4));
  EXPECT_EQ(useful_chain(broken, Version{5}, kFullBytes, 16), (std::set<PayloadId>{patch(4, 5)}));
  EXPECT_TRUE(useful_chain(Holdings(), Version{5}, kFullBytes, 16).empty());
}

TEST(UsefulChain, FoldDoesNotTakeTheStepsPlace) {
  Holdings holdings = chain(10);
  add(holdings, patch(1, 5), 25);
  EXPECT_TRUE(useful_chain(holdings, Version{5}, kFullBytes, 16).contains(patch(4, 5)));
  EXPECT_FALSE(useful_chain(holdings, Version{5}, kFullBytes, 16).contains(patch(1, 5)));
}

RC_GTEST_PROP(CatchUp, EveryWayThatIsKeptEndsAtTheLatestVersion, ()) {
  Holdings holdings;
  add(holdings, Version{12}, kFullBytes);
  for (const auto& [base, step] : *rc::gen::container<std::vector<std::pair<int, int>>>(
           rc::gen::pair(rc::gen::inRange(1, 12), rc::gen::inRange(1, 6)))) {
    const std::uint64_t version = std::min(12, base + step);
    if (!holdings.contains(patch(std::uint64_t(base), version))) {
      add(holdings, patch(std::uint64_t(base), version), *rc::gen::inRange<std::uint64_t>(1, 300'000));
    }
  }
  CatchUpRequest r = request(0);
  r.latest = Version{12};
  r.installed = Version{*rc::gen::inRange<std::uint64_t>(0, 12)};
  std::uint64_t bytes = 0;
  const std::uint64_t promised = choose_payload(holdings, r).total_bytes;
  for (int steps = 0; r.installed != r.latest; ++steps) {
    RC_ASSERT(steps < 16);
    const CatchUp way = choose_payload(holdings, r);
    RC_ASSERT(holdings.contains(way.next));
    RC_ASSERT(!way.next.is_encoded() || way.next.base == r.installed);
    bytes += holdings.at(way.next).manifest().payload_bytes;
    r.installed = way.next.version;
  }
  RC_ASSERT(bytes == promised);
}

}  // namespace
}  // namespace weightcast
