#pragma once

#include <algorithm>
#include <cstddef>

#include "base/digest/checksum.h"

namespace weightcast {

/// Brings the next chunk of two streams into the cache while this one is worked on. The processor's own prefetching
/// stops where a chunk ends, and only some sixteen lines may be under way at once, which then take as long as the work
/// on a chunk: so they are asked for a few at a time all through that work, the rest at its end. Never faults, so that
/// asking beyond the end of a stream is harmless.
template <bool SecondIsWritten>
class ChunkPrefetch {
 public:
  ChunkPrefetch(const void* first, const void* second, std::size_t bytes)
      : first_(static_cast<const char*>(first)), second_(static_cast<const char*>(second)), left_(bytes / kLine) {}

  /// Asks for a few lines, `times` over.
  void step(std::size_t times = 1) {
    if (left_ >= kLinesPerStep * times) take(kLinesPerStep * times);
  }
  void finish() { take(left_); }

 private:
  static constexpr std::size_t kLine = 64;
  static constexpr std::size_t kLinesPerStep = 3;

  void take(std::size_t lines) {
    for (std::size_t i = 0; i < lines; ++i) {
      __builtin_prefetch(first_ + i * kLine);
      __builtin_prefetch(second_ + i * kLine, SecondIsWritten);
    }
    first_ += lines * kLine;
    second_ += lines * kLine;
    left_ -= lines;
  }

  const char* first_;
  const char* second_;
  std::size_t left_;
};

/// Hashes a chunk that is in the cache, in pieces, so that the next one's arrival goes on meanwhile.
template <bool SecondIsWritten>
void update_digest(ChecksumStream& digest, Bytes bytes, ChunkPrefetch<SecondIsWritten>& prefetch) {
  constexpr std::size_t kPieceBytes = 1024;
  for (; !bytes.empty(); bytes = bytes.subspan(std::min(bytes.size(), kPieceBytes))) {
    prefetch.step();
    digest.update(bytes.first(std::min(bytes.size(), kPieceBytes)));
  }
}

}  // namespace weightcast
