#pragma once

#include <chrono>

#include "base/time.h"

namespace weightcast {

/// Now, on this host's monotonic clock. For the code around the cores, which are given the time.
[[nodiscard]] inline Instant steady_now() { return Instant(std::chrono::steady_clock::now().time_since_epoch()); }

}  // namespace weightcast
