#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>

#include "tools/doctor/finding.h"
#include "transport/node/versions_place.h"

namespace weightcast {

/// As the daemon's flags.
struct StorageNeeds {
  std::filesystem::path state;  ///< which need not be there yet
  VersionsIn versions_in = VersionsIn::kAuto;
  std::filesystem::path memory;                                  ///< --memory-dir
  std::optional<std::uint64_t> memory_bytes_max = std::nullopt;  ///< --memory-max
  std::uint32_t versions_kept = 2;                               ///< --keep
  bool single_copy = false;
  std::uint64_t snapshot_bytes = 0;  ///< of a version; 0: not known
};

/// "state-directory": whether it can be made and written. "socket-path": whether DIR/api.sock fits a socket's address.
/// "state-filesystem": whether it keeps what a node writes. "state-space": whether the versions fit. "state-speed":
/// 64 MiB written and synced. "memory-directory": whether versions fit in memory, as the daemon reckons. Leaves nothing
/// behind but the directory itself.
[[nodiscard]] Findings check_storage(const StorageNeeds& needs);

/// "memory-left": whether nodes of this user that are gone have left versions in `memory`. `mend`: removes them.
[[nodiscard]] Finding check_left_in_memory(const std::filesystem::path& memory, bool mend);

}  // namespace weightcast
