#pragma once

#include "bench/fleet/network.h"

namespace weightcast::bench {

/// The seconds that a plain blocking TCP stream of `bytes` takes from one host to another, from its first write until
/// the receiver has read the last byte. Where the network keeps no rates, the sender keeps `cap`, with the limiter that
/// nodes use. Errors: kIo, kTimedOut; kClosed when interrupted.
[[nodiscard]] Result<double> time_plain_stream(const Network& network, NodeIndex from, NodeIndex to,
                                               std::uint64_t bytes, Rate cap);

/// The lower of two rates, either of which may be unlimited.
[[nodiscard]] Rate lower(Rate a, Rate b);

}  // namespace weightcast::bench
