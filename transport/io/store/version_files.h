#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <vector>

#include "base/file_system.h"
#include "base/result.h"
#include "patch/snapshot/file_table.h"
#include "transport/core/manifest.h"

namespace weightcast {

/// The files that a payload is kept in while it arrives and is served. For a full payload those are the snapshot's own;
/// a patch is one file, of the most that it can grow to if it is open. Errors: those of FileTable::make().
[[nodiscard]] Result<FileTable> payload_files(const Manifest& manifest);

/// Name of the one file that a patch's payload is.
inline constexpr const char* kPatchFileName = "patch";

/// The files of one version, opened when they are used, and kept open as long as FileSystem::open_files() does: a
/// snapshot may have more files than a process may open. Holds the directory itself open, so that nothing here changes
/// when it is renamed. Any thread.
class VersionFiles {
 public:
  enum class Size : std::uint8_t { kFull, kEmpty };  ///< of new files: that of the table, or nothing yet
  /// Makes `path` with new files. Blocks. Errors: kNoSpace, kIo; then nothing is left at `path`.
  [[nodiscard]] static Result<std::shared_ptr<VersionFiles>> create(FileSystem& files,
                                                                    const std::filesystem::path& path, FileTable table,
                                                                    Size size = Size::kFull);
  /// Makes `path` out of the files of a version that is no more, at `spare`: their bytes are whatever they were. To
  /// write to pages that the kernel has already is several times cheaper than to new ones. Only files that nobody else
  /// has open, mapped or linked: those are some reader's, and must not change. Blocks. Errors: kBusy (somebody has
  /// one), kUnsupported (the file system cannot tell), kInvalidArgument (other names or sizes), kIo; then what is left
  /// at either path is to be thrown away.
  [[nodiscard]] static Result<std::shared_ptr<VersionFiles>> reuse(FileSystem& files,
                                                                   const std::filesystem::path& spare,
                                                                   const std::filesystem::path& path, FileTable table);
  /// Opens what create() made. Blocks. Errors: kCorrupt when a file is missing, has another size, or is none of the
  /// table's; kIo.
  [[nodiscard]] static Result<std::shared_ptr<VersionFiles>> open(FileSystem& files, const std::filesystem::path& path,
                                                                  FileTable table);

  [[nodiscard]] const FileTable& table() const { return table_; }

  /// Errors: kNotFound when the version was deleted meanwhile, kIo.
  [[nodiscard]] Result<FileRef> file(std::size_t index);

  /// Closes what nobody has taken: the files are opened again when they are used.
  void close_all();

  /// Makes the names in the version's directory survive a power cut. Blocks.
  [[nodiscard]] Status sync_names() const;

 private:
  VersionFiles(FileSystem& files, std::unique_ptr<Directory> directory, FileTable table)
      : directory_(std::move(directory)), table_(std::move(table)), opened_(files.open_files()) {}

  const std::unique_ptr<Directory> directory_;
  const FileTable table_;
  OpenFiles::Group opened_;
};

/// Whether nobody has one of the files under `path` open or mapped, this process included, or another name for it. The
/// kernel is asked for a lease on each. Blocks. Errors: kBusy (somebody has), kUnsupported (the file system cannot
/// tell), kIo.
[[nodiscard]] Status check_unused(FileSystem& files, const std::filesystem::path& path, const FileTable& table);

/// Reads [offset, offset + into.size()) of the stream. Blocks. Errors: kCorrupt, kIo.
[[nodiscard]] Status read_stream(VersionFiles& files, std::uint64_t offset, MutableBytes into);
/// Writes them. Blocks. Errors: kNoSpace, kIo.
[[nodiscard]] Status write_stream(VersionFiles& files, std::uint64_t offset, Bytes from);

}  // namespace weightcast
