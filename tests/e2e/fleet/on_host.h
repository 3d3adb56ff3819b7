#pragma once

#include <unistd.h>

#include <string>
#include <vector>

#include "bench/fleet/network.h"

namespace weightcast {

/// The words that start a program of this process on a host that is a network namespace.
[[nodiscard]] inline std::vector<std::string> on_host(const bench::Network& network, bench::NodeIndex host) {
  return {"/usr/bin/nsenter",
          "--net=/proc/" + std::to_string(::getpid()) + "/fd/" + std::to_string(network.namespace_fd(host))};
}

}  // namespace weightcast
