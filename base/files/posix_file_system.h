#pragma once

#include "base/files/file_system.h"

namespace weightcast {

/// A file that is open already, closed with the object; `name` is what errors carry.
[[nodiscard]] std::unique_ptr<File> adopt_file(int fd, std::string name);

/// The host's file system. Any thread.
class PosixFileSystem final : public FileSystem {
 public:
  /// Keeps at most a quarter of this process's descriptors open between uses. The rest is for sockets, for files in
  /// use, and for the program that links this library.
  PosixFileSystem();
  /// For tests: keeps at most `files_kept_open`.
  explicit PosixFileSystem(std::size_t files_kept_open) : FileSystem(files_kept_open) {}

  [[nodiscard]] Result<std::unique_ptr<File>> open(const Path& path, const OpenOptions& options) override;
  [[nodiscard]] Result<std::unique_ptr<Directory>> open_directory(const Path& path) override;
  [[nodiscard]] Result<std::vector<std::string>> list(const Path& path) override;
  [[nodiscard]] Result<FileInfo> info(const Path& path) override;
  [[nodiscard]] Result<FileInfo> link_info(const Path& path) override;
  [[nodiscard]] Status make_directory(const Path& path) override;
  [[nodiscard]] Status rename(const Path& from, const Path& to) override;
  [[nodiscard]] Status make_link(const Path& target, const Path& path) override;
  [[nodiscard]] Result<Path> read_link(const Path& path) override;
  [[nodiscard]] Status remove(const Path& path) override;
  [[nodiscard]] Status remove_directory(const Path& path) override;
  [[nodiscard]] Result<std::uint64_t> free_bytes(const Path& path) override;
  [[nodiscard]] Status check_writable(const Path& path) override;
  [[nodiscard]] std::string users_of(const std::vector<Path>& paths) override;
  [[nodiscard]] std::uint64_t process_number() override;
};

}  // namespace weightcast
