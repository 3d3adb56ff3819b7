#include "transport/core/manifest/chunk_set.h"

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <set>

namespace weightcast {
namespace {

using Model = std::set<std::uint32_t>;

ChunkSet set_of(std::uint32_t size, const Model& chunks) {
  ChunkSet set(size);
  for (const std::uint32_t chunk : chunks) set.insert(ChunkIndex{chunk});
  return set;
}

Model any_chunks(std::uint32_t size) {
  Model chunks;
  for (std::uint32_t i = 0; i < size; ++i) {
    if (*rc::gen::inRange(0, 2) == 1) chunks.insert(i);
  }
  return chunks;
}

std::optional<ChunkIndex> least_from(const Model& chunks, std::uint32_t from) {
  const auto found = chunks.lower_bound(from);
  return found == chunks.end() ? std::nullopt : std::optional(ChunkIndex{*found});
}

TEST(ChunkSet, CountsEachChunkOnce) {
  ChunkSet set(70);
  EXPECT_TRUE(set.insert(ChunkIndex{69}));
  EXPECT_FALSE(set.insert(ChunkIndex{69}));
  EXPECT_EQ(set.count(), 1u);
  EXPECT_TRUE(set.erase(ChunkIndex{69}));
  EXPECT_FALSE(set.erase(ChunkIndex{69}));
  EXPECT_FALSE(set.erase(ChunkIndex{1000}));
  EXPECT_EQ(set.count(), 0u);
}

TEST(ChunkSet, IsCompleteWhenFullAndOfAnySizeIncludingNone) {
  for (const std::uint32_t size : {0u, 1u, 63u, 64u, 65u, 128u, 200u}) {
    const ChunkSet set(size, true);
    EXPECT_TRUE(set.complete());
    EXPECT_EQ(set.count(), size);
    EXPECT_FALSE(set.contains(ChunkIndex{size}));
    EXPECT_EQ(set.next_missing(ChunkIndex{0}), std::nullopt);
    EXPECT_EQ(ChunkSet(size).next_in(ChunkIndex{0}), std::nullopt);
  }
}

TEST(ChunkSet, WireFormIsBitIOfByteIOver8WithoutTrailingZeros) {
  EXPECT_EQ(set_of(40, {0, 9}).to_bytes(), std::string("\x01\x02", 2));
  EXPECT_EQ(set_of(40, {}).to_bytes(), "");
  EXPECT_EQ(set_of(9, {8}).to_bytes(), std::string("\x00\x01", 2));
}

TEST(ChunkSet, IgnoresBitsPastItsSizeFromTheWire) {
  const ChunkSet set = ChunkSet::from_bytes(3, "\xff\xff\xff");
  EXPECT_EQ(set.count(), 3u);
  EXPECT_TRUE(set.complete());
}

RC_GTEST_PROP(ChunkSet, BehavesLikeAnOrderedSet, ()) {
  const auto size = *rc::gen::inRange(1u, 300u);
  const Model chunks = any_chunks(size), other = any_chunks(size);
  Model missing, without;
  for (std::uint32_t i = 0; i < size; ++i) {
    if (!chunks.contains(i)) missing.insert(i);
    if (chunks.contains(i) && !other.contains(i)) without.insert(i);
  }
  const ChunkSet set = set_of(size, chunks), other_set = set_of(size, other);
  RC_ASSERT(set.count() == chunks.size());
  for (std::uint32_t from = 0; from <= size; ++from) {
    RC_ASSERT(set.contains(ChunkIndex{from}) == chunks.contains(from));
    RC_ASSERT(set.next_in(ChunkIndex{from}) == least_from(chunks, from));
    RC_ASSERT(set.next_missing(ChunkIndex{from}) == least_from(missing, from));
    RC_ASSERT(set.next_in_without(other_set, ChunkIndex{from}) == least_from(without, from));
  }
}

RC_GTEST_PROP(ChunkSet, RoundTripsOverTheWire, ()) {
  const auto size = *rc::gen::inRange(0u, 300u);
  const Model chunks = any_chunks(size);
  const ChunkSet set = ChunkSet::from_bytes(size, set_of(size, chunks).to_bytes());
  RC_ASSERT(set.count() == chunks.size());
  for (const std::uint32_t chunk : chunks) RC_ASSERT(set.contains(ChunkIndex{chunk}));
}

TEST(ChunkSet, GrowsWithoutWhatIsNew) {
  ChunkSet set(3, true);
  set.grow(70);
  EXPECT_EQ(set.size(), 70u);
  EXPECT_EQ(set.count(), 3u);
  EXPECT_EQ(set.next_missing(ChunkIndex{0}), ChunkIndex{3});
  EXPECT_TRUE(set.insert(ChunkIndex{69}));
  EXPECT_EQ(set.next_in(ChunkIndex{3}), ChunkIndex{69});
}

}  // namespace
}  // namespace weightcast
