#pragma once

#include <string>

#include "base/result.h"
#include "client/local_channel.h"

namespace weightcast::client {

/// Waits until the daemon of `state_dir` runs and is ready, and has a version in use if `has_version`. Asks again and
/// again, at first after 10 ms, then less and less often, up to every 200 ms. Errors: kTimedOut (the detail says what
/// was missing), and those of Client::open() and readiness() that no waiting mends.
[[nodiscard]] Status wait_until_ready(const std::string& state_dir, bool has_version, Deadline deadline);

}  // namespace weightcast::client
