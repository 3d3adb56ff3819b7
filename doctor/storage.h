#pragma once

#include <cstdint>
#include <filesystem>

#include "doctor/finding.h"

namespace weightcast {

struct StorageNeeds {
  std::filesystem::path state;       ///< the daemon's directory, which need not be there yet
  std::filesystem::path memory;      ///< --memory-dir
  std::uint64_t snapshot_bytes = 0;  ///< of a version; 0: not known
  std::uint32_t versions_kept = 2;   ///< --keep
  bool single_copy = false;
};

/// "state-directory": whether it can be made and written. "socket-path": whether DIR/api.sock fits a socket's address.
/// "state-filesystem": whether it keeps what a node writes. "state-space": whether the versions fit. "state-speed":
/// 64 MiB written and synced. "memory-directory": whether versions fit in memory. Leaves nothing behind but the
/// directory itself.
[[nodiscard]] Findings check_storage(const StorageNeeds& needs);

}  // namespace weightcast
