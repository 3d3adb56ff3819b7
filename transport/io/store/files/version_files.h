#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "base/files/file_system.h"
#include "base/result.h"
#include "patch/snapshot/file_table.h"
#include "transport/core/manifest/manifest.h"
#include "transport/io/store/files/file_editor.h"

namespace weightcast {

/// The files that hold a payload. A full payload has the snapshot's own files. Any other is one file; if it is open,
/// that has the largest size that the payload can reach. Errors: those of FileTable::make().
[[nodiscard]] Result<FileTable> payload_files(const Manifest& manifest);

/// Name of the one file of a patch or packed payload.
inline constexpr const char* kPatchFileName = "patch";

class VersionFiles;
using FilesRef = std::shared_ptr<VersionFiles>;

/// The files of one version. Each is opened when it is used, and stays open as long as FileSystem::open_files() keeps
/// it: a snapshot may have more files than a process may open. The directory itself stays open, so a rename changes
/// nothing here. Any thread.
class VersionFiles {
 public:
  enum class Size : std::uint8_t { kFull, kEmpty };  ///< of new files: that of the table, or nothing yet
  /// Makes `path` with new files. Blocks. Errors: kAlreadyExists (there is such a path); kNoSpace, kIo: then nothing is
  /// left at `path`.
  [[nodiscard]] static Result<FilesRef> create(FileSystem& files, const std::filesystem::path& path, FileTable table,
                                               Size size = Size::kFull);
  /// Makes `path` out of the files of a deleted version, at `spare`; they keep their old bytes. A write to pages that
  /// the kernel already has is several times cheaper than to new ones. Files that anybody else has open, mapped or
  /// linked must not change. `held` are the same files as the deleted version had them, and nobody uses that object
  /// any more: its editors go on. Blocks. Errors: kBusy (somebody has one), kUnsupported (the file system cannot tell),
  /// kInvalidArgument (other names or sizes), kIo. After an error the caller deletes both paths.
  [[nodiscard]] static Result<FilesRef> reuse(FileSystem& files, const std::filesystem::path& spare,
                                              const std::filesystem::path& path, FileTable table, VersionFiles& held);
  ~VersionFiles();

  /// Opens what create() made, and ignores foreign files beside it: see foreign_names(). Blocks. Errors: kNotFound (no
  /// such directory), kCorrupt (a file is missing or has another size), kIo.
  [[nodiscard]] static Result<FilesRef> open(FileSystem& files, const std::filesystem::path& path, FileTable table);

  [[nodiscard]] const FileTable& table() const { return table_; }

  /// Errors: kNotFound (the version was deleted meanwhile), kIo.
  [[nodiscard]] Result<FileRef> file(std::size_t index);

  /// What changes file `index` where it is. Made at its first use, and kept as long as the files are, or until
  /// close_editors(): to map a file anew costs more than a step changes. Errors: those of file().
  [[nodiscard]] Result<FileEditor*> editor(std::size_t index);
  /// Nobody uses one of them now.
  void close_editors();

  /// The version whose bytes the files had when they were reused, all of them; kNoVersion of new files.
  [[nodiscard]] Version old_version() const { return old_version_; }
  void note_old_version(Version version) { old_version_ = version; }

  /// Closes the files that nobody uses now. Their next use opens them again.
  void close_all();

  /// Checks that nobody has one of the files, which lie under `path`, open or mapped but through its editor, and that
  /// none has another name. Closes those that nobody uses here, and asks the kernel for a lease on each. Blocks.
  /// Errors: kBusy (somebody has one), kUnsupported (the file system cannot tell), kIo.
  [[nodiscard]] Status check_unused(FileSystem& files, const std::filesystem::path& path);

  /// Makes the names in the version's directories survive a power cut. Blocks.
  [[nodiscard]] Status sync_names() const;

 private:
  VersionFiles(FileSystem& files, std::unique_ptr<Directory> directory, FileTable table);

  const std::unique_ptr<Directory> directory_;
  const FileTable table_;
  OpenFiles::Group opened_;
  Version old_version_{};
  std::mutex editors_mutex_;                          // guards what follows
  std::vector<std::unique_ptr<FileEditor>> editors_;  // by file; null until they are used
};

/// The paths below `path` that are not in `table`, the highest of each: other programs put files there, and so do file
/// systems (lost+found, .nfs*). Without a table, only what no version can have: empty directories, .nfs*, links and the
/// like, and names that FileTable refuses. Blocks. Errors: kNotFound, kIo.
[[nodiscard]] Result<std::vector<std::string>> foreign_names(FileSystem& files, const std::filesystem::path& path,
                                                             const std::optional<FileTable>& table);

/// Reads [offset, offset + into.size()) of the stream. Blocks. Errors: kCorrupt, kIo.
[[nodiscard]] Status read_stream(VersionFiles& files, std::uint64_t offset, MutableBytes into);
/// Writes them. Blocks. Errors: kNoSpace, kIo.
[[nodiscard]] Status write_stream(VersionFiles& files, std::uint64_t offset, Bytes from);

/// Bytes of the stream where they are, to be changed until commit_stream(), or to be read: see FileEditor. Those that
/// stand in several files, or in one of more files than may stay open, are copied to `scratch`, which outlives them.
/// Errors: those of FileEditor, read_stream() and write_stream().
[[nodiscard]] Result<MutableBytes> edit_stream(VersionFiles& files, std::uint64_t offset, std::size_t size,
                                               std::vector<std::byte>& scratch,
                                               FileEditor::Use use = FileEditor::Use::kChange);
[[nodiscard]] Status commit_stream(VersionFiles& files, std::uint64_t offset, Bytes bytes);

}  // namespace weightcast
