#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "base/result.h"
#include "base/units.h"
#include "transport/io/net/frame_connection.h"

namespace weightcast::bench {

/// What one host may send and receive; a rate that is not limited() is not capped.
struct LinkRates {
  Rate uplink{};
  Rate downlink{};
  bool operator==(const LinkRates&) const = default;
};

/// A node of the fleet: 0 is the origin, workers follow.
using NodeIndex = std::size_t;

/// The hosts that a fleet runs on.
class Network {
 public:
  virtual ~Network() = default;

  /// Whether the network enforces the rates. If not, the nodes must.
  [[nodiscard]] virtual bool keeps_rates() const = 0;
  /// The address on which node `node` listens.
  [[nodiscard]] virtual Endpoint endpoint(NodeIndex node) const = 0;
  /// The network namespace of a node; -1: ours.
  [[nodiscard]] virtual int namespace_fd(NodeIndex node) const = 0;
  [[nodiscard]] virtual LinkRates rates(NodeIndex node) const = 0;

  /// Bytes that a host's interface has sent, headers of the first of each train of segments included (that is what the
  /// kernel counts). Errors: kUnsupported where hosts share an interface.
  [[nodiscard]] virtual Result<std::uint64_t> bytes_sent(NodeIndex node) = 0;
  /// Errors: kUnsupported, as above; kIo.
  [[nodiscard]] virtual Status set_rates(NodeIndex node, const LinkRates& rates) = 0;
  /// Takes a host off the network and puts it back.
  [[nodiscard]] virtual Status set_connected(NodeIndex node, bool connected) = 0;

  /// Runs `body` with new sockets belonging to the host.
  [[nodiscard]] Status on_host(NodeIndex node, const std::function<Status()>& body) const;
};

/// All nodes run on this host. Node i has to keep `rates[i]` itself.
[[nodiscard]] std::unique_ptr<Network> make_loopback_network(std::vector<LinkRates> rates);

/// Each host is a network namespace, joined to a bridge (in a namespace of its own) by a veth pair with a token bucket
/// on either end. The namespaces have no names: they are gone with their last process and descriptor, whatever happens
/// to us. Needs root, `ip` and `tc`. Errors: kNotAllowed, kIo.
[[nodiscard]] Result<std::unique_ptr<Network>> make_namespace_network(std::vector<LinkRates> rates);

}  // namespace weightcast::bench
