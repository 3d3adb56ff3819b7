#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "base/digest.h"
#include "base/file_system.h"
#include "base/result.h"
#include "patch/snapshot/file_table.h"
#include "patch/snapshot/tensor.h"

namespace weightcast {

/// A sidecar file (configuration, tokenizer) above this is refused.
inline constexpr std::uint64_t kSidecarBytesMax = std::uint64_t{32} << 20;

/// A snapshot on disk, open for reading. Its files, in the order of the snapshot stream:
///   weights   model.safetensors, or the shards that model.safetensors.index.json names, by name
///   index     model.safetensors.index.json, if there are shards
///   sidecars  *.json, *.jinja, *.model and *.txt at the directory's top level, by name; hidden ones are left out
/// Other files, safetensors that the index does not name among them, are not part of the snapshot. Symbolic links to
/// files are followed, since the Hugging Face cache consists of them; the snapshot has the link's name.
/// Nothing but headers and the index is read by open(). A file is open while it is read, and as long as
/// FileSystem::open_files() keeps it: a snapshot may have more files than a process may open. Safe to read from several
/// threads. `files` outlives it.
class SnapshotSource {
 public:
  SnapshotSource(SnapshotSource&&) noexcept;
  SnapshotSource& operator=(SnapshotSource&&) noexcept;
  ~SnapshotSource();

  /// Opens a safetensors file (as the one file of a snapshot, by the name model.safetensors) or a directory.
  /// Errors: kNotFound (no such path; a directory without weights; a shard that is missing), kInvalidArgument (weights
  /// by both names; a shard outside the directory; a sidecar above its limit), kCorrupt or kTooLarge (a header, an
  /// index, shards that disagree with it), and those of fail_errno().
  [[nodiscard]] static Result<SnapshotSource> open(FileSystem& files, const std::string& path);

  [[nodiscard]] const FileTable& file_table() const { return table_; }
  /// Size of the snapshot stream.
  [[nodiscard]] std::uint64_t size_bytes() const { return table_.size_bytes(); }
  /// In the order of their bytes in the snapshot stream, to which `offset_bytes` refers. Names are unique.
  [[nodiscard]] const std::vector<TensorInfo>& tensors() const { return tensors_; }

  /// Fills `out` from `offset_bytes` of the stream, inside which the range lies. Reads without the mappings, so that a
  /// file that is cut off meanwhile is an error and not a signal. Errors: kCorrupt if so, or if another file has its
  /// name now; fail_errno().
  [[nodiscard]] Status read_at(std::uint64_t offset_bytes, MutableBytes out) const;

  /// The bytes of one file, mapped from the first call on: see Mapping for when that is safe. Errors: as for
  /// read_at(), and kIo when the process has too many mappings.
  [[nodiscard]] Result<Bytes> mapping(std::size_t file) const;

  /// Whether all files are as open() found them, by size and time of modification: for after the last read.
  /// Errors: kCorrupt, which names the file that is not.
  [[nodiscard]] Status check_unchanged() const;

 private:
  struct OpenedFiles;
  SnapshotSource(FileTable table, std::unique_ptr<OpenedFiles> opened);

  FileTable table_;
  std::unique_ptr<OpenedFiles> opened_;
  std::vector<TensorInfo> tensors_;
};

}  // namespace weightcast
