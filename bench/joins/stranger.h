#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <thread>

#include "bench/fleet/network.h"
#include "transport/security/node_keys.h"

namespace weightcast::bench {

/// Somebody without keys of the cluster, on a host of its own and on a thread of its own, who troubles an origin until
/// this object goes: connections that are opened and say nothing, and attempts to join with another cluster's keys.
class Stranger {
 public:
  struct Options {
    std::size_t half_open = 0;  ///< connections that it keeps open; one that is closed it opens anew a second later
    double joins_per_s = 0;     ///< with wrong keys
  };
  struct Counts {
    std::uint64_t connections = 0;  ///< half open ones, so far
    std::uint64_t open = 0;         ///< of these, now
    std::uint64_t refused = 0;      ///< joins
  };

  /// `keys` are another cluster's, but for the authority's certificate: so it takes the origin for its own, and goes
  /// on to prove itself.
  Stranger(const Network& network, NodeIndex host, Endpoint origin, NodeKeys keys, const Options& options);
  ~Stranger();
  Stranger(const Stranger&) = delete;
  Stranger& operator=(const Stranger&) = delete;

  [[nodiscard]] Counts counts() const { return {connections_, open_, refused_}; }

 private:
  class Work;
  std::atomic<bool> stop_{false};
  std::atomic<std::uint64_t> connections_{0}, open_{0}, refused_{0};
  std::thread thread_;  // last: it uses the others
};

}  // namespace weightcast::bench
