#pragma once

#include <cstdint>
#include <deque>
#include <optional>

#include "base/ids.h"
#include "transport/io/buffer.h"

namespace weightcast {

/// The chunks that one connection is going to send, in the order in which the core asked for them. Some are in memory
/// and others come from the disk, but none overtakes another: a child hashes and writes chunks in their order, and a
/// message that ends a stripe has to follow its last chunk. A Driver owns one per connection.
class SendOrder {
 public:
  struct Chunk {
    PayloadId payload{};
    ChunkIndex chunk{};
    BufferRef bytes;  ///< null until they have been read
  };

  /// Takes the next place. Returns its number, for fill().
  std::uint64_t add(Chunk chunk) {
    chunks_.push_back(std::move(chunk));
    return first_ + chunks_.size() - 1;
  }
  /// Gives the bytes of a place that was added without them.
  void fill(std::uint64_t place, BufferRef bytes) { chunks_.at(place - first_).bytes = std::move(bytes); }
  /// The next chunk, if it has its bytes.
  [[nodiscard]] std::optional<Chunk> poll() {
    if (chunks_.empty() || !chunks_.front().bytes) return std::nullopt;
    std::optional<Chunk> next(std::move(chunks_.front()));
    chunks_.pop_front();
    ++first_;
    return next;
  }

 private:
  std::deque<Chunk> chunks_;
  std::uint64_t first_ = 0;  // the place of the front
};

}  // namespace weightcast
