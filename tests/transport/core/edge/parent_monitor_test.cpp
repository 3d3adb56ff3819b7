// Reads like the table in parent_monitor.h; download_test.cpp has what a child does then.
#include "transport/core/edge/parent_monitor.h"

#include <gtest/gtest.h>

#include "base/units.h"

namespace weightcast {
namespace {

using namespace std::chrono_literals;
using Verdict = ParentMonitor::Verdict;

constexpr std::uint32_t kChunkBytes = 64 * kKiB;

struct ParentMonitorTest : testing::Test {
  Timeouts timeouts;
  ParentMonitor monitor{timeouts};
  ParentMonitor::Edge edge{true, false, false, kChunkBytes};
  Instant now{1h};

  void SetUp() override {
    monitor.handle_hungry(now);
    monitor.handle_asked(now);
  }
  /// The first verdict that is not fine while chunks come at that pace, for `span` at most; `says_idle`: between them
  /// the parent says that it has nothing more.
  Verdict feed(double chunks_per_s, Duration span, bool says_idle = false) {
    const Instant until = now + span;
    const Duration pace = chunks_per_s > 0 ? from_seconds(1 / chunks_per_s) : Duration(1000h);
    Instant chunk_at = now + pace, idle_at = now + 200ms;
    while (now < until) {
      now = std::min({until, chunk_at, says_idle ? idle_at : until, std::max(now + 1ms, monitor.deadline(edge))});
      if (now == chunk_at) {
        monitor.handle_heard(now);
        monitor.handle_chunk(now, kChunkBytes, true, edge);
        chunk_at += pace;
      }
      if (says_idle && now >= idle_at) {
        monitor.handle_up_to_date(now);
        idle_at += 200ms;
      }
      if (const Verdict verdict = monitor.judge(now, edge); verdict != Verdict::kFine) return verdict;
    }
    return Verdict::kFine;
  }
};

// An archive may take the link that the parent was to fill.
TEST_F(ParentMonitorTest, WhatComesFromElsewhereCountsAsTheParents) {
  monitor.expect(40.0 * kChunkBytes);
  ASSERT_EQ(feed(40, 1500ms), Verdict::kFine);
  const auto feed_beside = [&](std::uint32_t elsewhere_chunks) {
    for (int i = 0; i < 10; ++i) {
      monitor.handle_elsewhere(elsewhere_chunks * kChunkBytes);
      if (const Verdict verdict = feed(10, 250ms); verdict != Verdict::kFine) return verdict;
    }
    return Verdict::kFine;
  };
  EXPECT_EQ(feed_beside(6), Verdict::kFine) << "24 a second beside the parent's 10";
  EXPECT_EQ(feed_beside(0), Verdict::kSlow) << "and then none";
}

struct Row {
  const char* when;
  double expected, comes;  // chunks per second
  bool idle, open, only_parent;
  Duration within;
  Verdict verdict;
};

struct ParentMonitorVerdict : ParentMonitorTest, testing::WithParamInterface<Row> {};

TEST_P(ParentMonitorVerdict, IsThatOfTheTable) {
  const Row& row = GetParam();
  edge.open = row.open;
  edge.only_parent = row.only_parent;
  monitor.expect(row.expected * kChunkBytes);
  ASSERT_EQ(feed(std::max(row.expected, 40.0), 1500ms), Verdict::kFine);
  EXPECT_EQ(feed(row.comes, row.within, row.idle), row.verdict) << row.when;
}

INSTANTIATE_TEST_SUITE_P(
    Table, ParentMonitorVerdict,
    testing::Values(
        // when                                     expected comes idle  open   only   within  verdict
        Row{"less than half of what is expected", 40, 10, false, false, false, 1s, Verdict::kSlow},
        Row{"more than half of it", 40, 24, false, false, false, 5s, Verdict::kFine},
        Row{"less than half, but it has no more", 40, 10, true, false, false, 5s, Verdict::kFine},
        Row{"less than half, but it is being made", 40, 10, false, true, false, 5s, Verdict::kFine},
        Row{"less than half, of unknown rate", 0, 10, false, false, false, 5s, Verdict::kFine},
        Row{"less than half, from the only parent", 40, 10, false, false, true, 1s, Verdict::kSlow},
        Row{"nothing at all", 40, 0, false, false, false, 1s, Verdict::kSilent},
        Row{"nothing at all, of unknown rate", 0, 0, false, false, false, 1100ms, Verdict::kSilent},
        Row{"nothing at all, from the only parent", 40, 0, false, false, true, 19s, Verdict::kFine},
        Row{"nothing for 20 s, from the only parent", 40, 0, false, false, true, 21s, Verdict::kSilent},
        Row{"UpToDate and nothing else for 9 s", 40, 0, true, false, false, 9s, Verdict::kFine},
        Row{"UpToDate and nothing else for 10 s", 40, 0, true, false, false, 10100ms, Verdict::kStarved},
        Row{"UpToDate for 19 s, and 4 chunks take 20", 0.2, 0, true, false, false, 19s, Verdict::kFine},
        Row{"UpToDate for as long as 4 chunks take", 0.2, 0, true, false, false, 20100ms, Verdict::kStarved},
        Row{"UpToDate for ever, from the only parent", 40, 0, true, false, true, 60s, Verdict::kFine}));

TEST_F(ParentMonitorTest, NodeThatIsLateItselfHasFourTimesThatPatienceMoreAndFourSecondsAtMost) {
  edge.late = 300ms;
  EXPECT_EQ(feed(0, 2199ms), Verdict::kFine);
  EXPECT_EQ(feed(0, 1ms), Verdict::kSilent);
  edge.late = 10s;
  monitor.handle_asked(now);
  EXPECT_EQ(feed(0, 4999ms), Verdict::kFine);
  EXPECT_EQ(feed(0, 1ms), Verdict::kSilent);
}

TEST_F(ParentMonitorTest, StreamIsStalledAfterASecondOfSilenceAndSixteenChunksBesideIt) {
  edge.only_parent = true;  // else it is SILENT by then
  for (int i = 0; i < 15; ++i) monitor.handle_chunk_beside(now, true);
  now += 1s;
  EXPECT_EQ(monitor.judge(now, edge), Verdict::kFine);
  monitor.handle_chunk_beside(now, false);
  EXPECT_EQ(monitor.judge(now, edge), Verdict::kFine) << "another parent's chunk proves nothing";
  monitor.handle_chunk_beside(now, true);
  EXPECT_LE(monitor.deadline(edge), now);
  EXPECT_EQ(monitor.judge(now, edge), Verdict::kStalled);
  EXPECT_EQ(monitor.judge(now, edge), Verdict::kFine) << "once";
}

TEST_F(ParentMonitorTest, StreamOnWhichTheParentSpeaksIsNotStalled) {
  for (int i = 0; i < 30; ++i) {
    monitor.handle_chunk_beside(now, true);
    if (i % 5 == 0) monitor.handle_up_to_date(now);
    now += 150ms;
    EXPECT_EQ(monitor.judge(now, edge), Verdict::kFine);
  }
}

TEST_F(ParentMonitorTest, ParentThatServesTheOtherStreamsOfThisChildIsNotSilent) {
  // A slow relay of several children: the turn of one stream of one child comes every few seconds.
  for (int i = 0; i < 6; ++i) {
    now += 800ms;
    monitor.handle_chunk_beside(now, true);
    EXPECT_EQ(monitor.judge(now, edge), Verdict::kFine);
  }
  now += 500ms;
  monitor.handle_chunk_beside(now, false);
  EXPECT_EQ(monitor.deadline(edge), now + 500ms) << "another parent's chunk proves nothing";
  now += 500ms;
  EXPECT_EQ(monitor.judge(now, edge), Verdict::kSilent);
}

TEST_F(ParentMonitorTest, StarvationIsSaidAfterASecondAndTwiceASecond) {
  int said = 0;
  for (const Instant began = now; now < began + 3s; now += 10ms) {
    if (const auto starvation = monitor.starvation(now, edge)) {
      ++said;
      EXPECT_GE(now - began, 1s);
      EXPECT_EQ(starvation->lasts, now - began);
      EXPECT_FALSE(starvation->parent_idle) << "it said nothing";
    }
  }
  EXPECT_EQ(said, 4);
}

TEST_F(ParentMonitorTest, StarvationAccusesAParentThatSaysThatItHasNothingMore) {
  monitor.handle_up_to_date(now);
  now += 1s;
  ASSERT_TRUE(monitor.starvation_due(edge));
  EXPECT_LE(*monitor.starvation_due(edge), now);
  EXPECT_TRUE(monitor.starvation(now, edge)->parent_idle);
}

TEST_F(ParentMonitorTest, StarvationOutlastsAParentAndEndsWithAChunk) {
  now += 900ms;
  monitor.handle_asked(now);  // another one
  now += 100ms;
  EXPECT_TRUE(monitor.starvation(now, edge));
  now += 300ms;
  monitor.handle_chunk(now, kChunkBytes, false, edge);
  now += 900ms;
  EXPECT_FALSE(monitor.starvation(now, edge));
}

TEST_F(ParentMonitorTest, WhoLacksNothingOrExpectsChunksToTakeLongerDoesNotStarve) {
  now += 5s;
  ParentMonitor::Edge complete = edge;
  complete.missing = false;
  EXPECT_FALSE(monitor.starvation(now, complete));
  EXPECT_FALSE(monitor.starvation_due(complete));
  monitor.expect(0.5 * kChunkBytes);
  EXPECT_FALSE(monitor.starvation(now, edge)) << "four chunks take 8 s";
  monitor.expect(0.5 * kChunkBytes, 2);
  EXPECT_TRUE(monitor.starvation(now, edge)) << "of one or the other stream";
  monitor.expect(0.5 * kChunkBytes);
  now += 3s;
  EXPECT_TRUE(monitor.starvation(now, edge));
}

}  // namespace
}  // namespace weightcast
