#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <string>

#include "base/files/file_system.h"
#include "base/ids.h"
#include "base/result.h"
#include "transport/node/history_reply.h"

namespace weightcast {

/// DIR/history/N: what an origin told of publication N when that had ended, a local::HistoryReply with its workers. So
/// an origin that starts again tells of what the processes before it published. It may be deleted. At most kFilesMax
/// files and kBytesMax bytes are kept, the newest.
class HistoryArchive {
 public:
  static constexpr std::size_t kFilesMax = PublicationHistory::kVersionsMax;
  static constexpr std::uint64_t kBytesMax = 16 * kMiB;
  static constexpr std::uint64_t kFileBytesMax = 2 * kMiB;

  HistoryArchive(FileSystem& files, const std::filesystem::path& state_directory)
      : files_(&files), directory_(state_directory / "history") {}

  /// What is damaged, as after a power cut, is left out, and so is what is beyond the bounds.
  [[nodiscard]] EarlierPublications read() const;
  /// Of one publication; then removes what is too old. Errors: those of the files.
  [[nodiscard]] Status write(Version version, const std::string& reply) const;

 private:
  [[nodiscard]] std::filesystem::path path_of(Version version) const {
    return directory_ / std::to_string(version.value);
  }
  /// The versions that have a file, the oldest first.
  [[nodiscard]] std::map<Version, std::uint64_t> sizes() const;

  FileSystem* files_;
  std::filesystem::path directory_;
};

}  // namespace weightcast
