#include "transport/node/payload/open_payload.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <random>
#include <thread>

namespace weightcast {
namespace {

constexpr std::uint32_t kChunkBytes = 4096;
constexpr std::uint32_t kPartChunks = 4;
const Checksum kSnapshot = checksum_of({});

Manifest announced() {
  Manifest manifest;
  manifest.model_id = "m";
  manifest.version = Version{3};
  manifest.files = {{"a", 1'000'000}};
  manifest.chunk_bytes = kChunkBytes;
  manifest.part_chunks = kPartChunks;
  manifest.open = true;
  manifest.expected_bytes = 1'000'000;
  return manifest;
}

Instant at(int ms) { return Instant{} + std::chrono::milliseconds(ms); }

ContentDigest digest_no(std::uint32_t chunk) { return content_digest_of(std::as_bytes(std::span(&chunk, 1))); }

std::vector<ContentDigest> digests_of(std::uint32_t first, std::uint32_t end) {
  std::vector<ContentDigest> digests;
  for (std::uint32_t chunk = first; chunk < end; ++chunk) digests.push_back(digest_no(chunk));
  return digests;
}

/// Reports whole chunks [first, end), and returns how many are told; 0: none.
std::uint32_t made(OpenPayload& payload, std::uint32_t first, std::uint32_t end, Instant now = {}) {
  const auto told = payload.handle_made(now, first, digests_of(first, end), std::uint64_t{end - first} * kChunkBytes);
  if (!told) return 0;
  const Manifest& manifest = *told->manifest;
  EXPECT_TRUE(manifest.open);
  EXPECT_EQ(manifest.chunk_count(), told->chunk_digests.size());
  EXPECT_EQ(told->chunk_digests, digests_of(0, manifest.chunk_count()));
  EXPECT_EQ(manifest.part_digests, part_digests_of(told->chunk_digests, kPartChunks));
  EXPECT_TRUE(continues(payload.announced(), manifest));
  return manifest.chunk_count();
}

TEST(OpenPayload, TellsWholePartsFromTheFirstOn) {
  OpenPayload payload(announced(), {});
  EXPECT_EQ(made(payload, 0, 3), 0u);
  EXPECT_EQ(made(payload, 3, 6), 4u);
  EXPECT_EQ(made(payload, 6, 7), 0u);
  EXPECT_EQ(made(payload, 7, 17), 16u);
}

TEST(OpenPayload, TellsNothingBeyondAHole) {
  OpenPayload payload(announced(), {});
  EXPECT_EQ(made(payload, 8, 12), 0u);
  EXPECT_EQ(made(payload, 4, 8), 0u);
  EXPECT_EQ(made(payload, 0, 4), 12u);
}

TEST(OpenPayload, KeepsItsPaceByTime) {
  OpenPayload payload(announced(), {.interval_min = std::chrono::milliseconds(10)});
  EXPECT_EQ(made(payload, 0, 4, at(5)), 4u);
  EXPECT_EQ(made(payload, 4, 8, at(14)), 0u);
  EXPECT_EQ(made(payload, 8, 9, at(15)), 8u);
  EXPECT_EQ(made(payload, 9, 11, at(25)), 0u);  // no part more
  EXPECT_EQ(made(payload, 11, 12, at(26)), 12u);
}

TEST(OpenPayload, KeepsItsPaceByShare) {
  OpenPayload payload(announced(), {.share_min = 0.5});
  EXPECT_EQ(made(payload, 0, 16), 16u);
  EXPECT_EQ(made(payload, 16, 20), 0u);
  EXPECT_EQ(made(payload, 20, 24), 24u);
  EXPECT_EQ(made(payload, 24, 32), 0u);
  EXPECT_EQ(made(payload, 32, 36), 36u);
}

TEST(OpenPayload, TellsAShortChunkWithTheEndAlone) {
  OpenPayload payload(announced(), {});
  // The last part, of which the last chunk is short, before the first one.
  EXPECT_FALSE(payload.handle_made({}, 4, digests_of(4, 8), 3 * kChunkBytes + 100).has_value());
  EXPECT_EQ(made(payload, 0, 4), 4u);
  const MadePayload whole = payload.close(kSnapshot);
  EXPECT_FALSE(whole.manifest->open);
  EXPECT_EQ(whole.manifest->payload_bytes, 7 * kChunkBytes + 100);
  EXPECT_EQ(whole.manifest->snapshot_digest, kSnapshot);
  EXPECT_EQ(whole.manifest->expected_bytes, 0u);
  EXPECT_EQ(whole.chunk_digests, digests_of(0, 8));
  EXPECT_EQ(whole.manifest->part_digests, part_digests_of(whole.chunk_digests, kPartChunks));
}

TEST(OpenPayload, GrowsByWhateverThreadInWhateverOrder) {
  constexpr std::uint32_t kChunks = 4000;
  OpenPayload payload(announced(), {});
  std::vector<std::uint32_t> order(kChunks);
  for (std::uint32_t i = 0; i < kChunks; ++i) order[i] = i;
  std::shuffle(order.begin(), order.end(), std::mt19937(7));
  std::atomic<std::uint32_t> next = 0, most = 0;
  const auto work = [&] {
    for (std::uint32_t i = next++; i < kChunks; i = next++) {
      const std::uint32_t told = made(payload, order[i], order[i] + 1);
      for (std::uint32_t known = most; told > known && !most.compare_exchange_weak(known, told);) {
      }
    }
  };
  {
    const std::jthread other(work);
    work();
  }
  EXPECT_EQ(most, kChunks);
  EXPECT_EQ(payload.close({}).chunk_digests, digests_of(0, kChunks));
}

}  // namespace
}  // namespace weightcast
