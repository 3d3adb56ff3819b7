#pragma once

#include <cstdint>
#include <string>

#include "base/digest.h"
#include "base/result.h"

namespace weightcast {

/// A regular file, open and mapped for reading. Nothing is read until it is asked for, so its size may exceed memory.
/// Symbolic links are followed. Owns the descriptor and the mapping. Safe to read from several threads.
class MappedFile {
 public:
  /// Errors: those of fail_errno(); kInvalidArgument if it is not a regular file.
  [[nodiscard]] static Result<MappedFile> open(const std::string& path);

  MappedFile(MappedFile&& other) noexcept;
  MappedFile& operator=(MappedFile&& other) noexcept;
  ~MappedFile();

  [[nodiscard]] const std::string& path() const { return path_; }
  /// As of open().
  [[nodiscard]] std::uint64_t size_bytes() const { return size_bytes_; }

  /// The whole file. To touch a page of it that another process has cut off since open() ends this one with SIGBUS:
  /// for files that are ours; use read_at() for those that are not.
  [[nodiscard]] Bytes bytes() const { return {data_, static_cast<std::size_t>(size_bytes_)}; }

  /// Fills `out` from `offset_bytes` without the mapping. Errors: kCorrupt if the file ends before; fail_errno().
  [[nodiscard]] Status read_at(std::uint64_t offset_bytes, MutableBytes out) const;

  /// Errors: kCorrupt if the file's size or time of modification is no longer what open() found.
  [[nodiscard]] Status check_unchanged() const;

 private:
  MappedFile() = default;
  void close() noexcept;

  std::string path_;
  int fd_ = -1;
  const std::byte* data_ = nullptr;
  std::uint64_t size_bytes_ = 0;
  std::int64_t modified_ns_ = 0;
};

}  // namespace weightcast
