#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"

namespace weightcast {

inline constexpr std::size_t kSnapshotFilesMax = 100'000;
inline constexpr std::size_t kFileNameBytesMax = 255;
/// Of a path below a snapshot's directory. A store's directory has to fit before it, and the system takes 4096 in all.
inline constexpr std::size_t kFilePathBytesMax = 2048;
inline constexpr std::size_t kFileDepthMax = 32;  ///< names in a path
inline constexpr std::size_t kSnapshotDirectoriesMax = 20'000;
/// Bounds the memory that a file table from the network makes its reader take: 16 bytes of digest for every 4 MiB.
inline constexpr std::uint64_t kSnapshotBytesMax = std::uint64_t{64} << 40;

struct SnapshotFile {
  std::string name;  ///< a path below the snapshot's directory, its parts separated by '/'
  std::uint64_t size_bytes = 0;
  bool executable = false;  ///< by its owner

  bool operator==(const SnapshotFile&) const = default;
};

/// Part of one file.
struct FilePiece {
  std::size_t file = 0;
  std::uint64_t offset_bytes = 0;
  std::uint64_t size_bytes = 0;

  bool operator==(const FilePiece&) const = default;
};

/// Refuses a name that could lead out of its directory or be hidden in it: a name that is empty, is longer than
/// kFileNameBytesMax, contains '/' or NUL, or begins with '.'. Errors: kInvalidArgument.
[[nodiscard]] Status check_file_name(std::string_view name);
/// Refuses a path that could lead out of its directory: one that is empty, begins or ends with '/', is longer than
/// kFilePathBytesMax or deeper than kFileDepthMax, holds NUL, or has a part that is empty, ".", ".." or longer than
/// kFileNameBytesMax. Errors: kInvalidArgument.
[[nodiscard]] Status check_file_path(std::string_view path);

/// What a snapshot's files may be, for people.
inline constexpr std::string_view kSnapshotFileKinds = "*.safetensors, *.json, *.jinja, *.model and *.txt";
/// Whether a file of this name may be part of a snapshot: weights, configuration or tokenizer. Other kinds may be code,
/// or data that programs execute (*.py, *.bin, *.pt, *.pkl), and nothing publishes or receives them.
[[nodiscard]] bool is_kind_of_snapshot_file(std::string_view name);

/// A snapshot's files in order, and with them the *snapshot stream*: the concatenation of their bytes in that order.
/// Invariant: every name is safe to create below a directory of ours and unique, and none is a directory of another;
/// the stream's size is at most kSnapshotBytesMax.
class FileTable {
 public:
  /// Also for tables from the network.
  /// Errors: kInvalidArgument (no files; a name is unsafe, given twice, or that of a file and of a directory),
  /// kTooLarge (kSnapshotFilesMax, kSnapshotDirectoriesMax or kSnapshotBytesMax exceeded).
  [[nodiscard]] static Result<FileTable> make(std::vector<SnapshotFile> files);

  [[nodiscard]] const std::vector<SnapshotFile>& files() const { return files_; }
  /// Those below the snapshot's own that its files lie in, in an order in which they can be made.
  [[nodiscard]] const std::vector<std::string>& directories() const { return directories_; }
  /// Size of the stream.
  [[nodiscard]] std::uint64_t size_bytes() const { return size_bytes_; }
  /// Where file `file` begins in the stream.
  [[nodiscard]] std::uint64_t offset_bytes(std::size_t file) const { return offsets_bytes_[file]; }

  /// The parts of files that make up `size_bytes` bytes of the stream from `offset_bytes`, in order; none is empty.
  /// The range lies inside the stream.
  [[nodiscard]] std::vector<FilePiece> pieces(std::uint64_t offset_bytes, std::uint64_t size_bytes) const;

 private:
  FileTable() = default;

  std::vector<SnapshotFile> files_;
  std::vector<std::string> directories_;
  std::vector<std::uint64_t> offsets_bytes_;
  std::uint64_t size_bytes_ = 0;
};

}  // namespace weightcast
