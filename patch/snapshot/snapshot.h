#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "base/digest/checksum.h"
#include "base/files/file_system.h"
#include "base/result.h"
#include "patch/snapshot/file_table.h"
#include "patch/snapshot/file_tree.h"
#include "patch/snapshot/sidecar.h"
#include "patch/snapshot/tensor.h"

namespace weightcast {

/// Files that accompany weights, by name.
using Sidecars = std::map<std::string, FileRef>;

/// A snapshot on disk, open for reading. Its files, in the order of the snapshot stream:
///   weights   model.safetensors, or the shards that model.safetensors.index.json names, by name;
///   adapter_model.safetensors
///             of a directory that has neither: a low-rank adapter as PEFT writes it
///   index     model.safetensors.index.json, if there are shards
///   sidecars  *.json, *.jinja, *.model and *.txt at the directory's top level, by name; hidden ones are left out, and
///             those above kSidecarBytesMax that no engine needs, such as trainer_state.json
/// Other files, safetensors that the index does not name among them, are not part of the snapshot. Symbolic links to
/// files are followed, since the Hugging Face cache consists of them; the snapshot has the link's name.
/// open() reads only headers and the index. FileSystem::open_files() bounds how many files stay open, so a snapshot may
/// have more files than a process may open. Several threads may read. `files` outlives this object.
class SnapshotSource {
 public:
  SnapshotSource(SnapshotSource&&) noexcept;
  SnapshotSource& operator=(SnapshotSource&&) noexcept;
  ~SnapshotSource();

  /// Opens a directory, or a safetensors file as the only file of a snapshot, named model.safetensors.
  /// Errors: kNotFound (no such path; a directory without weights; a shard that is missing), kInvalidArgument (weights
  /// by both names; a shard outside the directory; a sidecar above its limit that engines need), kCorrupt or kTooLarge
  /// (a header, an index, shards that disagree with it), and those of fail_errno().
  [[nodiscard]] static Result<SnapshotSource> open(FileSystem& files, const std::string& path);

  /// Opens these files of `directory`, a file tree, in their order. A *.safetensors file of a valid header
  /// has its tensors under the names PATH//NAME. Its header, and any other file, is a tensor of U8 under its PATH.
  /// No link is followed. Errors: those of FileTable::make(); kCorrupt (a file has another size),
  /// and those of fail_errno().
  [[nodiscard]] static Result<SnapshotSource> open_tree(FileSystem& files, const std::string& directory,
                                                        const std::vector<TreeFile>& tree);

  /// The one safetensors file of a snapshot, which has no name that could be opened: the first `size_bytes` of `file`;
  /// `name` is what errors carry. Its owner may write to it meanwhile, but not change its size: the header is read
  /// once, so that what read_at() gives has the tensors that tensors() tells. Errors: kCorrupt (also: `file` is
  /// shorter), kTooLarge (its header).
  [[nodiscard]] static Result<SnapshotSource> over(FileSystem& files, FileRef file, std::uint64_t size_bytes,
                                                   std::string name);

  /// Puts sidecars behind what is there, in memory, in the order of their names. Where adapter_config.json is among
  /// them and config.json is not, weights without a name of their own are named adapter_model.safetensors, so that PEFT
  /// and vLLM load the directory as it is. Errors: those of FileTable::make().
  [[nodiscard]] Status add_sidecars(const Sidecars& sidecars);
  /// Reads those that are there. Errors: those of read_at().
  [[nodiscard]] Result<Sidecars> read_sidecars() const;

  [[nodiscard]] const FileTable& file_table() const { return table_; }
  [[nodiscard]] bool is_tree() const { return is_tree_; }
  /// Sidecars that were too large, by name.
  [[nodiscard]] const std::vector<std::string>& left_out() const { return left_out_; }
  /// Size of the snapshot stream.
  [[nodiscard]] std::uint64_t size_bytes() const { return table_.size_bytes(); }
  /// In the order of their bytes in the snapshot stream, to which `offset_bytes` refers. Names are unique.
  [[nodiscard]] const std::vector<TensorInfo>& tensors() const { return tensors_; }

  /// Fills `out` from `offset_bytes` of the stream. The range lies inside the stream. Reads without the mappings, so
  /// that a truncated file causes an error and not a signal. Errors: kCorrupt (a file was truncated, or another file
  /// has its name now); fail_errno().
  [[nodiscard]] Status read_at(std::uint64_t offset_bytes, MutableBytes out) const;

  /// The bytes of one file. The first call maps it; Mapping says when that is safe. Errors: as for read_at(), and kIo
  /// when the process has too many mappings.
  [[nodiscard]] Result<Bytes> mapping(std::size_t file) const;

  /// Checks that all files have the size and time of modification that open() found. To be called after the last read.
  /// Errors: kCorrupt, which names the changed file.
  [[nodiscard]] Status check_unchanged() const;

 private:
  struct OpenedFiles;
  SnapshotSource(FileTable table, std::unique_ptr<OpenedFiles> opened);

  FileTable table_;
  bool is_tree_ = false;
  std::vector<std::string> left_out_;
  std::unique_ptr<OpenedFiles> opened_;
  std::vector<TensorInfo> tensors_;
};

}  // namespace weightcast
