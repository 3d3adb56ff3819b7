#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "base/digest/checksum.h"
#include "base/files/file_system.h"
#include "base/result.h"

namespace weightcast {

/// A regular file, open and mapped for reading. The kernel reads pages on demand, so the file may be larger than
/// memory. Follows symbolic links. Owns the open file and the mapping. Several threads may read.
class MappedFile {
 public:
  /// Errors: those of fail_errno(); kInvalidArgument if it is not a regular file.
  [[nodiscard]] static Result<MappedFile> open(FileSystem& files, const std::string& path);

  /// As of open().
  [[nodiscard]] std::uint64_t size_bytes() const { return found_.size_bytes; }

  /// The whole file: see Mapping for when that is safe.
  [[nodiscard]] Bytes bytes() const { return mapping_->bytes(); }

  /// Errors: kCorrupt if the file's size or time of modification is no longer what open() found.
  [[nodiscard]] Status check_unchanged() const;

 private:
  MappedFile() = default;

  std::string path_;
  std::unique_ptr<File> file_;
  std::unique_ptr<Mapping> mapping_;
  FileInfo found_;
};

/// Fills `out` from a file of `size_bytes` that another program may truncate. Errors: kCorrupt (it did); fail_errno().
[[nodiscard]] Status read_source_file(File& file, std::uint64_t offset_bytes, MutableBytes out, const std::string& path,
                                      std::uint64_t size_bytes);
/// Errors: kCorrupt if `now` is not the same file any more, or has another size or time of modification.
[[nodiscard]] Status check_same_file(const FileInfo& found, const FileInfo& now, const std::string& path);

}  // namespace weightcast
