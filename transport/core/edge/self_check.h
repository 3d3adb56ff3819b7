#pragma once

#include <map>
#include <optional>
#include <utility>

#include "base/time.h"
#include "transport/core/action.h"
#include "transport/core/edge/holdings.h"

namespace weightcast {

/// Checks chunks that a child calls damaged: has them read from the disk and hashed. Pure. Owned by a Core.
/// Invariant: at most kChecksMax checks are under way, at most kChunkChecksMax are made within kRecheckAfter, and a
/// chunk that was right is not read again for so long.
/// So a child that lies costs little.
class SelfCheck {
 public:
  static constexpr std::size_t kChecksMax = 4;
  static constexpr Duration kRecheckAfter = std::chrono::seconds(10);

  SelfCheck(const Holdings& holdings, ActionQueue& actions) : holdings_(holdings), actions_(actions) {}

  /// A child's digest of the chunk did not match, or the chunk could not be read.
  void handle_suspected(Instant now, PayloadId payload, ChunkIndex chunk);
  /// What CheckChunk found. Returns what is wrong with the chunk; nothing if it is right, or held no more.
  [[nodiscard]] std::optional<Error> handle_checked(Instant now, PayloadId payload, ChunkIndex chunk,
                                                    const Result<ContentDigest>& digest);

 private:
  using Key = std::pair<PayloadId, ChunkIndex>;

  const Holdings& holdings_;
  ActionQueue& actions_;
  std::map<Key, std::optional<Instant>> checks_;  // when it was found right; nothing while it is looked at
};

}  // namespace weightcast
