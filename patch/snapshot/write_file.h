#pragma once

#include <filesystem>
#include <functional>
#include <string>

#include "base/digest/checksum.h"
#include "base/files/file_system.h"
#include "base/result.h"

namespace weightcast {

/// Writes a file from its beginning to its end. Errors call it `name`.
class FileWriter {
 public:
  FileWriter(File& file, std::string name) : file_(file), name_(std::move(name)) {}
  /// Errors: those of the file.
  Status write(Bytes bytes) {
    WC_TRY(write_fully(file_, end_, bytes, name_));
    end_ += bytes.size();
    return {};
  }

 private:
  File& file_;
  std::string name_;
  std::uint64_t end_ = 0;
};

/// Writes and syncs a file, which takes its name when `write` has succeeded, and replaces what had it. After an error
/// nothing is left. Errors: those of `write`; fail_errno().
Status write_new_file(FileSystem& files, const std::filesystem::path& path,
                      const std::function<Status(FileWriter& out)>& write);

/// A directory that appears under its name when it is complete. Errors, of all: those of the file system.
class NewDirectory {
 public:
  NewDirectory(FileSystem& files, std::filesystem::path path);
  /// Deletes the directory unless it was published.
  ~NewDirectory();
  NewDirectory(const NewDirectory&) = delete;
  NewDirectory& operator=(const NewDirectory&) = delete;

  /// Makes temporary(), where the files go. Errors: kAlreadyExists (the directory, or a half-made one, exists).
  Status create();
  [[nodiscard]] const std::filesystem::path& temporary() const { return temporary_; }
  Status publish();

 private:
  FileSystem& files_;
  std::filesystem::path path_;
  std::filesystem::path temporary_;
  bool created_ = false;
};

}  // namespace weightcast
