#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <string>
#include <string_view>

#include "base/digest.h"
#include "base/result.h"
#include "base/units.h"

namespace weightcast {

/// An open file descriptor, closed with its owner.
class File {
 public:
  explicit File(int fd) : fd_(fd) {}
  ~File();
  File(File&& other) noexcept;
  File& operator=(File&& other) noexcept;

  [[nodiscard]] int fd() const { return fd_; }

 private:
  int fd_;
};

using FileRef = std::shared_ptr<const File>;

// What follows blocks: for pool threads, and for the loop's thread before the loop runs. Errors are those of
// fail_errno(), with the path in the detail.

/// open(2) with O_CLOEXEC; files are created with mode 0644.
[[nodiscard]] Result<File> open_file(const std::filesystem::path& path, int flags);
/// The same below an open directory.
[[nodiscard]] Result<File> open_file_at(const File& directory, const std::string& name, int flags);

/// Gives `file` its full size and, where the file system can, the blocks for it, so that a write cannot run out of
/// space later. Errors: kNoSpace, kIo.
[[nodiscard]] Status preallocate(const File& file, std::uint64_t size_bytes, std::string_view what);

/// What goes to a file goes in pieces of this size. Larger ones are hardly cheaper per byte, and the page cache takes
/// them in folios of higher order, which are dear to come by where memory is fragmented or given back to a host: 128
/// KiB at a time was measured at 1.7 CPU s/GiB where 64 KiB took 0.25.
inline constexpr std::size_t kWriteBytes = 64 * kKiB;

/// Exactly `into.size()` bytes. Errors: kCorrupt when the file ends before.
[[nodiscard]] Status read_fully(const File& file, std::uint64_t offset, MutableBytes into, std::string_view what);
[[nodiscard]] Status write_fully(const File& file, std::uint64_t offset, Bytes from, std::string_view what);

/// A file whole. Errors: kTooLarge past `bytes_max`.
[[nodiscard]] Result<std::string> read_file(const std::filesystem::path& path, std::uint64_t bytes_max);

[[nodiscard]] Status rename_path(const std::filesystem::path& from, const std::filesystem::path& to);
[[nodiscard]] Status remove_file(const std::filesystem::path& path);
/// Makes the names in a directory survive a power cut.
[[nodiscard]] Status sync_directory(const std::filesystem::path& path);

}  // namespace weightcast
