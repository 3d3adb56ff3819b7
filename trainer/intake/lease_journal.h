#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "base/files/file_system.h"
#include "base/result.h"

namespace weightcast {

/// Which groups workers were granted: `leases.jsonl`, a line for each lease, groups ascending. A learner that is killed
/// and goes on from an older checkpoint thus knows what it has granted since, and takes what its workers made of it:
/// also of leases that were over by then, as it has to train on their groups again. So a line stays until a checkpoint
/// that needs it cannot be taken any more. The lines are not synced: after a power cut those of the last seconds are
/// missing, and their rollouts are refused as not leased. One thread uses it.
class LeaseJournal {
 public:
  static constexpr const char* kFile = "leases.jsonl";
  /// The older half of a file that would be larger goes. Some 200,000 leases.
  static constexpr std::uint64_t kBytesMax = std::uint64_t{8} << 20;

  struct Record {
    std::uint64_t group = 0;
    std::uint64_t first = 0;
    std::uint64_t size = 0;
    std::string worker;

    bool operator==(const Record&) const = default;
  };

  /// `resumed`: the file's leases are read, up to the first line that is none. Otherwise it begins empty. Errors: those
  /// of the files.
  [[nodiscard]] static Result<LeaseJournal> open(FileSystem& files, std::filesystem::path path, bool resumed,
                                                 std::uint64_t bytes_max = kBytesMax);

  /// What open() found.
  [[nodiscard]] std::vector<Record> take_found() { return std::exchange(found_, {}); }
  /// Lines of groups before `needed_from` may go, and do so once they are many. Errors: those of the files; then a part
  /// of `records` may be there.
  [[nodiscard]] Status append(std::span<const Record> records, std::uint64_t needed_from);

 private:
  LeaseJournal(FileSystem& files, std::filesystem::path path, std::uint64_t bytes_max)
      : files_(&files), path_(std::move(path)), bytes_max_(bytes_max) {}
  /// Keeps the lines from that group on, and of them the newest. Errors: those of the files; then it is as it was.
  [[nodiscard]] Status drop_before(std::uint64_t group);

  FileSystem* files_;
  std::filesystem::path path_;
  std::uint64_t bytes_max_;
  std::unique_ptr<File> file_;
  std::uint64_t bytes_ = 0;
  std::uint64_t lines_ = 0;
  std::uint64_t lines_kept_ = 0;  // when it was opened, or written anew last
  std::vector<Record> found_;
};

}  // namespace weightcast
