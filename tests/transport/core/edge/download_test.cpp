#include "transport/core/edge/download.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/transport/core/payload_fixture.h"

namespace weightcast {
namespace {

using namespace std::chrono_literals;
using testing::ElementsAre;

constexpr Version kVersion{3};
constexpr std::uint32_t kChunks = 100;
constexpr PeerId kSelf{5};

Assignment assignment(std::uint64_t epoch, const std::vector<std::vector<std::uint32_t>>& stripes) {
  Assignment assignment;
  assignment.epoch = Epoch{epoch};
  assignment.payload = kVersion;
  for (const auto& ancestors : stripes) {
    StripeSource& source = assignment.stripes.emplace_back();
    for (const std::uint32_t peer : ancestors) {
      source.ancestors.push_back({PeerId{peer}, "", "host", static_cast<std::uint16_t>(1000 + peer)});
    }
    assignment.stripe_weights.push_back(1);
  }
  return assignment;
}

struct DownloadTest : testing::Test {
  explicit DownloadTest(std::shared_ptr<const Manifest> manifest = manifest_of(kVersion, kChunks),
                        std::uint32_t streams = 1)
      : holding(std::move(manifest)), download(timeouts, streams, holding, links, queue) {}

  Timeouts timeouts;
  ActionQueue queue;
  ConnIds ids;
  Links links{ids, queue};
  Holding holding;
  Download download;
  Instant now{1h};
  std::vector<action::Connect> dialled;

  void SetUp() override { links.set_origin("origin", 1); }

