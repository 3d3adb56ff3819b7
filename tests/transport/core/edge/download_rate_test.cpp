// When a download leaves a parent for its rate, or for its silence.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/transport/core/edge/download_fixture.h"

namespace weightcast {
namespace {

using namespace std::chrono_literals;
using testing::ElementsAre;

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
    ASSERT_TRUE(take_part(ancestors[0], part_of(kVersion, kManyChunks)).has_value());
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
  for (const ParentFault& fault : faults) {
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

}  // namespace
}  // namespace weightcast
