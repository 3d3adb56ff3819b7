// A download of a payload that is still being made.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/transport/core/edge/download_fixture.h"

namespace weightcast {
namespace {

using namespace std::chrono_literals;
using testing::ElementsAre;

struct OpenDownloadTest : DownloadTest {
  static constexpr PayloadId kPatch = patch_of(kVersion, Version{2});

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
