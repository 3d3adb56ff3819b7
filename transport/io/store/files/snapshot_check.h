#pragma once

#include <functional>
#include <memory>
#include <vector>

#include "base/result.h"
#include "base/units.h"
#include "patch/snapshot/snapshot_digest.h"
#include "transport/io/event_loop.h"
#include "transport/io/store/files/version_files.h"

namespace weightcast {

/// The sum of a snapshot's leaf `leaf` (snapshot_digest.h), read from its files. Blocks; any thread.
/// Errors: kCorrupt, kIo.
[[nodiscard]] Result<std::uint64_t> leaf_sum(VersionFiles& files, std::size_t leaf);

/// Copies bytes [begin, end) of a snapshot from its files to others of the same table, and adds them to `digest`.
/// Blocks; any thread. Errors: kCorrupt (a file was cut short), kNoSpace, kIo.
[[nodiscard]] Status copy_range(VersionFiles& from, VersionFiles& to, std::uint64_t begin, std::uint64_t end,
                                SnapshotDigest& digest);

/// The digest of a whole snapshot, read from its files, by `threads` if it is large. Blocks; any thread.
/// Errors: kCorrupt, kIo.
[[nodiscard]] Result<SnapshotDigest> files_digest(VersionFiles& files, unsigned threads);

/// Computes the digest of a snapshot while its chunks are stored. What whoever stores a chunk has summed is not read;
/// a pool thread reads the rest back. Loop thread only.
class SnapshotCheck {
 public:
  SnapshotCheck(EventLoop& loop, FilesRef files);

  /// [offset, offset + bytes) of the snapshot stream is in the files, and `sum` is its stream_sum(), of the bytes that
  /// the kernel was given. It lies in one leaf. Each byte once, here or below.
  void handle_stored(std::uint64_t offset, std::uint64_t bytes, std::uint64_t sum);
  /// The same of bytes that were stored earlier: they will be read.
  void handle_held(std::uint64_t offset, std::uint64_t bytes);

  /// Calls `done` with the digest when all bytes are summed, perhaps at once. All bytes are stored. Errors: kCorrupt,
  /// kIo; then finish() may be called again.
  void finish(std::function<void(Result<Checksum>)> done);

  /// After finish() has given a digest.
  [[nodiscard]] LeafSums take_leaves() { return std::move(leaves_); }

 private:
  struct Range {
    std::uint64_t offset = 0, bytes = 0;
  };
  void read_held();

  EventLoop& loop_;
  FilesRef files_;
  LeafSums leaves_;
  std::vector<Range> held_;    // to be read
  std::vector<Range> failed_;  // could not be read, the last one for this reason
  Error error_{};
  bool reading_ = false;
  std::function<void(Result<Checksum>)> done_;
  std::shared_ptr<bool> alive_ = std::make_shared<bool>();  // expires with this: callbacks look first
};

}  // namespace weightcast