  std::vector<Action> actions() {
    auto all = drain([&] { return queue.poll(); });
    for (const auto& connect : only<action::Connect>(all)) dialled.push_back(connect);
    return all;
  }
  /// Assigns, and makes the connections that it asks for.
  void start(const Assignment& plan) {
    ASSERT_TRUE(download.assign(now, kSelf, plan).has_value());
    download.handle_storage_ready(now);
    open_all();
  }
  void open_all() {
    const std::size_t from = dialled.size();
    (void)actions();
    for (std::size_t i = from; i < dialled.size(); ++i) {
      links.handle_connected(dialled[i].conn);
      download.handle_open(now, dialled[i].conn);
    }
  }
  ConnId conn_to(std::uint32_t peer) {
    for (auto c = dialled.rbegin(); c != dialled.rend(); ++c) {
      if (c->port == (peer == 0 ? 1 : 1000 + peer)) return c->conn;
    }
    return ConnId{};
  }
  Status take_part(std::uint32_t peer, const wire::DigestPart& part) {
    return download.handle_digest_part(now, conn_to(peer), part.part(), std::as_bytes(std::span(part.digests())));
  }
  /// But for the words of a child that gets nothing and stays: starvations().
  std::vector<wire::FaultKind> fault_kinds() {
    std::vector<wire::FaultKind> kinds;
    for (const auto& fault : take_faults()) {
      if (!is_starvation(fault)) kinds.push_back(fault.kind);
    }
    return kinds;
  }
  static bool is_starvation(const ParentFault& fault) { return fault.starving > Duration::zero(); }
  std::vector<ParentFault> take_faults() { return download.take_faults(); }
};

TEST_F(DownloadTest, OneWhoIsToldToFeedItselfDialsTheNextAncestor) {
  start(assignment(1, {{kSelf.value, 2, 0}}));
  ASSERT_EQ(dialled.size(), 1u);
  EXPECT_EQ(dialled[0].port, 1002);
}

TEST_F(DownloadTest, NobodyButItselfAboveIsNoAssignment) {
  EXPECT_FALSE(download.assign(now, kSelf, assignment(1, {{kSelf.value}})).has_value());
}

TEST_F(DownloadTest, EarlyChunkThatIsWrongIsBlamedOnItsSenderAndNotOnWhoBroughtTheDigests) {
  start(assignment(1, {{2, 0}, {3, 0}}));
  ASSERT_EQ(dialled.size(), 2u);
  EXPECT_FALSE(download.handle_chunk(now, conn_to(2), chunk_of(kVersion, ChunkIndex{0}, true)));
  ASSERT_TRUE(take_part(3, part_of(kVersion, kChunks)).has_value());
  const auto faults = download.take_faults();
  ASSERT_EQ(faults.size(), 1u);
  EXPECT_EQ(faults[0].parent, PeerId{2});
  EXPECT_EQ(faults[0].kind, wire::FAULT_KIND_CORRUPT);
}

TEST_F(DownloadTest, ParentWithoutTheVersionIsLeftWithoutBlameForItsConnection) {
  start(assignment(1, {{2, 0}}));
  download.handle_not_available(now, conn_to(2));
  EXPECT_THAT(fault_kinds(), ElementsAre(wire::FAULT_KIND_NOT_AVAILABLE));
  open_all();
  EXPECT_EQ(dialled.back().port, 1) << "the origin is next";
  EXPECT_FALSE(download.withdrawn());
  download.handle_not_available(now, conn_to(0));
  EXPECT_TRUE(download.withdrawn());
}

TEST_F(DownloadTest, OnceAllAncestorsHaveFailedThePauseBeforeTheNextDoubles) {
  start(assignment(1, {{2, 0}}));
  std::vector<Duration> pauses;
  for (int failures = 0; failures < 9; ++failures) {
    const std::size_t dialled_before = dialled.size();
    const ConnId conn = dialled.back().conn;
    links.handle_closed(conn);
    download.handle_closed(now, conn);
    open_all();
    const Instant failed_at = now;
    while (dialled.size() == dialled_before) {
      ASSERT_TRUE(download.poll_deadline());
      now = std::max(now, *download.poll_deadline());
      download.handle_timeout(now);
      open_all();
    }
    pauses.push_back(now - failed_at);
  }
  EXPECT_THAT(pauses, ElementsAre(0ms, 50ms, 100ms, 200ms, 400ms, 800ms, 1600ms, 2000ms, 2000ms));
}

TEST_F(DownloadTest, ParentThatOnlyEverSaysThatItHasNothingIsLeftInTheEnd) {
  start(assignment(1, {{2, 0}}));
  const Instant asked = now;
  while (now - asked < 2 * timeouts.starvation && fault_kinds().empty()) {
    now += 200ms;
    download.handle_up_to_date(now, conn_to(2), 0);
    download.handle_timeout(now);
    if (download.uses(conn_to(2))) continue;
    break;
  }
  EXPECT_GE(now - asked, timeouts.starvation);
  EXPECT_LT(now - asked, timeouts.starvation + 500ms);
  open_all();
  EXPECT_TRUE(download.uses(conn_to(0)));
}

TEST_F(DownloadTest, ParentThatFeedsSlowlyButDoesIsNotTakenForAStarvingOne) {
  start(assignment(1, {{2, 0}}));
  ASSERT_TRUE(take_part(2, part_of(kVersion, kChunks)).has_value());
  for (std::uint32_t c = 0; c < 5; ++c) {
    for (Duration waited{}; waited < timeouts.starvation * 4 / 5; waited += 200ms) {
      now += 200ms;
      download.handle_up_to_date(now, conn_to(2), 0);
      download.handle_timeout(now);
    }
    EXPECT_TRUE(download.handle_chunk(now, conn_to(2), chunk_of(kVersion, ChunkIndex{c})));
  }
  EXPECT_THAT(fault_kinds(), ElementsAre());
}

/// No rate is predicted, and a chunk takes 3 s on each link.
struct DownloadOfUnknownRate : DownloadTest {
  void SetUp() override {
    DownloadTest::SetUp();
    start(assignment(1, {{2, 0}}));
    ASSERT_TRUE(take_part(2, part_of(kVersion, kChunks)).has_value());
  }
  [[nodiscard]] ConnId used() {
    for (const auto& connect : dialled) {
      if (download.uses(connect.conn)) return connect.conn;
    }
    return ConnId{};
  }
  /// Until a chunk has come, or for `limit`.
  bool wait_for_chunk(Duration chunk_time, Duration limit) {
    const Instant until = now + limit;
    for (Instant asked = now; now < until; now += 50ms) {
      const ConnId before = used();
      download.handle_timeout(now);
      open_all();
      if (used() != before) asked = now;
      if (used() == ConnId{} || now - asked < chunk_time) continue;
      return download.handle_chunk(now, used(), chunk_of(kVersion, ChunkIndex{next++}));
    }
    return false;
  }
  std::uint32_t next = 0;
};

TEST_F(DownloadOfUnknownRate, ChunksThatTakeLongerThanThePatienceOnEveryLinkAreWaitedForInTheEnd) {
  ASSERT_TRUE(wait_for_chunk(3s, 60s));
  (void)download.take_faults();
  for (int i = 0; i < 10; ++i) EXPECT_TRUE(wait_for_chunk(3s, 4s));
  EXPECT_THAT(fault_kinds(), ElementsAre());
}

TEST_F(DownloadOfUnknownRate, PatienceIsAsShortAsBeforeOnceChunksComeWithoutPauses) {
  ASSERT_TRUE(wait_for_chunk(3s, 60s));
  for (int i = 0; i < 25; ++i) EXPECT_TRUE(wait_for_chunk(100ms, 200ms));
  (void)download.take_faults();
  EXPECT_FALSE(wait_for_chunk(1h, timeouts.parent_silence + 100ms));
  EXPECT_THAT(fault_kinds(), ElementsAre(wire::FAULT_KIND_SILENT));
}

TEST_F(DownloadTest, ChildThatGetsNothingSaysSoAndStaysWhetherOrNotItIsConnected) {
  ASSERT_TRUE(download.assign(now, kSelf, assignment(1, {{2, 0}})).has_value());
  (void)actions();
  now += 1s;
  download.handle_timeout(now);
  auto faults = take_faults();
  ASSERT_EQ(faults.size(), 1u);
  EXPECT_EQ(faults[0].kind, wire::FAULT_KIND_WAITING) << "it is still dialling";
  EXPECT_TRUE(faults[0].stays());
  EXPECT_EQ(faults[0].starving, 1000ms);
  open_all();
  for (const action::Connect& connect : dialled) {
    links.handle_connected(connect.conn);
    download.handle_open(now, connect.conn);
  }
  download.handle_storage_ready(now);
  download.handle_up_to_date(now, conn_to(2), 0);
  now += 500ms;
  download.handle_timeout(now);
  faults = take_faults();
  ASSERT_EQ(faults.size(), 1u);
  EXPECT_EQ(faults[0].kind, wire::FAULT_KIND_STARVED) << "the parent says that it has nothing more";
  EXPECT_EQ(faults[0].starving, 1500ms);
  EXPECT_TRUE(download.uses(conn_to(2)));
}

/// Chunks of even index come by the first stream, the others by the second.
struct DownloadByTwoStreams : DownloadTest {
  DownloadByTwoStreams() : DownloadTest(manifest_of(kVersion, kChunks), 2) {}

