#include "trainer/parallel/shards.h"

#include <gtest/gtest.h>

#include "base/random.h"

namespace weightcast {
namespace {

TEST(Shards, BelongToOneRankWhereThereIsOne) {
  const std::vector<std::size_t> cells{100, 7};
  EXPECT_EQ(make_shards(cells, 1, 64), (std::vector<std::vector<Shard>>{{{0, 0, 100}, {1, 0, 7}}}));
}

TEST(Shards, DivideAtBlocks) {
  const std::vector<std::size_t> cells{128, 60, 68};
  // 256 cells in blocks of 64, 64, 60, 64, 4.
  EXPECT_EQ(make_shards(cells, 2, 64), (std::vector<std::vector<Shard>>{{{0, 0, 128}}, {{1, 0, 60}, {2, 0, 68}}}));
  EXPECT_EQ(make_shards(cells, 4, 64),
            (std::vector<std::vector<Shard>>{{{0, 0, 64}}, {{0, 64, 64}}, {{1, 0, 60}}, {{2, 0, 68}}}));
}

TEST(Shards, HoldEachCellOnceAndNearlyEquallyMany) {
  constexpr std::size_t kBlock = 64;
  for (std::uint64_t seed = 0; seed < 300; ++seed) {
    Random random(seed);
    std::vector<std::size_t> tensors;
    std::size_t total = 0;
    for (std::uint64_t i = 1 + random.below(20); i > 0; --i) {
      tensors.push_back(random.below(1000));
      total += tensors.back();
    }
    const auto ranks = static_cast<std::uint32_t>(1 + random.below(8));
    const auto shards = make_shards(tensors, ranks, kBlock);
    ASSERT_EQ(shards.size(), ranks);
    std::size_t tensor = 0, next = 0;
    for (const auto& of_rank : shards) {
      for (const Shard& shard : of_rank) {
        while (tensor < tensors.size() && next == tensors[tensor]) {
          ++tensor;
          next = 0;
        }
        EXPECT_EQ(shard.tensor, tensor) << "seed " << seed;
        EXPECT_EQ(shard.first, next) << "seed " << seed;
        EXPECT_EQ(shard.first % kBlock, 0u) << "seed " << seed;
        next += shard.cells;
      }
      EXPECT_LT(cells_of(of_rank), total / ranks + 2 * kBlock) << "seed " << seed;
      EXPECT_EQ(cells_between(of_rank, 0, 1) + cells_between(of_rank, 1, tensors.size()), cells_of(of_rank));
    }
    std::size_t sum = 0;
    for (const auto& of_rank : shards) sum += cells_of(of_rank);
    EXPECT_EQ(sum, total) << "seed " << seed;
  }
}

}  // namespace
}  // namespace weightcast
