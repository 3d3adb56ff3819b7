#pragma once

#include <cstdint>
#include <list>
#include <optional>
#include <span>
#include <unordered_map>
#include <vector>

#include "worker/engine/engine_model.h"

namespace weightcast {

/// Names what a block holds together with all that comes before it; never given twice. 0: the beginning.
using PrefixId = std::uint64_t;

/// Who uses which block of a KV cache, and what whole blocks hold, so that equal beginnings are computed once. Pure:
/// the keys and values are elsewhere. One thread.
/// Invariant: used + free + kept == blocks(), where a kept block has no user, and is given away when no free one is
/// left: the one that lost its last user first.
class BlockPool {
 public:
  explicit BlockPool(std::uint32_t blocks);

  [[nodiscard]] std::uint32_t blocks() const { return static_cast<std::uint32_t>(entries_.size()); }
  /// Blocks that allocate() can still give.
  [[nodiscard]] std::uint32_t available() const;
  [[nodiscard]] std::uint32_t used() const { return blocks() - available(); }
  [[nodiscard]] std::uint32_t users(BlockId block) const { return entries_[block].users; }

  /// A block of unknown content with one user. Nothing if all are in use.
  [[nodiscard]] std::optional<BlockId> allocate();
  void add_user(BlockId block);
  /// The last user's leave keeps the block if its content is known. `block` has a user.
  void remove_user(BlockId block);

  /// Blocks that hold the beginning of `tokens`, as many as are known, each with one user more.
  struct Prefix {
    std::vector<BlockId> blocks;
    PrefixId id = 0;
  };
  [[nodiscard]] Prefix match(std::span<const TokenId> tokens);

  /// `block`, which follows what `before` names, now holds these kBlockPositions tokens, and will not change while it
  /// has a user. Gives the name of both together: that of an equal block, if there is one.
  PrefixId remember(BlockId block, PrefixId before, std::span<const TokenId> tokens);
  /// The content of no block is known any more: the weights have changed.
  void forget_content();

 private:
  struct Content {
    PrefixId before = 0;
    std::vector<TokenId> tokens;
    PrefixId id = 0;
  };
  struct Entry {
    std::uint32_t users = 0;
    std::optional<Content> content;
    std::list<BlockId>::iterator kept;  // valid if there is content and no user
  };

  [[nodiscard]] std::optional<BlockId> find(PrefixId before, std::span<const TokenId> tokens) const;
  void forget(BlockId block);

  std::vector<Entry> entries_;
  std::vector<BlockId> free_;  // the last one is given next
  std::list<BlockId> kept_;    // the first one is given next
  std::unordered_multimap<std::uint64_t, BlockId> by_content_;
  PrefixId next_id_ = 1;
};

}  // namespace weightcast
