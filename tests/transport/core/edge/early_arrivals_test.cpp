#include "transport/core/edge/early_arrivals.h"

#include <gtest/gtest.h>

namespace weightcast {
namespace {

constexpr ConnId kSender{1}, kOther{2};

ChunkArrival chunk_of_bytes(std::uint32_t size) { return {Version{1}, ChunkIndex{0}, size, {}, nullptr}; }

TEST(EarlyArrivals, KeepsNoMoreThanItsBoundHoweverItIsCut) {
  // A buffer takes whole pages, be the chunk ever so small.
  for (const auto& [size, pages] : {std::pair(1u, 1u), {4096u, 1u}, {4097u, 2u}, {4u << 20, 1024u}}) {
    EarlyArrivals early;
    std::size_t taken = 0;
    while (early.add(kSender, chunk_of_bytes(size))) taken += pages * 4096 + sizeof(EarlyArrivals::Chunk);
    EXPECT_LE(taken, EarlyArrivals::kBytesMax) << size;
    EXPECT_GT(taken, EarlyArrivals::kBytesMax * 3 / 4) << size;
  }
  for (const std::size_t size : {16u, 1024u, 16384u}) {
    EarlyArrivals early;
    const std::vector<std::byte> list(size);
    std::size_t taken = 0;
    while (early.add(kSender, 0, list)) taken += size + sizeof(EarlyArrivals::Part);
    EXPECT_LE(taken, EarlyArrivals::kBytesMax) << size;
    EXPECT_LE(early.bytes(), EarlyArrivals::kBytesMax);
  }
}

TEST(EarlyArrivals, ChunksAndPartsShareTheBound) {
  EarlyArrivals early;
  while (early.add(kSender, chunk_of_bytes(1 << 20))) {
  }
  const std::vector<std::byte> list(16384);
  std::size_t parts = 0;
  while (early.add(kSender, 0, list)) ++parts;
  EXPECT_LT(parts, 64u);
  EXPECT_LE(early.bytes(), EarlyArrivals::kBytesMax);
}

TEST(EarlyArrivals, LetsGoOfWhatOneSenderSentAndCountsRightAfterwards) {
  EarlyArrivals early;
  const std::vector<std::byte> list(16);
  ASSERT_TRUE(early.add(kSender, chunk_of_bytes(4096)));
  ASSERT_TRUE(early.add(kSender, 7, list));
  const std::size_t one = early.bytes();
  ASSERT_TRUE(early.add(kOther, chunk_of_bytes(4096)));
  ASSERT_TRUE(early.add(kOther, 8, list));
  early.erase(kSender);
  EXPECT_EQ(early.bytes(), one);
  const auto chunks = early.take_chunks();
  ASSERT_EQ(chunks.size(), 1u);
  EXPECT_EQ(chunks[0].sender, kOther);
  const auto parts = early.take_parts();
  ASSERT_EQ(parts.size(), 1u);
  EXPECT_EQ(parts[0].part, 8u);
  EXPECT_EQ(early.bytes(), 0u);
}

}  // namespace
}  // namespace weightcast
