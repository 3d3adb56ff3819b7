#include "transport/core/edge/uploads.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <ctime>

#include "tests/result_matchers.h"
#include "tests/transport/core/payload_fixture.h"

namespace weightcast {
namespace {

using namespace std::chrono_literals;

constexpr Version kVersion{3};
constexpr std::uint32_t kChunks = 1500;  // two parts
constexpr std::uint32_t kWindow = 64;    // 256 KiB of chunks of the least size
constexpr ConnId kChild{7};

struct UploadsTest : testing::Test {
  Timeouts timeouts;
  Holdings holdings;
  ActionQueue queue;
  Uploads uploads{timeouts, holdings, queue};
  Instant now{1h};

  Holding& hold(Version version) {
    return holdings.emplace(version, Holding(manifest_of(version, kChunks))).first->second;
  }
  void put_parts(Holding& holding) {
    for (std::uint32_t part : {0u, 1u}) {
      const wire::DigestPart message = part_of(holding.manifest().version, kChunks, part);
      ASSERT_TRUE(holding.put_part(part, std::as_bytes(std::span(message.digests()))).has_value());
    }
  }
  static void verify(Holding& holding, ChunkIndex chunk) {
    const Version version = holding.manifest().version;
    ASSERT_TRUE(holding.verify(chunk, kChunkBytesMin, chunk_digest(version, chunk)).has_value());
  }
  void hold_all() { hold(kVersion).restore(chunk_digests(kVersion, kChunks), ChunkSet(kChunks, true)); }

  Status ask(wire::Subscribe request, PayloadId payload = kVersion, ConnId conn = kChild) {
    set_payload(request, payload);
    return uploads.handle_subscribe(now, conn, request);
  }
  void subscribe(Version version = kVersion) { ASSERT_TRUE(ask({}, version).has_value()); }
  void SetUp() override { uploads.handle_hello(kChild, {PeerId{1}, "child"}); }

