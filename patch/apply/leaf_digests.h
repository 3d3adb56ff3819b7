#pragma once

#include <map>
#include <mutex>
#include <optional>
#include <utility>

#include "patch/snapshot/snapshot_digest.h"

namespace weightcast {

/// Hashes a snapshot's leaves while their bytes pass through memory, in pieces of any order: who has a piece takes the
/// digest of what stands before it in the leaf, goes on with it, and puts it back for who has the next piece. Nobody
/// waits: where the piece before is not done yet, the leaf is for somebody else to read back. Any thread.
class LeafDigests {
 public:
  explicit LeafDigests(std::uint64_t stream_bytes) : stream_bytes_(stream_bytes) {}

  /// What to update with the bytes from `offset` on; nothing if those before are not known.
  [[nodiscard]] std::optional<DigestStream> take(std::uint64_t offset);

  /// `digest` is up to date as far as `end`. The digest of the leaf if that is its end.
  std::optional<Digest> put(std::uint64_t end, DigestStream digest);

 private:
  const std::uint64_t stream_bytes_;
  std::mutex mutex_;
  std::map<std::uint64_t, DigestStream> open_;  // by where they go on
};

}  // namespace weightcast
