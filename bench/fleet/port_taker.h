#pragma once

#include "bench/fleet/network.h"
#include "bench/fleet/tcp.h"

namespace weightcast::bench {

/// Takes the connections that other hosts make from now on to `port`, where a program on the node's host listens. That
/// program keeps those that it has, and gets what is dialled on the host itself. A NAT rule of the host leads here; it
/// is gone with the host. Errors: kUnsupported (hosts are not their own), kIo (`iptables` is missing or refuses).
[[nodiscard]] Result<TcpListener> take_port(Network& network, NodeIndex node, std::uint16_t port);

}  // namespace weightcast::bench
