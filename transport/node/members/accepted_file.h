#pragma once

#include <filesystem>
#include <vector>

#include "base/files/file_system.h"
#include "transport/core/worker/worker_config.h"

namespace weightcast {

/// Keeps the greatest version that a worker has installed of each run in DIR/accepted, replaced by rename. The worker
/// takes no older one, whoever signed it and whatever has become of its disk since.
///
///   accepted 00c0ffee00c0ffee 7       one line for each run, the run of the last one at the end
///   check <XXH3-128 of the lines above, in hexadecimal>
class AcceptedFile {
 public:
  AcceptedFile(FileSystem& files, const std::filesystem::path& directory)
      : files_(&files), path_(directory / "accepted") {}

  /// None if there is no such file. Errors: kCorrupt (what was accepted is not known without it; the detail says what
  /// to do), kIo.
  [[nodiscard]] Result<std::vector<AcceptedVersion>> read() const;
  /// Blocks until a power cut leaves the new file; for a pool thread. Errors: kNoSpace, kIo; either file is there.
  [[nodiscard]] Status write(const std::vector<AcceptedVersion>& accepted) const;

 private:
  FileSystem* files_;
  std::filesystem::path path_;
};

}  // namespace weightcast
