#include "patch/apply/leaf_digests.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <vector>

namespace weightcast {
namespace {

constexpr std::uint64_t kLeaf = kDigestBlockBytes;
constexpr std::uint64_t kStream = 2 * kLeaf + 1000;

struct LeafDigestsTest : testing::Test {
  LeafDigestsTest() : stream(kStream) {
    std::mt19937 random(1);
    for (std::byte& byte : stream) byte = std::byte(random());
  }
  std::optional<Checksum> pass(std::uint64_t begin, std::uint64_t end) {
    std::optional<ChecksumStream> digest = leaves.take(begin);
    if (!digest) return std::nullopt;
    digest->update(Bytes(stream).subspan(begin, end - begin));
    return leaves.put(end, std::move(*digest));
  }
  [[nodiscard]] Checksum leaf(std::uint64_t index) const {
    const std::uint64_t begin = index * kLeaf;
    return checksum_of(Bytes(stream).subspan(begin, std::min(kLeaf, kStream - begin)));
  }

  std::vector<std::byte> stream;
  LeafDigests leaves{kStream};
};

TEST_F(LeafDigestsTest, HashesWholeLeavesInAnyOrder) {
  EXPECT_EQ(pass(2 * kLeaf, kStream), leaf(2));
  EXPECT_EQ(pass(0, kLeaf), leaf(0));
  EXPECT_EQ(pass(kLeaf, 2 * kLeaf), leaf(1));
}

TEST_F(LeafDigestsTest, GoesOnWhereThePieceBeforeEnded) {
  EXPECT_EQ(pass(kLeaf, kLeaf + 10), std::nullopt);
  EXPECT_EQ(pass(0, 77), std::nullopt);
  EXPECT_EQ(pass(kLeaf + 10, 2 * kLeaf), leaf(1));
  EXPECT_EQ(pass(77, 1000), std::nullopt);
  EXPECT_EQ(pass(1000, kLeaf), leaf(0));
}

TEST_F(LeafDigestsTest, LeavesWhatComesTooEarlyToOthers) {
  EXPECT_FALSE(leaves.take(77).has_value());
  EXPECT_EQ(pass(0, 77), std::nullopt);
  EXPECT_TRUE(leaves.take(77).has_value());
  EXPECT_FALSE(leaves.take(77).has_value()) << "one goes on, not two";
}

}  // namespace
}  // namespace weightcast
