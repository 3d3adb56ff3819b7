#include "worker/engine/block_pool.h"

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <map>
#include <set>

#include "base/random.h"

namespace weightcast {
namespace {

std::vector<TokenId> tokens_of(std::initializer_list<TokenId> blocks) {
  std::vector<TokenId> tokens;
  for (const TokenId block : blocks) tokens.insert(tokens.end(), kBlockPositions, block);
  return tokens;
}

/// Computes a sequence of whole blocks, and gives its blocks.
std::vector<BlockId> compute(BlockPool& pool, std::span<const TokenId> tokens) {
  BlockPool::Prefix prefix = pool.match(tokens);
  for (std::size_t i = prefix.blocks.size(); (i + 1) * kBlockPositions <= tokens.size(); ++i) {
    prefix.blocks.push_back(pool.allocate().value());
    prefix.id = pool.remember(prefix.blocks.back(), prefix.id, tokens.subspan(i * kBlockPositions, kBlockPositions));
  }
  return prefix.blocks;
}

void leave(BlockPool& pool, const std::vector<BlockId>& blocks) {
  for (std::size_t i = blocks.size(); i-- > 0;) pool.remove_user(blocks[i]);
}

/// How many blocks of the beginning of `tokens` are known.
std::size_t known(BlockPool& pool, std::span<const TokenId> tokens) {
  const std::vector<BlockId> blocks = pool.match(tokens).blocks;
  leave(pool, blocks);
  return blocks.size();
}

TEST(BlockPool, GivesEachBlockOnce) {
  BlockPool pool(3);
  std::set<BlockId> given;
  for (int i = 0; i < 3; ++i) given.insert(pool.allocate().value());
  EXPECT_EQ(given.size(), 3u);
  EXPECT_FALSE(pool.allocate().has_value());
  pool.remove_user(1);
  EXPECT_EQ(pool.allocate(), BlockId{1});
}

TEST(BlockPool, SharesEqualBeginnings) {
  BlockPool pool(10);
  const auto first = compute(pool, tokens_of({1, 2, 3}));
  const auto second = compute(pool, tokens_of({1, 2, 4}));
  EXPECT_EQ(second[0], first[0]);
  EXPECT_EQ(second[1], first[1]);
  EXPECT_NE(second[2], first[2]);
  EXPECT_EQ(pool.users(first[1]), 2u);
  EXPECT_EQ(pool.used(), 4u);
  // The same tokens after others are something else, and a part of a block is nothing.
  EXPECT_TRUE(pool.match(tokens_of({2, 3})).blocks.empty());
  std::vector<TokenId> part = tokens_of({1});
  part.pop_back();
  EXPECT_TRUE(pool.match(part).blocks.empty());
}

TEST(BlockPool, KeepsWhatNobodyUsesUntilItIsNeeded) {
  BlockPool pool(4);
  const auto old_blocks = compute(pool, tokens_of({1, 2}));
  leave(pool, old_blocks);
  const auto newer = compute(pool, tokens_of({3}));
  leave(pool, newer);
  EXPECT_EQ(pool.used(), 0u);
  EXPECT_EQ(compute(pool, tokens_of({1, 2})), old_blocks);
  leave(pool, old_blocks);
  // Two are free. The third one is the one that was used longest ago, and of its sequence the end.
  for (int i = 0; i < 2; ++i) pool.allocate().value();
  EXPECT_EQ(known(pool, tokens_of({3})), 0u);
  EXPECT_EQ(known(pool, tokens_of({1, 2})), 2u);
  pool.allocate().value();
  EXPECT_EQ(known(pool, tokens_of({1, 2})), 1u);
}

TEST(BlockPool, ForgetsAllContentAtOnce) {
  BlockPool pool(4);
  const auto used = compute(pool, tokens_of({1}));
  leave(pool, compute(pool, tokens_of({2})));
  pool.forget_content();
  EXPECT_EQ(known(pool, tokens_of({1})), 0u);
  EXPECT_EQ(known(pool, tokens_of({2})), 0u);
  EXPECT_EQ(pool.available(), 3u);
  leave(pool, used);
  EXPECT_EQ(pool.available(), 4u);
}

TEST(BlockPool, NamesWhatTwoComputedAtTheSameTimeAlike) {
  BlockPool pool(4);
  const std::vector<TokenId> tokens = tokens_of({1});
  const BlockId a = pool.allocate().value();
  const BlockId b = pool.allocate().value();
  const PrefixId id = pool.remember(a, 0, tokens);
  EXPECT_EQ(pool.remember(b, 0, tokens), id);
  pool.remove_user(b);
  EXPECT_EQ(pool.allocate(), b);  // nobody finds it, so it is free
}

// Against a model in which each block knows all tokens that lead to it.
RC_GTEST_PROP(BlockPool, IsThatOfAPlainModel, (std::uint64_t seed)) {
  Random random(seed);
  const auto blocks = static_cast<std::uint32_t>(1 + random.below(12));
  BlockPool pool(blocks);
  struct Sequence {
    std::vector<TokenId> tokens;
    std::vector<BlockId> blocks;
    PrefixId id = 0;
  };
  std::vector<Sequence> sequences;
  std::map<BlockId, std::vector<TokenId>> content;
  for (int step = 0; step < 200; ++step) {
    const std::uint64_t action = random.below(10);
    if (action < 4) {
      Sequence sequence;
      std::vector<TokenId> wanted;
      for (std::uint64_t i = random.below(4); i-- > 0;) {
        wanted.insert(wanted.end(), kBlockPositions, static_cast<TokenId>(random.below(2)));
      }
      BlockPool::Prefix prefix = pool.match(wanted);
      sequence.blocks = prefix.blocks;
      sequence.id = prefix.id;
      sequence.tokens.assign(wanted.begin(),
                             wanted.begin() + static_cast<std::ptrdiff_t>(prefix.blocks.size() * kBlockPositions));
      // What is found holds just that.
      for (std::size_t i = 0; i < prefix.blocks.size(); ++i) {
        const auto& found = content.at(prefix.blocks[i]);
        RC_ASSERT(found == std::vector<TokenId>(wanted.begin(), wanted.begin() + static_cast<std::ptrdiff_t>(
                                                                                     (i + 1) * kBlockPositions)));
      }
      sequences.push_back(std::move(sequence));
    } else if (action < 8 && !sequences.empty()) {
      Sequence& sequence = sequences[random.below(sequences.size())];
      const std::uint32_t available = pool.available();
      const auto block = pool.allocate();
      RC_ASSERT(block.has_value() == (available > 0));
      if (!block) continue;
      for (const Sequence& other : sequences) {
        RC_ASSERT(std::find(other.blocks.begin(), other.blocks.end(), *block) == other.blocks.end());
      }
      content.erase(*block);
      sequence.blocks.push_back(*block);
      const std::vector<TokenId> added(kBlockPositions, static_cast<TokenId>(random.below(2)));
      sequence.tokens.insert(sequence.tokens.end(), added.begin(), added.end());
      sequence.id = pool.remember(*block, sequence.id, added);
      content[*block] = sequence.tokens;
    } else if (action == 8 && !sequences.empty()) {
      const std::size_t which = random.below(sequences.size());
      leave(pool, sequences[which].blocks);
      sequences.erase(sequences.begin() + static_cast<std::ptrdiff_t>(which));
    } else if (action == 9 && random.chance(0.1)) {
      // Those that run on have no names any more, as in the engine.
      pool.forget_content();
      for (Sequence& sequence : sequences) leave(pool, sequence.blocks);
      sequences.clear();
      content.clear();
    }
    std::set<BlockId> used;
    std::map<BlockId, std::uint32_t> users;
    for (const Sequence& sequence : sequences) {
      for (const BlockId block : sequence.blocks) {
        used.insert(block);
        ++users[block];
      }
    }
    RC_ASSERT(pool.used() == used.size());
    for (const auto& [block, count] : users) RC_ASSERT(pool.users(block) == count);
  }
}

}  // namespace
}  // namespace weightcast
