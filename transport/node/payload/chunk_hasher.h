#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

#include "base/digest/content_digest.h"

namespace weightcast {

/// The digests of a stream's chunks, made as the stream is.
class ChunkHasher {
 public:
  explicit ChunkHasher(std::uint32_t chunk_bytes) : chunk_bytes_(chunk_bytes) {}

  void update(Bytes bytes) {
    while (!bytes.empty()) {
      const Bytes piece = bytes.first(std::min<std::size_t>(bytes.size(), chunk_bytes_ - filled_));
      digest_.update(piece);
      filled_ += static_cast<std::uint32_t>(piece.size());
      bytes = bytes.subspan(piece.size());
      if (filled_ == chunk_bytes_) end_chunk();
    }
  }
  /// The last chunk may be short.
  void finish() {
    if (filled_ > 0) end_chunk();
  }
  [[nodiscard]] const std::vector<ContentDigest>& digests() const { return digests_; }
  /// Forgets the digests. The next byte begins a chunk: after a whole one, or after finish().
  void forget() { digests_.clear(); }

 private:
  void end_chunk() {
    digests_.push_back(digest_.take());
    filled_ = 0;
  }

  const std::uint32_t chunk_bytes_;
  ContentDigestStream digest_;
  std::uint32_t filled_ = 0;
  std::vector<ContentDigest> digests_;  // of whole chunks
};

}  // namespace weightcast