  /// Chunks come by the first stream alone, one each `pace`; `second_idle`: the parent says on the second that it has
  /// nothing more.
  void feed_first(int chunks, Duration pace, bool second_idle) {
    for (int i = 0; i < chunks; ++i) {
      now += pace;
      download.handle_timeout(now);
      open_all();
      ASSERT_TRUE(download.handle_chunk(now, dialled[0].conn, chunk_of(kVersion, ChunkIndex{next})));
      next += 2;
      if (second_idle) download.handle_up_to_date(now, dialled[1].conn, 1);
    }
  }
  void start_both(const std::vector<std::uint32_t>& ancestors) {
    start(assignment(1, {ancestors}));
    ASSERT_EQ(dialled.size(), 2u);
    ASSERT_TRUE(take_part(ancestors[0], part_of(kVersion, kChunks)).has_value());
  }
  std::uint32_t next = 0;
};

TEST_F(DownloadByTwoStreams, DoesNotSayThatItStarvesWhileOneOfThemIsFed) {
  start_both({2, 0});
  feed_first(15, 200ms, true);
  EXPECT_TRUE(take_faults().empty());
  for (int i = 0; i < 5; ++i) {
    now += 200ms;
    for (const std::uint32_t stream : {0u, 1u}) download.handle_up_to_date(now, dialled[stream].conn, stream);
    download.handle_timeout(now);
  }
  const auto faults = take_faults();
  ASSERT_FALSE(faults.empty());
  EXPECT_EQ(faults[0].kind, wire::FAULT_KIND_STARVED);
  EXPECT_EQ(faults[0].starving, 1000ms) << "since the last chunk of either";
}

TEST_F(DownloadByTwoStreams, StreamThatIsSilentWhileTheOtherIsFedIsDialledAnewAndNobodyIsBlamed) {
  start_both({0});
  feed_first(30, 50ms, false);
  ASSERT_EQ(dialled.size(), 3u);
  EXPECT_EQ(dialled[2].port, dialled[1].port);
  EXPECT_FALSE(download.uses(dialled[1].conn));
  EXPECT_TRUE(download.uses(dialled[2].conn));
  EXPECT_TRUE(take_faults().empty());
}

TEST_F(DownloadByTwoStreams, StreamThatIsMuchSlowerThanTheOtherIsGivenEverMoreTime) {
  start_both({0});
  feed_first(50, 100ms, false);
  EXPECT_EQ(dialled.size(), 4u) << "after 16 chunks of the other, and after 32 more";
}

TEST_F(DownloadByTwoStreams, StripesThatAreTooUnequalToBeSplitAreNot) {
  Assignment unequal = assignment(1, {{2, 0}, {3, 0}});
  unequal.stripe_weights = {1, 1000};
  start(unequal);
  EXPECT_EQ(dialled.size(), 2u) << "one stream for each stripe";
}

struct DownloadMoved : DownloadTest {
  void SetUp() override {
    DownloadTest::SetUp();
    start(assignment(1, {{2, 0}}));
    ASSERT_TRUE(download.assign(now, kSelf, assignment(2, {{3, 0}})).has_value());
    open_all();
  }
  /// Of what it has said since the last call.
  std::vector<ConnId> asked() {
    std::vector<ConnId> conns;
    for (const auto& send : only<action::Send>(actions())) {
      if (send.message.has_subscribe()) conns.push_back(send.conn);
    }
    return conns;
  }
};

TEST_F(DownloadMoved, AsksTheNewParentWhenTheOldOneHasNothingOnTheWay) {
  EXPECT_TRUE(asked().empty());
  download.handle_unsubscribed(now, conn_to(3), 0);
  EXPECT_TRUE(asked().empty()) << "that is not whom it waits for";
  download.handle_unsubscribed(now, conn_to(2), 0);
  EXPECT_THAT(asked(), ElementsAre(conn_to(3)));
}

TEST_F(DownloadMoved, AsksTheNewParentWhenTheOldOneCloses) {
  links.handle_closed(conn_to(2));
  download.handle_closed(now, conn_to(2));
  EXPECT_THAT(asked(), ElementsAre(conn_to(3)));
}

TEST_F(DownloadMoved, DoesNotWaitForTheOldParentForLong) {
  now += timeouts.draining;
  ASSERT_TRUE(download.poll_deadline());
  EXPECT_LE(*download.poll_deadline(), now);
  download.handle_timeout(now);
  EXPECT_THAT(asked(), ElementsAre(conn_to(3)));
}

struct DownloadRate : DownloadTest {
  std::uint32_t next = 0;

