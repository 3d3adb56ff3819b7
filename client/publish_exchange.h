#pragma once

#include "client/client.h"
#include "client/local_channel.h"

namespace weightcast {

// The three steps of a publish on the local API, shared by those who publish from a path and from memory.

/// Returns the request's number.
[[nodiscard]] Result<std::uint64_t> send_publish(LocalChannel& channel, Version version, const std::string& path,
                                                 const PublishOptions& options,
                                                 LocalChannel::Clock::time_point deadline);

/// What the origin said of its own copy.
struct Taken {
  Status status;       ///< why it has none, and will not read the source any more
  double seconds = 0;  ///< that it took, by the origin's clock
};
/// Until the origin has its own copy, or will have none. Errors: it has not said yet (kTimedOut), or cannot any more
/// (kClosed): it may still be reading.
[[nodiscard]] Result<Taken> receive_taken(LocalChannel& channel, std::uint64_t request,
                                          LocalChannel::Clock::time_point deadline);

[[nodiscard]] Result<PublishOutcome> receive_outcome(LocalChannel& channel, std::uint64_t request, double take_s,
                                                     const PublishOptions& options,
                                                     LocalChannel::Clock::time_point deadline);

}  // namespace weightcast
