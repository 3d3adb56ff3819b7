#pragma once

#include <filesystem>
#include <vector>

#include "base/files/file_system.h"
#include "transport/core/origin/origin_core.h"

namespace weightcast {

/// Keeps what an origin knows of its workers' forwarding in DIR/peers.json, replaced by rename. The file may be
/// deleted: then everyone starts without history.
class PeerRecordsFile {
 public:
  PeerRecordsFile(FileSystem& files, const std::filesystem::path& directory)
      : files_(&files), path_(directory / "peers.json") {}

  /// Nothing if there is no such file, or none that can be read; the latter is logged.
  [[nodiscard]] std::vector<PeerRecord> read() const;
  /// Blocks; for a pool thread. Errors: kNoSpace, kIo; the old file stays.
  [[nodiscard]] Status write(const std::vector<PeerRecord>& records) const;

 private:
  FileSystem* files_;
  std::filesystem::path path_;
};

}  // namespace weightcast
