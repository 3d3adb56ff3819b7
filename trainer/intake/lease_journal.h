#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "base/file_system.h"
#include "base/result.h"

namespace weightcast {

/// Which groups workers were granted: `leases.jsonl`, a line for each lease. A learner that is killed and goes on from
/// an older checkpoint thus knows what it has granted since, and takes what its workers made of it. The lines are not
/// synced: after a power cut those of the last seconds are missing, and their rollouts are refused as not leased.
/// One thread uses it.
class LeaseJournal {
 public:
  static constexpr const char* kFile = "leases.jsonl";

  struct Record {
    std::uint64_t group = 0;
    std::uint64_t first = 0;
    std::uint64_t size = 0;
    std::string worker;

    bool operator==(const Record&) const = default;
  };

  /// `resumed`: the file's leases are read, up to the first line that is none. Otherwise it begins empty. Errors: those
  /// of the files.
  [[nodiscard]] static Result<LeaseJournal> open(FileSystem& files, std::filesystem::path path, bool resumed);

  /// What open() found.
  [[nodiscard]] std::vector<Record> take_found() { return std::exchange(found_, {}); }
  /// Errors: those of the files; then a part of them may be there.
  [[nodiscard]] Status append(std::span<const Record> records);
  /// Lines in the file.
  [[nodiscard]] std::uint64_t size() const { return records_; }
  /// The file has these leases alone from now on. Errors: those of the files; then it is as it was.
  [[nodiscard]] Status replace(std::span<const Record> records);

 private:
  LeaseJournal(FileSystem& files, std::filesystem::path path) : files_(&files), path_(std::move(path)) {}

  FileSystem* files_;
  std::filesystem::path path_;
  std::unique_ptr<File> file_;
  std::uint64_t bytes_ = 0;
  std::uint64_t records_ = 0;
  std::vector<Record> found_;
};

}  // namespace weightcast