  std::vector<Action> actions() {
    return drain([&] { return queue.poll(); });
  }
  std::vector<std::uint32_t> sent() {
    std::vector<std::uint32_t> chunks;
    for (const auto& chunk : only<action::SendChunk>(actions())) chunks.push_back(chunk.chunk.value);
    return chunks;
  }
};

/// Of a version that is held whole, to a child that has subscribed to it.
struct UploadsToASubscriber : UploadsTest {
  void SetUp() override {
    UploadsTest::SetUp();
    hold_all();
    subscribe();
  }
};

TEST_F(UploadsToASubscriber, KeepsAWindowOfChunksInTheConnectionsHands) {
  EXPECT_EQ(sent().size(), kWindow);
  uploads.handle_chunk_sent(kChild);
  EXPECT_EQ(sent(), std::vector<std::uint32_t>{kWindow});
}

wire::Skip skip_of(std::uint32_t first, std::uint32_t chunks) {
  wire::Skip skip;
  set_payload(skip, kVersion);
  skip.set_first_chunk(first);
  skip.set_chunks(chunks);
  return skip;
}

TEST_F(UploadsToASubscriber, SendsNothingThatTheChildGetsElsewhere) {
  (void)sent();
  uploads.handle_skip(kChild, skip_of(kWindow + 1, kChunks));  // past the payload's end
  uploads.handle_chunk_sent(kChild);
  EXPECT_EQ(sent(), std::vector<std::uint32_t>{kWindow});
  for (std::uint32_t i = 0; i < kWindow; ++i) uploads.handle_chunk_sent(kChild);
  EXPECT_TRUE(sent().empty());
  now += timeouts.up_to_date;
  uploads.handle_timeout(now);
  const auto told = only<action::Send>(actions());
  ASSERT_EQ(told.size(), 1u) << "and the child hears that there is no more";
  EXPECT_TRUE(told[0].message.has_up_to_date());
}

TEST_F(UploadsTest, RemembersWhatToSkipUntilThePayloadHasBegun) {
  subscribe();
  uploads.handle_skip(kChild, skip_of(1000, 500));
  uploads.handle_skip(kChild, skip_of(10, 990));   // as a child does that reads from the end
  uploads.handle_skip(ConnId{8}, skip_of(0, 10));  // of nobody
  hold_all();
  uploads.handle_known(kVersion);
  const std::vector<std::uint32_t> all = sent();
  EXPECT_EQ(all.size(), 10u);
  EXPECT_EQ(all.back(), 9u);
}

TEST_F(UploadsTest, SkippedRangesAreBounded) {
  subscribe();
  // None of them follows another.
  for (std::uint32_t i = 0; i < 2 * kSkippedRangesMax; ++i) uploads.handle_skip(kChild, skip_of(4 * i, 1));
  uploads.handle_skip(kChild, skip_of(UINT32_MAX, UINT32_MAX));
  hold_all();
  uploads.handle_known(kVersion);
  std::vector<std::uint32_t> all = sent();
  while (all.size() < kChunks - kSkippedRangesMax) {
    uploads.handle_chunk_sent(kChild);
    const auto next = sent();
    if (next.empty()) break;
    all.insert(all.end(), next.begin(), next.end());
  }
  EXPECT_EQ(all.size(), kChunks - kSkippedRangesMax);
}

TEST_F(UploadsToASubscriber, RepeatedSubscribeIsRefused) { EXPECT_THAT(ask({}), FailsWith(Errc::kAlreadyExists)); }

TEST_F(UploadsTest, SubscriptionThatEndsWhenMoreIsKnownLeavesTheOthersAlone) {
  wire::Subscribe request;
  request.add_stripe_weights(1);
  request.add_stripe_weights(1);
  request.add_stripe_weights(1);
  for (const std::uint32_t stripe : {0u, 1u, 2u}) {
    request.set_stripe(stripe);
    ASSERT_TRUE(ask(request).has_value());
  }
  hold(Version{kVersion.value + 1});
  uploads.handle_known(kVersion);  // which will never come now
  EXPECT_FALSE(uploads.wanted(kVersion));
  std::size_t refused = 0;
  for (const auto& send : only<action::Send>(actions())) refused += send.message.has_not_available() ? 1 : 0;
  EXPECT_EQ(refused, 3u);
}

TEST_F(UploadsTest, ChildHasNoMoreThanItsSubscriptions) {
  for (std::uint64_t version = 1; version <= 128; ++version) {
    ASSERT_TRUE(ask({}, Version{version}).has_value()) << version;
  }
  EXPECT_EQ(ask({}, Version{129}).error().code, Errc::kTooLarge);
}

TEST_F(UploadsTest, SubscribingCostsNoMoreThanItsMessageSays) {
  hold_all();
  // The most and heaviest stripes that are allowed, and the lightest of them asked for: 568 KiB of such messages once
  // took 7 s of CPU time.
  wire::Subscribe request;
  set_payload(request, kVersion);
  for (std::uint32_t s = 0; s < kStripesMax; ++s) request.add_stripe_weights(s == 0 ? 64 : kStripeWeightMax);
  wire::Unsubscribe end;
  set_payload(end, kVersion);
  const std::clock_t began = std::clock();
  for (std::size_t bytes = 0; bytes < 568 * kKiB; bytes += request.ByteSizeLong()) {
    ASSERT_TRUE(uploads.handle_subscribe(now, kChild, request).has_value());
    uploads.handle_unsubscribe(kChild, end);
  }
  EXPECT_LT(double(std::clock() - began) / CLOCKS_PER_SEC, 1.0);
}

TEST_F(UploadsToASubscriber, SubscribeAfterUnsubscribeStillWaitsForWhatIsInTheConnectionsHands) {
  ASSERT_EQ(sent().size(), kWindow);
  wire::Unsubscribe end;
  set_payload(end, kVersion);
  uploads.handle_unsubscribe(kChild, end);
  subscribe();
  EXPECT_TRUE(sent().empty());
  uploads.handle_chunk_sent(kChild);
  EXPECT_EQ(sent().size(), 1u);
}

TEST_F(UploadsToASubscriber, AnswersAnUnsubscribeBehindTheLastChunkOnItsWay) {
  wire::Unsubscribe end;
  set_payload(end, kVersion);
  end.set_answer(true);
  uploads.handle_unsubscribe(kChild, end);
  (void)actions();
  for (std::uint32_t i = 0; i + 1 < kWindow; ++i) uploads.handle_chunk_sent(kChild);
  EXPECT_TRUE(only<action::Send>(actions()).empty());
  uploads.handle_chunk_sent(kChild);
  const auto said = only<action::Send>(actions());
  ASSERT_EQ(said.size(), 1u);
  EXPECT_TRUE(said[0].message.has_unsubscribed());
  uploads.handle_unsubscribe(kChild, end);
  EXPECT_EQ(only<action::Send>(actions()).size(), 1u) << "at once if there is nothing on its way";
}

TEST_F(UploadsTest, ChunksThatWaitedForTheirDigestsAreSentThoughLaterOnesWentBefore) {
  Holding& holding = hold(kVersion);
  put_parts(holding);
  verify(holding, ChunkIndex{1100});
  subscribe();
  ASSERT_EQ(sent(), std::vector<std::uint32_t>{1100});
  // Two that came early are verified at once by the digests of their part; only that is announced.
  verify(holding, ChunkIndex{5});
  verify(holding, ChunkIndex{6});
  uploads.handle_known(kVersion);
  EXPECT_EQ(sent(), (std::vector<std::uint32_t>{5, 6}));
}

TEST_F(UploadsTest, SubscriptionsOfAllConnectionsOfAChildAreBounded) {
  std::size_t taken = 0;
  for (std::uint64_t conn = 100; conn < 100 + kConnectionsPerPeerMax; ++conn) {
    uploads.handle_hello(ConnId{conn}, {PeerId{1}, "child"});
    for (std::uint64_t version = 1; version <= 2 * kStripesMax; ++version) {
      taken += ask({}, Version{version}, ConnId{conn}).has_value() ? 1 : 0;
    }
  }
  EXPECT_EQ(taken, kSubscriptionsPerPeerMax);
  uploads.handle_hello(ConnId{99}, {PeerId{2}, "another"});
  EXPECT_TRUE(ask({}, kVersion, ConnId{99}).has_value());
}

TEST_F(UploadsTest, SaysWhichChunksAreOfASecondCopyAndWhoTakesManyOnWhateverConnections) {
  hold_all();
  uploads.set_uplink(Rate{8e6});
  std::uint64_t again = 0;
  for (std::uint64_t copy = 1; copy <= Uploads::kCopiesMax; ++copy) {
    EXPECT_TRUE(uploads.take_greedy().empty()) << copy;
    const ConnId conn{100 + copy};
    uploads.handle_hello(conn, {PeerId{1}, "child"});
    ASSERT_TRUE(ask({}, kVersion, conn).has_value());
    for (std::uint32_t chunk = 0; chunk < kChunks; ++chunk) uploads.handle_chunk_sent(conn);
    for (const auto& chunk : only<action::SendChunk>(actions())) again += chunk.again_max == Rate{2e6} ? 1 : 0;
    EXPECT_EQ(again, (copy > 2 ? copy - 2 : 0) * kChunks);
    uploads.handle_closed(conn);
  }
  EXPECT_EQ(uploads.take_greedy(), (std::vector<std::pair<std::string, PayloadId>>{{"child", kVersion}}));
  EXPECT_TRUE(uploads.take_greedy().empty());
}

TEST_F(UploadsTest, WhoHasNoPlaceWaitsForOneAndIsGivenUpIfThereIsNone) {
  bool has_place = false;
  uploads.require_place([&](const Uploads::Child&, PayloadId) { return has_place; });
  hold_all();
  subscribe();
  EXPECT_TRUE(sent().empty());
  has_place = true;
  uploads.handle_placed();
  EXPECT_EQ(sent().size(), kWindow);

  has_place = false;
  const ConnId other{8};
  uploads.handle_hello(other, {PeerId{2}, "other"});
  wire::Subscribe request;
  request.set_chunks_held(std::string(kUnknownBitmapBytesMax + 1, '\0'));
  EXPECT_EQ(ask(request, kVersion, other).error().code, Errc::kBusy) << "which would have to be kept";
  ASSERT_TRUE(ask({}, kVersion, other).has_value());
  uploads.handle_timeout(now + timeouts.unknown_version);
  EXPECT_EQ(uploads.take_placeless(), std::vector<ConnId>{other});
  EXPECT_TRUE(uploads.take_placeless().empty());

  wire::Unsubscribe end;
  set_payload(end, kVersion);
  uploads.handle_unsubscribe(other, end);
  EXPECT_LE(*uploads.poll_deadline(), now);
  EXPECT_EQ(uploads.take_placeless(), std::vector<ConnId>{other}) << "who takes it back would ask for ever";
}

struct UploadsOfStripesTest : UploadsTest {
  const std::vector<std::uint32_t> weights{1, 3};
  StripeMap stripes{weights};

