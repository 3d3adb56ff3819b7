#pragma once

#include <string>

#include "tools/doctor/finding.h"

namespace weightcast {

/// "descriptors": those that this process may have, after it has asked for all that it may.
[[nodiscard]] Finding check_descriptors();
/// "io_uring": whether the kernel lets this process have a ring. Without it a pool of threads does the same.
[[nodiscard]] Finding check_io_uring();
/// "bbr": whether the kernel has that congestion control. Over long or lossy links cubic is slower.
[[nodiscard]] Finding check_bbr();
/// "clock": whether the kernel's clock is kept by a time server.
[[nodiscard]] Finding check_clock();
/// "keys": whether a node can use that file now, by this host's clock. `keys` "": no check.
[[nodiscard]] Findings check_keys(const std::string& keys);

}  // namespace weightcast
