#include "worker/engine/block_pool.h"

#include <algorithm>

#include "base/random.h"

namespace weightcast {
namespace {

std::uint64_t hash_of(PrefixId before, std::span<const TokenId> tokens) {
  Random random(before);
  std::uint64_t hash = random.next();
  for (const TokenId token : tokens) {
    Random mixed(hash ^ static_cast<std::uint64_t>(token));
    hash = mixed.next();
  }
  return hash;
}

}  // namespace

BlockPool::BlockPool(std::uint32_t blocks) : entries_(blocks) {
  // The low ones first, so that a cache that is hardly used takes few pages of memory.
  for (BlockId block = blocks; block-- > 0;) free_.push_back(block);
}

std::uint32_t BlockPool::available() const { return static_cast<std::uint32_t>(free_.size() + kept_.size()); }

std::optional<BlockId> BlockPool::allocate() {
  if (free_.empty()) {
    if (kept_.empty()) return std::nullopt;
    const BlockId oldest = kept_.front();
    forget(oldest);
    kept_.pop_front();
    free_.push_back(oldest);
  }
  const BlockId block = free_.back();
  free_.pop_back();
  entries_[block].users = 1;
  return block;
}

void BlockPool::add_user(BlockId block) {
  Entry& entry = entries_[block];
  if (entry.users == 0) {
    WC_CHECK(entry.content.has_value());
    kept_.erase(entry.kept);
  }
  ++entry.users;
}

void BlockPool::remove_user(BlockId block) {
  Entry& entry = entries_[block];
  WC_CHECK(entry.users > 0);
  if (--entry.users > 0) return;
  if (entry.content) {
    entry.kept = kept_.insert(kept_.end(), block);
  } else {
    free_.push_back(block);
  }
}

std::optional<BlockId> BlockPool::find(PrefixId before, std::span<const TokenId> tokens) const {
  const auto [begin, end] = by_content_.equal_range(hash_of(before, tokens));
  for (auto candidate = begin; candidate != end; ++candidate) {
    // Compared, since a stranger may choose prompts whose hashes are equal.
    const Content& content = *entries_[candidate->second].content;
    if (content.before == before && std::equal(tokens.begin(), tokens.end(), content.tokens.begin())) {
      return candidate->second;
    }
  }
  return std::nullopt;
}

BlockPool::Prefix BlockPool::match(std::span<const TokenId> tokens) {
  Prefix prefix;
  for (std::size_t first = 0; first + kBlockPositions <= tokens.size(); first += kBlockPositions) {
    const auto block = find(prefix.id, tokens.subspan(first, kBlockPositions));
    if (!block) break;
    add_user(*block);
    prefix.blocks.push_back(*block);
    prefix.id = entries_[*block].content->id;
  }
  return prefix;
}

PrefixId BlockPool::remember(BlockId block, PrefixId before, std::span<const TokenId> tokens) {
  WC_CHECK(tokens.size() == kBlockPositions && entries_[block].users > 0);
  if (const auto equal = find(before, tokens)) return entries_[*equal].content->id;
  forget(block);
  entries_[block].content = Content{before, {tokens.begin(), tokens.end()}, next_id_++};
  by_content_.emplace(hash_of(before, tokens), block);
  return entries_[block].content->id;
}

void BlockPool::forget(BlockId block) {
  Entry& entry = entries_[block];
  if (!entry.content) return;
  const auto [begin, end] = by_content_.equal_range(hash_of(entry.content->before, entry.content->tokens));
  by_content_.erase(std::find_if(begin, end, [block](const auto& item) { return item.second == block; }));
  entry.content.reset();
}

void BlockPool::forget_content() {
  by_content_.clear();
  for (Entry& entry : entries_) entry.content.reset();
  free_.insert(free_.end(), kept_.rbegin(), kept_.rend());
  kept_.clear();
}

}  // namespace weightcast
