#pragma once

#include <filesystem>
#include <functional>
#include <string>
#include <string_view>

#include "base/digest.h"
#include "base/result.h"

namespace weightcast {

/// Writes at the descriptor's position. `file` is the name that errors carry. Errors: fail_errno().
Status write_all(int fd, std::string_view file, Bytes bytes);

/// Makes the names in a folder durable; empty is the working directory. Errors: fail_errno().
Status sync_folder(const std::filesystem::path& folder);

/// Writes and syncs a file that appears under its name, in place of what had it, when `write` has succeeded; after an
/// error nothing is left. `write` gets a descriptor and the name for errors. Errors: those of `write`; fail_errno().
Status write_new_file(const std::filesystem::path& path,
                      const std::function<Status(int fd, std::string_view name)>& write);

/// A directory that appears under its name when it is complete. Errors, of all: those of the file system.
class NewDirectory {
 public:
  explicit NewDirectory(std::filesystem::path path);
  /// Deletes what was not published.
  ~NewDirectory();
  NewDirectory(const NewDirectory&) = delete;
  NewDirectory& operator=(const NewDirectory&) = delete;

  /// Where files are to be put. Errors: kAlreadyExists where the directory, or a half-made one, is there.
  Status create();
  [[nodiscard]] const std::filesystem::path& temporary() const { return temporary_; }
  Status publish();

 private:
  std::filesystem::path path_;
  std::filesystem::path temporary_;
  bool created_ = false;
};

}  // namespace weightcast
