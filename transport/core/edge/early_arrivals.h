#pragma once

#include <cstdint>
#include <utility>
#include <vector>

#include "base/units.h"
#include "transport/core/action.h"

namespace weightcast {

/// What cannot be judged yet: chunks before the digests of their part, and digest parts of an open payload before the
/// origin has told of them. Pure. Owned by a ChunkVerifier.
/// Invariant: it takes at most kBytesMax of memory, whatever the sizes of its pieces.
class EarlyArrivals {
 public:
  static constexpr std::size_t kBytesMax = 16 * kMiB;

  struct Part {
    ConnId sender{};
    std::uint32_t part = 0;
    std::vector<std::byte> digests;
  };
  struct Chunk {
    ConnId sender{};
    ChunkArrival arrival;
  };

  /// Each returns whether there was room for it.
  [[nodiscard]] bool add(ConnId sender, const ChunkArrival& chunk);
  [[nodiscard]] bool add(ConnId sender, std::uint32_t part, Bytes digests);
  /// Lets go of all that `sender` sent.
  void erase(ConnId sender);

  [[nodiscard]] std::vector<Chunk> take_chunks();
  [[nodiscard]] std::vector<Part> take_parts();
  /// What is kept, with what it takes beside its own bytes.
  [[nodiscard]] std::size_t bytes() const { return chunks_bytes_ + parts_bytes_; }

 private:
  std::vector<Chunk> chunks_;
  std::vector<Part> parts_;
  std::size_t chunks_bytes_ = 0;
  std::size_t parts_bytes_ = 0;
};

}  // namespace weightcast
