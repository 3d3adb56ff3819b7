#pragma once

#include <map>
#include <mutex>
#include <optional>
#include <utility>

#include "patch/snapshot/snapshot_digest.h"

namespace weightcast {

/// Holds the unfinished digests of a snapshot's leaves, so that pieces can be hashed while they pass through memory. A
/// thread takes the digest of the bytes before its piece, updates it, and puts it back for the next piece. If the piece
/// before is not done yet, there is no such digest; the thread does not wait, and the leaf is read back later. Any
/// thread.
class LeafDigests {
 public:
  explicit LeafDigests(std::uint64_t stream_bytes) : stream_bytes_(stream_bytes) {}

  /// The digest of the leaf's bytes before `offset`; nothing if it is not known.
  [[nodiscard]] std::optional<ChecksumStream> take(std::uint64_t offset);

  /// Puts back a digest that covers the leaf up to `end`. Returns the leaf's digest if `end` is the leaf's end.
  std::optional<Checksum> put(std::uint64_t end, ChecksumStream digest);

 private:
  const std::uint64_t stream_bytes_;
  std::mutex mutex_;
  std::map<std::uint64_t, ChecksumStream> open_;  // by where they go on
};

}  // namespace weightcast
