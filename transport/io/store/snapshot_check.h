#pragma once

#include <functional>
#include <memory>
#include <vector>

#include "base/result.h"
#include "base/units.h"
#include "patch/snapshot/snapshot_digest.h"
#include "transport/io/event_loop.h"
#include "transport/io/store/version_files.h"

namespace weightcast {

/// The digest of a snapshot's leaf `leaf`, read from its files. Blocks; any thread. Errors: kCorrupt, kIo.
[[nodiscard]] Result<Checksum> leaf_digest(VersionFiles& files, std::size_t leaf);

/// Copies leaf `leaf` of a snapshot from its files to others of the same table. Returns its digest. Blocks; any thread.
/// Errors: kCorrupt (a file was cut short), kNoSpace, kIo.
[[nodiscard]] Result<Checksum> copy_leaf(VersionFiles& from, VersionFiles& to, std::size_t leaf);

/// The digest of a whole snapshot, read from its files, by `threads` if it is large. Blocks; any thread.
/// Errors: kCorrupt, kIo.
[[nodiscard]] Result<Checksum> files_digest(VersionFiles& files, unsigned threads);

/// Computes the digest of a snapshot while its chunks are stored. A pool thread reads each leaf back and hashes it, as
/// soon as its last byte is stored; the page cache still has it. Leaves that the writer has hashed are not read. Loop
/// thread only.
class SnapshotCheck {
 public:
  SnapshotCheck(EventLoop& loop, std::shared_ptr<VersionFiles> files);

  /// The digest of a leaf's bytes as the kernel was given them. The leaf is not read back. Before handle_stored() of
  /// its last byte.
  void handle_hashed(std::size_t leaf, const Checksum& digest);

  /// [offset, offset + length) of the snapshot stream is in the files. Each byte once.
  void handle_stored(std::uint64_t offset, std::uint64_t length);

  /// Calls `done` with the digest when every leaf is hashed, perhaps at once. All bytes are stored. Errors: kCorrupt,
  /// kIo; then finish() may be called again.
  void finish(std::function<void(Result<Checksum>)> done);

 private:
  void hash_ready();

  EventLoop& loop_;
  std::shared_ptr<VersionFiles> files_;
  SnapshotDigest digest_;
  std::vector<std::uint64_t> bytes_missing_;  // by leaf
  std::vector<bool> hashed_;                  // by leaf: need not be read back
  std::vector<std::size_t> ready_;            // leaves to be hashed
  std::vector<std::size_t> failed_;           // leaves that could not be read, the last one for this reason
  Error error_{};
  bool hashing_ = false;
  std::function<void(Result<Checksum>)> done_;
  std::shared_ptr<bool> alive_ = std::make_shared<bool>();  // expires with this: callbacks look first
};

}  // namespace weightcast
