#pragma once

#include <deque>
#include <unordered_map>

#include "base/ids.h"
#include "transport/io/buffer.h"

namespace weightcast {

/// A chunk among all payloads.
struct ChunkKey {
  PayloadId payload{};
  ChunkIndex chunk{};
  bool operator==(const ChunkKey&) const = default;
};

}  // namespace weightcast

template <>
struct std::hash<weightcast::ChunkKey> {
  std::size_t operator()(const weightcast::ChunkKey& key) const noexcept {
    // Chunks of one payload differ in the low bits; payloads are few.
    return (std::hash<weightcast::PayloadId>{}(key.payload) << 24) ^ key.chunk.value;
  }
};

namespace weightcast {

/// Recent chunks, up to a bound in bytes. It keeps kChunksMin of any size, or none if the bound is 0. Eviction is by
/// age: children follow in order, so age alone matters.
class ChunkCache {
 public:
  /// Enough for the chunks that a child has in flight, and for those that arrive meanwhile.
  static constexpr std::size_t kChunksMin = 4;

  explicit ChunkCache(std::size_t bytes_max) : bytes_max_(bytes_max) {}

  void put(const ChunkKey& key, BufferRef bytes);
  /// Null when it is not (or no longer) there.
  [[nodiscard]] BufferRef find(const ChunkKey& key) const;
  void erase(const ChunkKey& key);
  [[nodiscard]] std::size_t bytes() const { return bytes_; }

 private:
  std::size_t bytes_max_;
  std::size_t bytes_ = 0;  // what the buffers take, which may be more than they hold
  std::unordered_map<ChunkKey, BufferRef> chunks_;
  std::deque<ChunkKey> oldest_first_;  // may name chunks that were erased since
};

}  // namespace weightcast
