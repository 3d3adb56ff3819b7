#pragma once

#include <bit>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/ids.h"

namespace weightcast {

/// A set of chunks of one payload, as a bitmap. Pure.
/// Invariant: count() is the number of set bits; no bit at or past size() is set.
class ChunkSet {
 public:
  ChunkSet() = default;
  explicit ChunkSet(std::uint32_t size, bool full = false);

  [[nodiscard]] std::uint32_t size() const { return size_; }
  [[nodiscard]] std::uint32_t count() const { return count_; }
  [[nodiscard]] bool complete() const { return count_ == size_; }
  [[nodiscard]] bool contains(ChunkIndex chunk) const {
    return chunk.value < size_ && ((words_[chunk.value / 64] >> (chunk.value % 64)) & 1) != 0;
  }

  /// Makes room for more chunks, which are not in the set. `size` is not below size().
  void grow(std::uint32_t size);
  /// Returns whether `chunk` was new. `chunk` must be below size().
  bool insert(ChunkIndex chunk);
  /// Returns whether `chunk` was there.
  bool erase(ChunkIndex chunk);

  /// The least chunk >= from that is (or is not) in the set.
  [[nodiscard]] std::optional<ChunkIndex> next_in(ChunkIndex from) const;
  [[nodiscard]] std::optional<ChunkIndex> next_missing(ChunkIndex from) const;
  /// The least chunk >= from that is in this set and not in `other` (of the same size).
  [[nodiscard]] std::optional<ChunkIndex> next_in_without(const ChunkSet& other, ChunkIndex from) const;

  /// The wire form: bit i of byte i / 8, trailing zero bytes left out.
  [[nodiscard]] std::string to_bytes() const;
  /// Bits at or past `size` are ignored.
  [[nodiscard]] static ChunkSet from_bytes(std::uint32_t size, std::string_view bytes);

 private:
  std::uint32_t size_ = 0;
  std::uint32_t count_ = 0;
  std::vector<std::uint64_t> words_;
};

}  // namespace weightcast
