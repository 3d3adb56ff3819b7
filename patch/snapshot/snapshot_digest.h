#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "base/digest/checksum.h"
#include "base/result.h"
#include "patch/snapshot/file_table.h"

namespace weightcast {

class SnapshotSource;

/// Bytes of the snapshot stream under one leaf.
inline constexpr std::uint64_t kDigestBlockBytes = std::uint64_t{4} << 20;

/// One sum for each leaf of a snapshot, in order.
using LeafSums = std::vector<std::uint64_t>;

/// How many leaves a snapshot stream of that size has.
[[nodiscard]] constexpr std::size_t leaf_count_of(std::uint64_t stream_bytes) {
  return (stream_bytes + kDigestBlockBytes - 1) / kDigestBlockBytes;
}

/// The sum of bytes that stand at `offset` of a stream: see SnapshotDigest. Of a leaf's bytes it is the leaf.
[[nodiscard]] std::uint64_t stream_sum(std::uint64_t offset, Bytes bytes);

/// By how much the leaves change when bytes of a range of the stream become others. One thread at a time.
class LeafChange {
 public:
  /// Of bytes [begin, end) of the stream.
  LeafChange(std::uint64_t begin, std::uint64_t end);

  /// Bytes that counted as 0 are these. All bytes lie within the range.
  void add(std::uint64_t offset, Bytes bytes);
  /// These bytes count as 0 from now on.
  void remove(std::uint64_t offset, Bytes bytes);
  /// Cells of `cell_bytes` (1, 2, 4 or 8) have become others. `cells` are their indices within a range that begins at
  /// `offset`, ascending; `before` and `after` have one cell for each.
  void replace(std::uint64_t offset, unsigned cell_bytes, std::span<const std::uint32_t> cells, Bytes before,
               Bytes after);

 private:
  friend class SnapshotDigest;
  template <typename Cell>
  void replace_cells(std::uint64_t offset, std::span<const std::uint32_t> cells, Bytes before, Bytes after);
  void put(std::uint64_t offset, Bytes bytes, bool negative);

  std::size_t first_leaf_;
  LeafSums sums_;  // to be added, of the leaves from the first on
};

/// The digest that identifies a snapshot: of its file names, sizes and bytes. Its leaves are sums, so that they can be
/// computed in any order and by several threads, and follow from the cells that a step changes:
///
///   word k   bytes [4 k, 4 k + 4) of the snapshot stream as a number, LE; bytes past the end are 0
///   leaf i   the sum of word k * a(k mod 1024) * b(k div 1024), modulo 2^64, over the words of bytes
///            [i * 4 MiB, (i + 1) * 4 MiB)
///   a(j)     the high 32 bits of mix(j), with the lowest of them set
///   b(n)     mix(2^32 + n), with the lowest bit set
///   mix(x)   splitmix64's output for state x: z = x + 0x9e3779b97f4a7c15; z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9;
///            z = (z ^ z >> 27) * 0x94d049bb133111eb; z ^ z >> 31
///   root     XXH3-128 of:
///     8 bytes        "wc-snap2"
///     u64 LE         number of files, then for each in order:
///       u32 LE         length of its name, then the name
///       u64 LE         its size; 2^63 more if it is executable
///     u64 LE each    the leaves in order
///
/// It finds accidents: any change of one word, and others but for one in 2^60 or so. Whoever wants to can make another
/// snapshot of the same digest. ContentDigest proves what others send.
///
/// Worked example: the one file "a" that holds "weightcast" (10 bytes).
///   words    67696577 61637468 00007473 (hexadecimal)
///   leaf 0   d81b034f5ef1d454
///   root     XXH3-128 of  77632d736e617032 0100000000000000 01000000 61 0a00000000000000 54d4f15e4f031bd8
///            = 9f95c4d83d53a6905b9f164f024e098e
class SnapshotDigest {
 public:
  /// Of a stream of zeros. Copies what it needs of `table`. kSnapshotBytesMax bounds the number of leaves.
  explicit SnapshotDigest(const FileTable& table);
  /// Of a stream that has these leaves: one for each.
  SnapshotDigest(const FileTable& table, LeafSums leaves);

  [[nodiscard]] std::size_t leaf_count() const { return leaves_.size(); }
  [[nodiscard]] std::uint64_t leaf_offset_bytes(std::size_t leaf) const { return leaf * kDigestBlockBytes; }
  [[nodiscard]] std::uint64_t leaf_size_bytes(std::size_t leaf) const;

  /// Bytes that counted as 0 are these. They stand at `offset` and lie inside the stream. Any thread.
  void add(std::uint64_t offset, Bytes bytes);
  /// What was changed. Any thread.
  void add(const LeafChange& change);

  /// Not while another thread adds.
  [[nodiscard]] const LeafSums& leaves() const { return leaves_; }
  /// The root. Not while another thread adds.
  [[nodiscard]] Checksum root() const;

 private:
  std::uint64_t stream_bytes_;
  std::vector<std::byte> table_bytes_;
  LeafSums leaves_;
};

/// Reads all of `source` with read_at() on at most `threads` threads, each with a buffer of one leaf, and returns the
/// root. Errors: those of SnapshotSource::read_at().
[[nodiscard]] Result<Checksum> snapshot_digest(const SnapshotSource& source, unsigned threads = 1);

}  // namespace weightcast