  /// From the parent, at an even rate, until `until` or until it is left.
  void feed(std::uint32_t parent, double chunks_per_s, Duration span) {
    const Instant until = now + span;
    Instant chunk_at = now + from_seconds(1 / chunks_per_s);
    while (now < until && download.uses(conn_to(parent))) {
      const Instant due = download.poll_deadline().value_or(until);
      now = std::min({until, chunk_at, due});
      if (now == chunk_at) {
        (void)download.handle_chunk(now, conn_to(parent), chunk_of(kVersion, ChunkIndex{next++}));
        chunk_at += from_seconds(1 / chunks_per_s);
      }
      download.handle_timeout(now);
    }
  }
  void start_expecting(double chunks_per_s, std::vector<std::uint32_t> ancestors = {2, 0}) {
    Assignment plan = assignment(1, {ancestors});
    plan.stripes[0].predicted_bytes_per_s = chunks_per_s * kChunkBytesMin;
    start(plan);
    const ConnId parent = conn_to(ancestors[0]);
    const wire::DigestPart part = part_of(kVersion, kManyChunks);
    ASSERT_TRUE(
        download.handle_digest_part(now, parent, part.part(), std::as_bytes(std::span(part.digests()))).has_value());
  }
  /// When from now on so much comes from parent 2.
  void expect_left(double chunks_per_s, Duration within, wire::FaultKind why) {
    const Instant since = now;
    feed(2, chunks_per_s, 5s);
    EXPECT_LE(now - since, within);
    EXPECT_THAT(fault_kinds(), ElementsAre(why));
  }
  static constexpr std::uint32_t kManyChunks = 1000;
  DownloadRate() : DownloadTest(manifest_of(kVersion, kManyChunks)) {}
};

TEST_F(DownloadRate, ParentThatFallsToATwentiethIsLeftWithinEightTenthsOfASecond) {
  start_expecting(40);
  feed(2, 40, 1500ms);
  ASSERT_TRUE(download.uses(conn_to(2)));
  expect_left(2, 800ms, wire::FAULT_KIND_SLOW);
}

TEST_F(DownloadRate, ParentThatFallsRightAfterItHadNothingMoreIsLeftAsSoonCountedFromWhatItSendsNext) {
  start_expecting(40);
  feed(2, 40, 1500ms);
  download.handle_up_to_date(now, conn_to(2), 0);
  expect_left(8, 125ms + 800ms, wire::FAULT_KIND_SLOW);
}

TEST_F(DownloadRate, ParentThatFallsSilentIsLeftAsSoonAndNotCalledSlow) {
  start_expecting(40);
  feed(2, 40, 1500ms);
  expect_left(0.001, 800ms, wire::FAULT_KIND_SILENT);
}

TEST_F(DownloadRate, ParentThatHadNothingMoreMaySayNothingForAlmostAsLongAsAnyOther) {
  start_expecting(40);
  feed(2, 40, 1500ms);
  for (int i = 0; i < 3; ++i) {
    download.handle_up_to_date(now, conn_to(2), 0);
    feed(2, 0.001, timeouts.parent_silence - 100ms);
    feed(2, 40, 500ms);
  }
  EXPECT_TRUE(download.uses(conn_to(2)));
  EXPECT_THAT(fault_kinds(), ElementsAre());
}

TEST_F(DownloadRate, OnlyParentThatStopsForAWhileIsNotCalledSlowForIt) {
  start_expecting(40, {0});
  feed(0, 40, 1s);
  feed(0, 0.001, 5s);
  feed(0, 40, 5s);
  EXPECT_THAT(fault_kinds(), ElementsAre());
  feed(0, 15, 1300ms);
  EXPECT_THAT(fault_kinds(), ElementsAre(wire::FAULT_KIND_SLOW)) << "as much is expected of it as before";
}

TEST_F(DownloadRate, OnlyParentThatStaysSilentIsLeftWhenTwentyTimesThePatienceIsOver) {
  start_expecting(40, {0});
  feed(0, 40, 1s);
  const Instant silent_since = now;
  feed(0, 0.001, 100s);
  EXPECT_GE(now - silent_since, 20 * timeouts.parent_silence - 50ms);
  EXPECT_LE(now - silent_since, 20 * timeouts.parent_silence);
  EXPECT_THAT(fault_kinds(), ElementsAre(wire::FAULT_KIND_SILENT));
}

TEST_F(DownloadRate, AsMuchIsExpectedAsBeforeOfAParentThatHasRecovered) {
  start_expecting(40, {0});
  feed(0, 40, 1s);
  feed(0, 4, 3s);
  EXPECT_FALSE(fault_kinds().empty());
  feed(0, 40, 10s);
  EXPECT_THAT(fault_kinds(), ElementsAre());
  feed(0, 15, 1300ms);
  EXPECT_THAT(fault_kinds(), ElementsAre(wire::FAULT_KIND_SLOW));
}

TEST_F(DownloadRate, OnlyParentThatSendsAChunkNowAndThenIsCalledSlow) {
  start_expecting(40, {0});
  feed(0, 40, 1s);
  feed(0, 1.1, 5s);
  EXPECT_THAT(fault_kinds(), testing::Contains(wire::FAULT_KIND_SLOW)) << "though it is silent most of the time";
}

TEST_F(DownloadRate, WhoHasMovedSettlesWithAlmostHalfOfTheRate) {
  start_expecting(40);
  feed(2, 8, 5s);
  EXPECT_THAT(fault_kinds(), ElementsAre(wire::FAULT_KIND_SLOW));
  open_all();
  for (const double chunks_per_s : {19.0, 21.0, 19.0}) feed(0, chunks_per_s, 10s);
  EXPECT_TRUE(download.uses(conn_to(0)));
  EXPECT_THAT(fault_kinds(), ElementsAre());
}

TEST_F(DownloadRate, RateBeyondAllNumbersIsLivedWith) {
  start_expecting(1e30);
  download.handle_up_to_date(now, conn_to(2), 0);
  feed(2, 40, 5s);
  EXPECT_FALSE(download.uses(conn_to(2))) << "whatever it sends, it is too slow for that";
}

TEST_F(DownloadRate, ParentThatPassesOnAllThatItGetsIsNotSlow) {
  start_expecting(40);
  for (int i = 0; i < 20; ++i) {
    feed(2, 2, timeouts.up_to_date);
    download.handle_up_to_date(now, conn_to(2), 0);
  }
  EXPECT_TRUE(download.uses(conn_to(2)));
  EXPECT_THAT(fault_kinds(), ElementsAre());
}

TEST_F(DownloadRate, WhoHasNobodyElseToTurnToStaysAndSaysThatItIsFedSlowly) {
  start_expecting(40, {0});
  feed(0, 40, 1s);
  feed(0, 4, 10s);
  EXPECT_TRUE(download.uses(conn_to(0)));
  const auto faults = download.take_faults();
  ASSERT_FALSE(faults.empty());
  EXPECT_LE(faults.size(), 3u) << "it expects half as much each time";
  for (const wire::ParentFault& fault : faults) {
    EXPECT_EQ(fault.kind, wire::FAULT_KIND_SLOW);
    EXPECT_EQ(fault.parent, kOriginId);
    EXPECT_EQ(fault.now_from, kOriginId);
  }
}

TEST_F(DownloadRate, PauseOfFourTenthsOfASecondIsForgiven) {
  start_expecting(40);
  for (int i = 0; i < 3; ++i) {
    feed(2, 40, 600ms);
    feed(2, 0.001, 400ms);
  }
  EXPECT_TRUE(download.uses(conn_to(2)));
}

TEST_F(DownloadRate, ParentAtThreeFifthsOfTheRateIsKept) {
  start_expecting(20);
  feed(2, 12, 8s);
  EXPECT_TRUE(download.uses(conn_to(2)));
}

TEST_F(DownloadRate, ChunksThatTakeSecondsEachAreNotTakenForSlowness) {
  start_expecting(0.4);
  feed(2, 0.4, 100s);
  EXPECT_TRUE(download.uses(conn_to(2)));
  EXPECT_EQ(next, 40u);
}

constexpr PayloadId kPatch = patch_of(kVersion, Version{2});

struct OpenDownloadTest : DownloadTest {
  OpenDownloadTest() : DownloadTest(growing_manifest(kPatch, 4)) {}

