#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "base/files/file_system.h"
#include "base/result.h"

namespace weightcast {

/// Numbers of groups, each given out once over all starts of a run's learner, and the run's id: `intake.json`. A start
/// skips what the one before had reserved: workers may still send rollouts of those groups. One thread.
class GroupLeases {
 public:
  static constexpr const char* kFile = "intake.json";
  static constexpr std::uint64_t kReserved = 1024;  ///< one write to the disk for so many

  /// `resumed`: the run that the file is of goes on; otherwise another one begins. Errors: kCorrupt (the file),
  /// kNotFound (it is missing, though the run goes on), those of the files.
  [[nodiscard]] static Result<GroupLeases> open(FileSystem& files, std::filesystem::path path, bool resumed);

  [[nodiscard]] const std::string& run_id() const { return run_id_; }
  /// All numbers that were given out are less, those of earlier starts too.
  [[nodiscard]] std::uint64_t next() const { return next_; }
  /// The next `count` numbers. Errors: those of the files; then none are given out.
  [[nodiscard]] Result<std::vector<std::uint64_t>> take(std::uint64_t count);

 private:
  GroupLeases(FileSystem& files, std::filesystem::path path) : files_(&files), path_(std::move(path)) {}
  [[nodiscard]] Status write(std::uint64_t reserved_to);

  FileSystem* files_;
  std::filesystem::path path_;
  std::string run_id_;
  std::uint64_t next_ = 0;
  std::uint64_t reserved_to_ = 0;
};

}  // namespace weightcast
