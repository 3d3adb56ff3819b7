#pragma once

#include <gtest/gtest.h>
#include <unistd.h>

#include <memory>
#include <string>
#include <vector>

#include "bench/fleet/network.h"

namespace weightcast {

/// Hosts for a test: network namespaces, joined by links with a rate.
struct Hosts {
  /// One for each of these links. Skips the test, and leaves `network` null, where they cannot be made.
  void make_hosts(const std::vector<bench::LinkRates>& links) {
    auto made = bench::make_namespace_network(links);
    // Only root may make network namespaces.
    if (!made.has_value() && made.error().code == Errc::kNotAllowed) GTEST_SKIP() << made.error().message();
    ASSERT_TRUE(made.has_value()) << made.error().message();
    network = std::move(*made);
  }
  /// The words that start a program of this process on that host.
  [[nodiscard]] std::vector<std::string> on(bench::NodeIndex host) const {
    return {"/usr/bin/nsenter",
            "--net=/proc/" + std::to_string(::getpid()) + "/fd/" + std::to_string(network->namespace_fd(host))};
  }

  std::unique_ptr<bench::Network> network;
};

}  // namespace weightcast
