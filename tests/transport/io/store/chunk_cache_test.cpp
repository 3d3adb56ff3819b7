#include "transport/io/store/files/chunk_cache.h"

#include <gtest/gtest.h>

#include <vector>

#include "base/units.h"

namespace weightcast {
namespace {

constexpr std::size_t kChunkBytes = 64 * kKiB;

ChunkKey key_of(std::uint32_t chunk) { return {Version{1}, ChunkIndex{chunk}}; }

void put(ChunkCache& cache, std::uint32_t chunk, std::size_t bytes = kChunkBytes) {
  cache.put(key_of(chunk), std::make_shared<Buffer>(bytes));
}

std::vector<std::uint32_t> kept_of(const ChunkCache& cache, std::uint32_t count) {
  std::vector<std::uint32_t> kept;
  for (std::uint32_t chunk = 0; chunk < count; ++chunk) {
    if (cache.find(key_of(chunk)) != nullptr) kept.push_back(chunk);
  }
  return kept;
}

TEST(ChunkCache, KeepsTheLastChunksWithinItsBound) {
  ChunkCache cache(8 * kChunkBytes);
  for (std::uint32_t chunk = 0; chunk < 20; ++chunk) put(cache, chunk);
  EXPECT_EQ(kept_of(cache, 20), (std::vector<std::uint32_t>{12, 13, 14, 15, 16, 17, 18, 19}));
  EXPECT_EQ(cache.bytes(), 8 * kChunkBytes);
}

TEST(ChunkCache, KeepsAFewLargeChunksBeyondItsBound) {
  ChunkCache cache(kChunkBytes);
  for (std::uint32_t chunk = 0; chunk < 9; ++chunk) put(cache, chunk, 2 * kChunkBytes);
  EXPECT_EQ(kept_of(cache, 9), (std::vector<std::uint32_t>{5, 6, 7, 8}));
}

TEST(ChunkCache, KeepsNothingWhereTheBoundIsNothing) {
  ChunkCache cache(0);
  put(cache, 1, 1);
  EXPECT_EQ(cache.find(key_of(1)), nullptr);
  EXPECT_EQ(cache.bytes(), 0u);
}

TEST(ChunkCache, CountsAChunkThatIsPutAgainOnceAndForgetsWhatIsErased) {
  ChunkCache cache(8 * kChunkBytes);
  put(cache, 1);
  put(cache, 1);
  put(cache, 2);
  cache.erase(key_of(2));
  cache.erase(key_of(2));
  EXPECT_EQ(cache.bytes(), kChunkBytes);
  for (std::uint32_t chunk = 3; chunk < 30; ++chunk) put(cache, chunk);
  EXPECT_EQ(kept_of(cache, 30).size(), 8u);
}

}  // namespace
}  // namespace weightcast
