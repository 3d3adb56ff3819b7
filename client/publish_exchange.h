#pragma once

#include "client/client.h"
#include "client/local_channel.h"

namespace weightcast {

// The three steps of a publish on the local API, shared by those who publish from a path and from memory.

[[nodiscard]] Status send_publish(LocalChannel& channel, Version version, const std::string& path,
                                  local::SourceKind source, const PublishOptions& options,
                                  LocalChannel::Clock::time_point deadline);

/// Until the origin has its own copy; returns the seconds that it took, by its clock. Outcomes of earlier versions that
/// nobody waited for are passed over, here and below.
[[nodiscard]] Result<double> receive_taken(LocalChannel& channel, Version version,
                                           LocalChannel::Clock::time_point deadline);

[[nodiscard]] Result<PublishOutcome> receive_outcome(LocalChannel& channel, Version version, double take_s,
                                                     const PublishOptions& options,
                                                     LocalChannel::Clock::time_point deadline);

}  // namespace weightcast