  void grow(std::uint32_t chunks, bool open) {
    holding.grow(growing_manifest(kPatch, chunks, open));
    download.handle_grown(now);
  }
  bool take(std::uint32_t chunk) {
    return download.handle_chunk(now, conn_to(2), chunk_of(kVersion, ChunkIndex{chunk}));
  }
  void take_part(std::uint32_t part) {
    ASSERT_TRUE(DownloadTest::take_part(2, growing_part_of(kPatch, part)).has_value());
  }
  std::vector<std::uint32_t> stored() {
    std::vector<std::uint32_t> chunks;
    for (const auto& store : only<action::StoreChunk>(actions())) chunks.push_back(store.chunk.value);
    return chunks;
  }
};

TEST_F(OpenDownloadTest, StaysWithItsParentThoughNothingIsMissingUntilTheEndIsKnown) {
  start(assignment(1, {{2, 0}}));
  take_part(0);
  for (const std::uint32_t chunk : {0u, 1u, 2u, 3u}) EXPECT_TRUE(take(chunk));
  EXPECT_TRUE(download.uses(conn_to(2)));
  EXPECT_FALSE(holding.complete());
  grow(4, false);
  EXPECT_FALSE(download.uses(conn_to(2)));
  EXPECT_TRUE(holding.complete());
}

TEST_F(OpenDownloadTest, WhatComesBeforeTheOriginsWordWaitsForIt) {
  start(assignment(1, {{2, 0}}));
  take_part(1);
  EXPECT_FALSE(take(5));
  EXPECT_THAT(stored(), ElementsAre());
  grow(8, true);
  EXPECT_THAT(stored(), ElementsAre(5));
  EXPECT_TRUE(take(6)) << "its digests are known by now";
  EXPECT_TRUE(fault_kinds().empty());
}

TEST_F(OpenDownloadTest, WhatComesBeforeTheOriginsWordAndIsWrongIsBlamedThen) {
  start(assignment(1, {{2, 0}}));
  take_part(1);
  EXPECT_FALSE(download.handle_chunk(now, conn_to(2), chunk_of(kVersion, ChunkIndex{5}, true)));
  EXPECT_TRUE(fault_kinds().empty());
  grow(8, true);
  EXPECT_THAT(fault_kinds(), ElementsAre(wire::FAULT_KIND_CORRUPT));
  EXPECT_THAT(stored(), ElementsAre());
}

TEST_F(OpenDownloadTest, ParentThatIsFarAheadIsLeftWithoutBlameUntilThePayloadHasGrown) {
  start(assignment(1, {{2, 0}}));
  for (std::uint32_t chunk = 4; download.uses(conn_to(2)); ++chunk) {
    ASSERT_LE(chunk, 10'000u);
    EXPECT_FALSE(take(chunk));
  }
  EXPECT_TRUE(fault_kinds().empty());
  now += 1min;
  download.handle_timeout(now);
  EXPECT_TRUE(fault_kinds().empty()) << "nobody is asked, so nobody is silent";
  (void)actions();
  grow(8, true);
  const auto messages = only<action::Send>(actions());
  ASSERT_EQ(messages.size(), 1u);
  EXPECT_TRUE(messages[0].message.has_subscribe());
}

/// Of chunks that the download has let go of again the bytes are gone.
struct Memory {
  std::size_t bytes = 0, bytes_max = 0;
  std::shared_ptr<Buffer> make(std::size_t size) {
    bytes += size;
    bytes_max = std::max(bytes_max, bytes);
    return {reinterpret_cast<Buffer*>(this), [this, size](Buffer*) { bytes -= size; }};
  }
};

struct FloodedDownload : OpenDownloadTest {
  Memory memory;

  /// A parent sends chunks of `size` bytes beyond what is known of the payload for as long as it is listened to.
  void flood(std::uint32_t size) {
    start(assignment(1, {{2, 0}}));
    ASSERT_TRUE(download.uses(conn_to(2)));
    for (std::uint32_t i = 0; i < 20'000 && download.uses(conn_to(2)); ++i) {
      ChunkArrival chunk = chunk_of(kVersion, ChunkIndex{4 + i % 1000});
      chunk.size_bytes = size;
      chunk.bytes = memory.make(std::max(size, kChunkBytesMin));  // a buffer takes whole pages
      (void)download.handle_chunk(now, conn_to(2), chunk);
    }
    EXPECT_FALSE(download.uses(conn_to(2)));
    EXPECT_LE(memory.bytes_max, 16 * kMiB);
  }
};

TEST_F(FloodedDownload, KeepsWholeChunksWithinTheDocumentedBound) {
  flood(kChunkBytesMin);
  EXPECT_GT(memory.bytes_max, 8 * kMiB);
  EXPECT_TRUE(fault_kinds().empty());
}

TEST_F(FloodedDownload, CountsWhatTheSmallestChunksReallyTake) {
  flood(1);
  EXPECT_GT(memory.bytes_max, 8 * kMiB);
  EXPECT_TRUE(fault_kinds().empty());
}

TEST_F(FloodedDownload, LeavesAParentWhoseChunksAreLongerThanThePayloadsAtOnce) {
  flood(kChunkBytesMax);
  EXPECT_EQ(memory.bytes_max, kChunkBytesMax);
  EXPECT_EQ(memory.bytes, 0u);
  EXPECT_THAT(fault_kinds(), ElementsAre(wire::FAULT_KIND_CORRUPT));
}

TEST_F(OpenDownloadTest, DigestPartsBeyondWhatIsKnownThatAreTooLongAreCorrupt) {
  start(assignment(1, {{2, 0}}));
  wire::DigestPart part = growing_part_of(kPatch, 5);
  part.set_digests(std::string(kControlBytesMax / 2, 'x'));
  EXPECT_FALSE(DownloadTest::take_part(2, part).has_value());
  EXPECT_THAT(fault_kinds(), ElementsAre(wire::FAULT_KIND_CORRUPT));
}

TEST_F(DownloadTest, ParentIsToldOfTheChunkThatDoesNotMatch) {
  start(assignment(1, {{2, 0}}));
  ASSERT_TRUE(take_part(2, part_of(kVersion, kChunks)).has_value());
  (void)actions();
  EXPECT_FALSE(download.handle_chunk(now, conn_to(2), chunk_of(kVersion, ChunkIndex{9}, true)));
  const auto sent = only<action::Send>(actions());
  ASSERT_FALSE(sent.empty());
  EXPECT_EQ(sent[0].conn, conn_to(2));
  EXPECT_EQ(payload_of(sent[0].message.chunk_damaged()), PayloadId(kVersion));
  EXPECT_EQ(sent[0].message.chunk_damaged().chunk(), 9u);
}

TEST_F(DownloadTest, OriginThatSendsDamageIsTriedSoOftenAndNoMore) {
  start(assignment(1, {{2, 0}}));
  ASSERT_TRUE(take_part(2, part_of(kVersion, kChunks)).has_value());
  int tries = 0;
  for (; !download.damaged_at_origin() && tries < 100; ++tries) {
    open_all();
    const std::uint32_t parent = download.uses(conn_to(2)) ? 2 : 0;
    EXPECT_FALSE(download.handle_chunk(now, conn_to(parent), chunk_of(kVersion, ChunkIndex{0}, true)));
    while (download.poll_deadline() && !download.uses(conn_to(0)) && !download.uses(conn_to(2))) {
      now = *download.poll_deadline();
      download.handle_timeout(now);
      open_all();
    }
  }
  EXPECT_LT(tries, 10);
}

TEST_F(OpenDownloadTest, ParentIsNotCalledSlowOrStarvingForWhatIsNotMadeYet) {
  Assignment plan = assignment(1, {{2, 0}});
  plan.stripes[0].predicted_bytes_per_s = 1e9;
  start(plan);
  take_part(0);
  for (const std::uint32_t chunk : {0u, 1u, 2u, 3u}) EXPECT_TRUE(take(chunk));
  for (const Instant until = now + 2 * timeouts.starvation; now < until; now += 50ms) {
    if ((until - now) % 200ms == 0ms) take_part(0);  // says something, but not that it is up to date
    download.handle_timeout(now);
  }
  EXPECT_TRUE(fault_kinds().empty());
}

}  // namespace
}  // namespace weightcast
