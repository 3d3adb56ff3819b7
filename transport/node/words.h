#pragma once

#include <array>

#include "base/words.h"
#include "transport/io/disk/disk.h"
#include "transport/node/versions_place.h"

namespace weightcast {

constexpr auto words_of(DiskBackend) {
  using enum DiskBackend;
  return std::array{Word<DiskBackend>{kAuto, "auto"}, Word<DiskBackend>{kIoUring, "io_uring"},
                    Word<DiskBackend>{kThreadPool, "threads"}};
}

constexpr auto words_of(VersionsIn) {
  using enum VersionsIn;
  return std::array{Word<VersionsIn>{kAuto, "auto"}, Word<VersionsIn>{kMemory, "memory"},
                    Word<VersionsIn>{kDisk, "disk"}};
}

}  // namespace weightcast
