#pragma once

#include "bench/fleet/network.h"

namespace weightcast::bench {

struct PlainStream {
  double seconds = 0;  ///< from the first write until the receiver has read the last byte
  double cpu_s = 0;    ///< user and system time of both ends
};

/// Sends `bytes` over a plain blocking TCP stream from one host to another, without hashing or storing. If the network
/// does not enforce rates, the sender keeps `cap` with the limiter of the nodes. Errors: kIo, kTimedOut; kClosed
/// (interrupted).
[[nodiscard]] Result<PlainStream> time_plain_stream(const Network& network, NodeIndex from, NodeIndex to,
                                                    std::uint64_t bytes, Rate cap);

/// The lower of two rates, either of which may be unlimited.
[[nodiscard]] Rate lower(Rate a, Rate b);

}  // namespace weightcast::bench
