#pragma once

#include <atomic>

namespace weightcast {

/// True from the first SIGTERM or SIGINT on, once this was called. A second one ends the process at once.
[[nodiscard]] const std::atomic<bool>& stop_on_signals();

}  // namespace weightcast
