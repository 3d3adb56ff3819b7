#pragma once

#include <cstddef>
#include <functional>
#include <thread>
#include <vector>

#include "base/result.h"

namespace weightcast {

/// Adds a thread that runs `work`, or returns false where the machine allows no more threads. Then whoever shares the
/// work goes on with fewer.
[[nodiscard]] bool add_thread(std::vector<std::jthread>& threads, std::function<void()> work);

/// Processor cores that this process may use, as its affinity says; at least 1.
[[nodiscard]] unsigned usable_cores();

/// For work that is proportional to a model, where nobody says otherwise: half of usable_cores(), from 1 to 8. An
/// engine or a trainer beside it has the others.
[[nodiscard]] unsigned default_threads();

/// Calls `body(i)` once for each i below `count`, on the caller's thread and at most `threads_max` - 1 others. Returns
/// when all calls have ended. `body` must allow calls at the same time.
void for_each_index(std::size_t count, unsigned threads_max, const std::function<void(std::size_t)>& body);

/// The same for calls that may fail: begins nothing more once one has, and returns the first error.
[[nodiscard]] Status for_each_until_error(std::size_t count, unsigned threads_max,
                                          const std::function<Status(std::size_t)>& body);

}  // namespace weightcast
