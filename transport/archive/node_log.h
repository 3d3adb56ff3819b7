#pragma once

#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/files/file_system.h"
#include "transport/archive/archive_plan.h"
#include "transport/core/manifest/manifest.h"
#include "transport/io/store/files/version_files.h"

namespace weightcast {

/// A whole version or a patch in a node's state directory, by its record.
struct NodePayload {
  PayloadId id{};
  Manifest manifest;                   ///< of the payload, or of what brought the version
  std::vector<ContentDigest> digests;  ///< of its chunks; empty where the record has none
  std::filesystem::path path;          ///< its directory
  std::filesystem::path record_path;

  /// The tree over a whole version; chunk_bytes is 0 where the origin has made none.
  [[nodiscard]] HashTree tree() const { return manifest.tree_of_snapshot(); }
};

/// What a node has of the run that it follows: its complete versions and its complete patches, oldest
/// first, whether a daemon runs or not. A daemon may delete any of it at any time. Changes nothing. Errors: kNotFound
/// (no such state directory), kIo.
[[nodiscard]] Result<std::vector<NodePayload>> read_node_log(FileSystem& files, const std::filesystem::path& state);

/// One that is held while it is read: its files stay open, so the store neither changes nor reuses them, and what it
/// deletes can still be read.
class HeldPayload {
 public:
  /// Errors: kNotFound (the node has deleted it meanwhile), kCorrupt, kIo.
  [[nodiscard]] static Result<HeldPayload> open(FileSystem& files, const NodePayload& payload);

  [[nodiscard]] std::uint64_t size_bytes() const { return files_->table().size_bytes(); }
  /// Whether a whole version has the snapshot's digest. Errors: kCorrupt, kIo.
  [[nodiscard]] Result<bool> matches(const Manifest& manifest, unsigned threads) const;
  /// chunk_digests_of() (recovery_checks.h).
  [[nodiscard]] Result<std::vector<ContentDigest>> chunk_digests(std::uint32_t chunk_bytes, unsigned threads) const;
  [[nodiscard]] Status read(std::uint64_t offset, MutableBytes into) const {
    return read_stream(*files_, offset, into);
  }

 private:
  FilesRef files_;
  std::vector<FileRef> open_;
};

}  // namespace weightcast
