#pragma once

#include <cstdint>
#include <vector>

#include "base/checksum.h"
#include "base/result.h"
#include "patch/snapshot/file_table.h"

namespace weightcast {

class SnapshotSource;

/// Bytes of the snapshot stream under one leaf.
inline constexpr std::uint64_t kDigestBlockBytes = std::uint64_t{4} << 20;

/// The digest that identifies a snapshot: of its file names, sizes and bytes. Made of leaves, so that it can be
/// computed in any order and by several threads:
///
///   leaf i   XXH3-128 of bytes [i * 4 MiB, (i + 1) * 4 MiB) of the snapshot stream; the last one may be shorter
///   root     XXH3-128 of:
///     8 bytes        "wc-snap1"
///     u64 LE         number of files, then for each in order:
///       u32 LE         length of its name, then the name
///       u64 LE         its size
///     16 bytes each  the leaves in order, each in canonical (big-endian) byte order
///
/// Worked example: the one file "a" that holds "weightcast" (10 bytes).
///   leaf 0   941234697ab003669e54a0eb88dfb1a3
///   root     XXH3-128 of  77632d736e617031 0100000000000000 01000000 61 0a00000000000000
///                         941234697ab003669e54a0eb88dfb1a3
///            = 082e451e47937c0cd3d2b60ba4f95e46
class SnapshotDigest {
 public:
  /// Copies what it needs of `table`. kSnapshotBytesMax bounds the number of leaves.
  explicit SnapshotDigest(const FileTable& table);

  [[nodiscard]] std::size_t leaf_count() const { return leaves_.size(); }
  [[nodiscard]] std::uint64_t leaf_offset_bytes(std::size_t leaf) const { return leaf * kDigestBlockBytes; }
  [[nodiscard]] std::uint64_t leaf_size_bytes(std::size_t leaf) const;

  /// Sets a leaf, for the first time or again. `leaf` < leaf_count(). One thread at a time.
  void set_leaf(std::size_t leaf, const Checksum& digest);

  [[nodiscard]] const std::vector<Checksum>& leaves() const { return leaves_; }

  /// Whether every leaf is set.
  [[nodiscard]] bool complete() const { return leaves_set_ == leaves_.size(); }

  /// The root. Only when complete().
  [[nodiscard]] Checksum root() const;

 private:
  std::uint64_t stream_bytes_;
  std::vector<std::byte> table_bytes_;
  std::vector<Checksum> leaves_;
  std::vector<bool> is_set_;
  std::size_t leaves_set_ = 0;
};

/// Reads all of `source` with read_at() on at most `threads` threads, each with a buffer of one leaf, and returns the
/// root. Errors: those of SnapshotSource::read_at().
[[nodiscard]] Result<Checksum> snapshot_digest(const SnapshotSource& source, unsigned threads = 1);

}  // namespace weightcast
