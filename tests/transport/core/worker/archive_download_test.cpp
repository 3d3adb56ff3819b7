#include "transport/core/worker/archive_download.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/transport/core/edge/download_fixture.h"

namespace weightcast {
namespace {

using namespace std::chrono_literals;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::SizeIs;

/// A download of 3000 chunks of 4 KiB in three parts, fed by peer 2, and an archive beside it.
struct ArchiveDownloadTest : DownloadTest {
  static constexpr std::uint32_t kMany = 3000;
  static constexpr std::uint32_t kFirstRange = kMany / 16;  // of four that take a quarter

  ArchiveDownloadTest() : DownloadTest(manifest_of(kVersion, kMany)) { config.archive = ArchiveLimits{}; }

  WorkerConfig config;
  std::uint32_t requests = 0;
  ArchiveDownload archive{config, download, holding, queue, requests};
  std::vector<Action> last;

  void SetUp() override {
    DownloadTest::SetUp();
    start(assignment(1, {{2, 0}}));
    queue.protocols().agree(conn_to(2), kProtocolVersion);
  }
  std::vector<Action>& act() { return last = actions(); }
  std::uint32_t find() {
    archive.handle_ready(now);
    const auto asked = only<action::FindArchived>(act());
    return asked.empty() ? 0 : asked.back().request;
  }
  std::vector<action::ReadArchived> found() {
    const std::uint32_t request = find();
    EXPECT_TRUE(archive.handle_found(now, request, chunk_digests(kVersion, kMany)));
    return only<action::ReadArchived>(act());
  }
  /// Of `range`, `chunks` from its `from`th on.
  void bring(const action::ReadArchived& range, std::uint32_t from, std::uint32_t chunks) {
    for (std::uint32_t i = from; i < from + chunks; ++i) {
      (void)archive.handle_chunk(now, range.request, chunk_of(kVersion, ChunkIndex{range.first.value + i}));
    }
  }
  void bring_all(const action::ReadArchived& range) {
    bring(range, 0, range.chunks);
    archive.handle_ended(now, range.request, {});
  }
  void pass(Duration time) {
    for (const Instant until = now + time; now < until;) {
      now = std::min(until, std::max(now, archive.poll_deadline().value_or(until)));
      archive.handle_timeout(now);
      if (!archive.poll_deadline() || *archive.poll_deadline() > until) now = until;
    }
  }
  std::vector<std::pair<std::uint32_t, std::uint32_t>> skipped() {
    std::vector<std::pair<std::uint32_t, std::uint32_t>> ranges;
    for (const auto& send : only<action::Send>(last)) {
      if (send.message.has_skip()) ranges.emplace_back(send.message.skip().first_chunk(), send.message.skip().chunks());
    }
    return ranges;
  }
  std::vector<std::string> warnings() {
    std::vector<std::string> texts;
    for (const auto& log : only<action::Log>(last)) {
      if (log.level == action::Log::Level::kWarning) texts.push_back(log.text);
    }
    return texts;
  }
};

TEST_F(ArchiveDownloadTest, AsksForRangesFromTheEndAndTellsTheParentToSkipThem) {
  const auto ranges = found();
  ASSERT_THAT(ranges, SizeIs(4));
  EXPECT_EQ(ranges[0].first.value + ranges[0].chunks, kMany);
  EXPECT_EQ(ranges[0].chunks, kFirstRange);
  for (std::size_t i = 1; i < ranges.size(); ++i) {
    EXPECT_EQ(ranges[i].first.value + ranges[i].chunks, ranges[i - 1].first.value);
  }
  ASSERT_THAT(skipped(), SizeIs(4));
  EXPECT_EQ(skipped()[0], (std::pair{ranges[0].first.value, ranges[0].chunks}));
  EXPECT_EQ(download.wanted_of_parents(), ranges[3].first.value);
}

TEST_F(ArchiveDownloadTest, MeetsTheParentWithoutAChunkThatComesTwice) {
  auto ranges = found();
  std::uint32_t front = 0;
  ChunkSet seen(kMany);
  const auto take_once = [&](ChunkIndex chunk) { EXPECT_TRUE(seen.insert(chunk)) << chunk.value; };
  while (!holding.complete()) {
    ASSERT_FALSE(ranges.empty() && download.wanted_of_parents() == 0);
    if (download.wanted_of_parents() > 0) {
      take_once(ChunkIndex{front});
      ASSERT_TRUE(download.handle_chunk(now, conn_to(2), chunk_of(kVersion, ChunkIndex{front++})));
    }
    if (ranges.empty()) continue;
    for (std::uint32_t i = 0; i < ranges[0].chunks; ++i) take_once(ChunkIndex{ranges[0].first.value + i});
    now += 10ms;
    bring_all(ranges[0]);
    ranges.erase(ranges.begin());
    for (const auto& next : only<action::ReadArchived>(act())) ranges.push_back(next);
  }
  EXPECT_TRUE(holding.complete());
  EXPECT_TRUE(seen.complete());
  EXPECT_FALSE(download.uses(conn_to(2)));
  EXPECT_THAT(fault_kinds(), IsEmpty());
}

TEST_F(ArchiveDownloadTest, CompletesAloneWhenAllPeersAreGone) {
  auto ranges = found();
  links.handle_closed(conn_to(2));
  download.handle_closed(now, conn_to(2));
  while (!ranges.empty()) {
    now += 10ms;
    bring_all(ranges[0]);
    ranges.erase(ranges.begin());
    for (const auto& next : only<action::ReadArchived>(act())) ranges.push_back(next);
  }
  EXPECT_TRUE(holding.complete());
}

TEST_F(ArchiveDownloadTest, WhatItDoesNotBringIsAskedOfTheParentAnew) {
  const auto ranges = found();
  bring(ranges[1], 0, 10);
  archive.handle_ended(now, ranges[1].request, fail(Errc::kIo, Op::kReceive, "cut"));
  act();
  EXPECT_THAT(only<action::EndArchived>(last), SizeIs(1)) << "the others go on";
  EXPECT_THAT(warnings(), ElementsAre(HasSubstr("cut")));
  EXPECT_THAT(archive.trouble(), HasSubstr("cut"));
  EXPECT_EQ(download.wanted_of_parents(), ranges[3].first.value + ranges[1].chunks - 10);
  ASSERT_THAT(only<action::Send>(last), SizeIs(1));
  EXPECT_TRUE(only<action::Send>(last)[0].message.unsubscribe().answer());
  download.handle_unsubscribed(now, conn_to(2), 0);
  act();
  ASSERT_THAT(only<action::Send>(last), SizeIs(1));
  const auto held = ChunkSet::from_bytes(kMany, only<action::Send>(last)[0].message.subscribe().chunks_held());
  EXPECT_EQ(held.count(), kMany - download.wanted_of_parents()) << "and what is still expected";
  // A late word of the range that was ended changes nothing.
  bring(ranges[1], 10, 1);
  EXPECT_EQ(holding.verified().count(), 10u);
  pass(ArchiveDownload::kPauseMin / 2);
  EXPECT_THAT(only<action::ReadArchived>(act()), IsEmpty());
  pass(ArchiveDownload::kPauseMin);
  EXPECT_THAT(only<action::ReadArchived>(act()), SizeIs(1));
}

TEST_F(ArchiveDownloadTest, IsAskedAgainAfterPausesThatGrowAndSaysSoOnce) {
  std::uint32_t request = find();
  std::vector<Duration> pauses;
  std::size_t said = 0;
  for (int i = 0; i < 9; ++i) {
    archive.handle_found(now, request, fail(Errc::kNotFound, Op::kRead, "it does not have version 3 whole"));
    said += (act(), warnings().size());
    const Instant failed_at = now;
    std::vector<action::FindArchived> asked;
    while (asked.empty()) {
      ASSERT_TRUE(archive.poll_deadline());
      now = *archive.poll_deadline();
      archive.handle_timeout(now);
      asked = only<action::FindArchived>(act());
    }
    request = asked[0].request;
    pauses.push_back(now - failed_at);
  }
  EXPECT_EQ(said, 1u);
  EXPECT_THAT(pauses, ElementsAre(1s, 2s, 4s, 8s, 16s, 32s, 60s, 60s, 60s));
}

TEST_F(ArchiveDownloadTest, OneThatLiesIsNotAskedAgain) {
  const auto ranges = found();
  EXPECT_FALSE(archive.handle_chunk(now, ranges[0].request, chunk_of(kVersion, ranges[0].first, true)));
  EXPECT_THAT(archive.trouble(), HasSubstr("not what was published"));
  EXPECT_FALSE(archive.poll_deadline());
  EXPECT_EQ(download.wanted_of_parents(), kMany);
  EXPECT_EQ(holding.verified().count(), 0u);
  EXPECT_THAT(fault_kinds(), IsEmpty()) << "no parent is to blame";
}

TEST_F(ArchiveDownloadTest, ChunksOutOfARangeAreLies) {
  const auto ranges = found();
  EXPECT_FALSE(archive.handle_chunk(now, ranges[0].request, chunk_of(kVersion, ChunkIndex{0})));
  EXPECT_FALSE(archive.poll_deadline());
}

TEST_F(ArchiveDownloadTest, DigestsOfOtherBytesAreRefused) {
  auto digests = chunk_digests(kVersion, kMany);
  digests[2500] = content_digest_of({});
  EXPECT_FALSE(archive.handle_found(now, find(), digests));
  EXPECT_FALSE(archive.poll_deadline());
  EXPECT_FALSE(holding.part_known(2));
}

TEST_F(ArchiveDownloadTest, FewerDigestsThanChunksAreRefused) {
  EXPECT_FALSE(archive.handle_found(now, find(), chunk_digests(kVersion, kMany - 1)));
  EXPECT_FALSE(archive.poll_deadline());
}

TEST_F(ArchiveDownloadTest, WhatStallsIsGivenUpInTime) {
  const auto ranges = found();
  bring(ranges[0], 0, 1);
  pass(ArchiveDownload::kPatience + 1s);
  act();
  EXPECT_THAT(warnings(), ElementsAre(HasSubstr("nothing came for")));
  EXPECT_THAT(only<action::EndArchived>(last), SizeIs(4));
}

TEST_F(ArchiveDownloadTest, OneThatDoesNotAnswerIsGivenUpInTime) {
  ASSERT_NE(find(), 0u);
  pass(ArchiveDownload::kPatience + 1s);
  act();
  EXPECT_THAT(warnings(), ElementsAre(HasSubstr("does not answer")));
}

TEST_F(ArchiveDownloadTest, IsReadOnlyWhileParentsBringLessThanTold) {
  config.archive->below = Rate{40'000};
  Assignment plan = assignment(2, {{2, 0}});
  plan.stripes[0].predicted_bytes_per_s = 50'000;
  ASSERT_TRUE(download.assign(now, kSelf, plan).has_value());
  EXPECT_EQ(find(), 0u) << "the plan promises more";
  pass(2s);
  EXPECT_THAT(only<action::FindArchived>(act()), SizeIs(1)) << "parents bring less";
}

TEST_F(ArchiveDownloadTest, TakesNoMoreOfTheDownlinkThanParentsLeave) {
  config.downlink = Rate{100'000};
  Assignment plan = assignment(2, {{2, 0}});
  plan.stripes[0].predicted_bytes_per_s = 60'000;
  ASSERT_TRUE(download.assign(now, kSelf, plan).has_value());
  const auto ranges = found();
  ASSERT_FALSE(ranges.empty());
  EXPECT_NEAR(ranges[0].rate.bytes_per_s, 34'000, 1);
}

TEST_F(ArchiveDownloadTest, IsNotAskedWhereParentsFillTheDownlink) {
  config.downlink = Rate{100'000};
  Assignment plan = assignment(2, {{2, 0}});
  plan.stripes[0].predicted_bytes_per_s = 95'000;
  ASSERT_TRUE(download.assign(now, kSelf, plan).has_value());
  EXPECT_EQ(find(), 0u);
}

TEST_F(ArchiveDownloadTest, IsNotAskedForMoreWhileTheDiskIsBehind) {
  const auto ranges = found();
  archive.handle_disk_behind(now, true);
  bring_all(ranges[0]);
  EXPECT_THAT(only<action::ReadArchived>(act()), IsEmpty());
  archive.handle_disk_behind(now, false);
  EXPECT_THAT(only<action::ReadArchived>(act()), SizeIs(1));
}

TEST_F(ArchiveDownloadTest, LeavesToFasterParentsWhatIsLeftAtTheEnd) {
  const auto ranges = found();
  const std::uint32_t rest = download.wanted_of_parents();
  for (std::uint32_t c = 0; c < rest; ++c) {
    if (c % 500 == 499) pass(500ms);
    ASSERT_TRUE(download.handle_chunk(now, conn_to(2), chunk_of(kVersion, ChunkIndex{c})));
    bring(ranges[0], c / 200, c % 200 == 0 ? 1 : 0);
  }
  act();
  pass(1s);
  act();
  EXPECT_THAT(only<action::EndArchived>(last), SizeIs(testing::Ge(3u)));
  EXPECT_GT(download.wanted_of_parents(), 0u);
  EXPECT_THAT(warnings(), IsEmpty()) << "nothing is wrong";
  EXPECT_THAT(only<action::ReadArchived>(last), IsEmpty());
}

TEST_F(ArchiveDownloadTest, EndsWhatIsUnderWayWhenItIsCancelled) {
  (void)found();
  archive.cancel();
  EXPECT_THAT(only<action::EndArchived>(act()), SizeIs(4));
  EXPECT_FALSE(archive.poll_deadline());
}

}  // namespace
}  // namespace weightcast
