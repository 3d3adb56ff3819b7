#pragma once

#include "base/files/posix_file_system.h"

namespace weightcast {

/// The host's files, for tests that look at real ones.
inline FileSystem& real_files() {
  static PosixFileSystem files;
  return files;
}

}  // namespace weightcast