  void subscribe_to(std::uint32_t stripe) {
    wire::Subscribe request;
    request.set_stripe(stripe);
    request.mutable_stripe_weights()->Add(weights.begin(), weights.end());
    ASSERT_TRUE(ask(request).has_value());
  }
  /// How many chunks of each stripe leave while `count` others do.
  std::array<int, 2> next(std::uint32_t count) {
    for (std::uint32_t i = 0; i < count; ++i) uploads.handle_chunk_sent(kChild);
    std::array<int, 2> of{};
    for (const std::uint32_t chunk : sent()) ++of[stripes.stripe_of(ChunkIndex{chunk})];
    return of;
  }
};

TEST_F(UploadsOfStripesTest, ShareOneWindowInProportionToTheirWeights) {
  hold_all();
  subscribe_to(0);
  EXPECT_EQ(next(0), (std::array<int, 2>{kWindow, 0}));
  subscribe_to(1);
  EXPECT_EQ(next(0), (std::array<int, 2>{0, 0})) << "else the second would wait behind two windows of the first";
  EXPECT_NEAR(next(400)[1], 300, 1);
}

TEST_F(UploadsOfStripesTest, OneThatHadNothingToSendHasNoClaimToTheTurnsItMissed) {
  Holding& holding = hold(kVersion);
  put_parts(holding);
  std::vector<ChunkIndex> first, second;
  for (std::uint32_t c = 0; c < kChunks; ++c) (stripes.stripe_of(ChunkIndex{c}) == 0 ? first : second).emplace_back(c);
  for (const ChunkIndex chunk : first) verify(holding, chunk);
  subscribe_to(0);
  subscribe_to(1);
  EXPECT_EQ(next(100), (std::array<int, 2>{kWindow + 100, 0}));
  for (const ChunkIndex chunk : second) {
    verify(holding, chunk);
    uploads.handle_verified(kVersion, chunk);
  }
  EXPECT_NEAR(next(100)[1], 75, 1);
}

TEST_F(UploadsOfStripesTest, OneThatWaitsForItsTurnDoesNotSayThatItHasNothing) {
  hold_all();
  subscribe_to(0);
  subscribe_to(1);
  (void)actions();
  uploads.handle_timeout(now + timeouts.up_to_date);
  EXPECT_TRUE(only<action::Send>(actions()).empty());
}

TEST_F(UploadsTest, OneThatHadNothingForAMomentSaysSoThoughItHasMoreByThen) {
  Holding& holding = hold(kVersion);
  put_parts(holding);
  verify(holding, ChunkIndex{0});
  subscribe();
  uploads.handle_chunk_sent(kChild);
  verify(holding, ChunkIndex{1});
  uploads.handle_verified(kVersion, ChunkIndex{1});
  (void)actions();
  uploads.handle_timeout(now += timeouts.up_to_date - 1ms);
  EXPECT_TRUE(only<action::Send>(actions()).empty()) << "too soon";
  uploads.handle_timeout(now += 1ms);
  const auto said = only<action::Send>(actions());
  ASSERT_EQ(said.size(), 1u);
  EXPECT_TRUE(said[0].message.has_up_to_date());
  uploads.handle_timeout(now += timeouts.up_to_date);
  EXPECT_TRUE(only<action::Send>(actions()).empty()) << "it has been busy since";
}

TEST_F(UploadsToASubscriber, OneThatAlwaysHasMoreNeverSaysThatItHasNothing) {
  for (int i = 0; i < 20; ++i) {
    uploads.handle_chunk_sent(kChild);
    uploads.handle_timeout(now += timeouts.up_to_date);
  }
  for (const auto& said : only<action::Send>(actions())) EXPECT_FALSE(said.message.has_up_to_date());
}

TEST_F(UploadsToASubscriber, CountsTheBytesThatHaveLeft) {
  EXPECT_EQ(uploads.bytes_sent(), 0u);
  uploads.handle_chunk_sent(kChild);
  uploads.handle_chunk_sent(kChild);
  EXPECT_EQ(uploads.bytes_sent(), 2 * kChunkBytesMin);
}

TEST_F(UploadsTest, VersionThatDoesNotComeIsRefusedBeforeTheChildLosesPatience) {
  subscribe(Version{9});
  ASSERT_TRUE(uploads.poll_deadline());
  EXPECT_LT(*uploads.poll_deadline() - now, timeouts.parent_silence);
  uploads.handle_timeout(*uploads.poll_deadline());
  const auto said = only<action::Send>(actions());
  ASSERT_EQ(said.size(), 1u);
  EXPECT_EQ(payload_of(said[0].message.not_available()).version.value, 9u);
  EXPECT_FALSE(uploads.poll_deadline());
}

TEST_F(UploadsTest, StripesOutOfTheirLimitsAreRefused) {
  wire::Subscribe request;
  request.set_stripe(1);
  EXPECT_FALSE(ask(request).has_value());
  EXPECT_FALSE(ask({}, kVersion, ConnId{99}).has_value()) << "it never said hello";
}

TEST_F(UploadsTest, SendsWhatAnOpenPayloadGrowsByExceptWhatTheChildHad) {
  constexpr PayloadId kPatch = patch_of(kVersion, Version{2});
  Holding& holding = holdings.emplace(kPatch, Holding(growing_manifest(kPatch, 4))).first->second;
  const auto grow = [&](std::uint32_t chunks, bool open) {
    holding.grow(growing_manifest(kPatch, chunks, open));
    holding.restore(chunk_digests(kVersion, chunks), ChunkSet(chunks, true));
    uploads.handle_known(kPatch);
  };
  grow(4, true);
  wire::Subscribe request;
  ChunkSet held(8);
  held.insert(ChunkIndex{1});
  held.insert(ChunkIndex{5});  // its other parent is further
  request.set_chunks_held(held.to_bytes());
  ASSERT_TRUE(ask(request, kPatch).has_value());
  EXPECT_THAT(sent(), testing::ElementsAre(0, 2, 3));
  grow(8, true);
  EXPECT_THAT(sent(), testing::ElementsAre(4, 6, 7));
  grow(10, false);
  EXPECT_THAT(sent(), testing::ElementsAre(8, 9));
}

TEST_F(UploadsTest, StripesOfAnOpenPayloadGrowTogether) {
  constexpr PayloadId kPatch = patch_of(kVersion, Version{2});
  Holding& holding = holdings.emplace(kPatch, Holding(growing_manifest(kPatch, 0))).first->second;
  for (const std::uint32_t stripe : {0u, 1u}) {
    wire::Subscribe request;
    request.set_stripe(stripe);
    request.add_stripe_weights(1);
    request.add_stripe_weights(1);
    ASSERT_TRUE(ask(request, kPatch).has_value());
  }
  EXPECT_THAT(sent(), testing::ElementsAre());
  holding.grow(growing_manifest(kPatch, 4));
  holding.restore(chunk_digests(kVersion, 4), ChunkSet(4, true));
  uploads.handle_known(kPatch);
  EXPECT_THAT(sent(), testing::UnorderedElementsAre(0, 1, 2, 3));
}

TEST_F(UploadsTest, BitmapsOfPayloadsThatAreNotHereAreKeptWithinBounds) {
  const auto ask_for = [&](ConnId conn, std::uint64_t version, std::size_t bytes = kUnknownBitmapBytesMax) {
    wire::Subscribe request;
    request.set_chunks_held(std::string(bytes, '\1'));
    ASSERT_TRUE(ask(request, Version{version}, conn).has_value());
  };
  const auto refused = [&] {
    std::vector<ConnId> conns;
    for (const auto& send : only<action::Send>(actions())) {
      if (send.message.has_not_available()) conns.push_back(send.conn);
    }
    return conns;
  };
  constexpr std::size_t kOfOne = Uploads::kKeptBitmapBytesMax / kUnknownBitmapBytesMax;
  constexpr std::size_t kOfAll = Uploads::kKeptBitmapsBytesMax / kUnknownBitmapBytesMax;
  for (std::uint64_t i = 0; i <= kOfOne; ++i) uploads.handle_hello(ConnId{100 + i}, {PeerId{1}, "child"});
  ask_for(ConnId{100}, 7, kUnknownBitmapBytesMax + 1);
  EXPECT_THAT(refused(), testing::ElementsAre(ConnId{100})) << "of a payload that nobody knows here";
  for (std::uint64_t i = 0; i <= kOfOne; ++i) ask_for(ConnId{100 + i}, 8);
  EXPECT_THAT(refused(), testing::ElementsAre(ConnId{100 + kOfOne})) << "one child has its share, on all connections";
  for (std::uint64_t i = kOfOne; i <= kOfAll; ++i) {
    uploads.handle_hello(ConnId{1000 + i}, {PeerId{static_cast<std::uint32_t>(2 + i)}, "another"});
    ask_for(ConnId{1000 + i}, 8);
  }
  EXPECT_THAT(refused(), testing::ElementsAre(ConnId{1000 + kOfAll})) << "and all together have theirs";
  uploads.handle_closed(ConnId{100});
  now += timeouts.unknown_version;
  uploads.handle_timeout(now);
  EXPECT_EQ(refused().size(), kOfAll - 1) << "the version did not come";
  ask_for(ConnId{1000 + kOfAll}, 8);
  EXPECT_TRUE(refused().empty()) << "there is room again";
}

}  // namespace
}  // namespace weightcast
