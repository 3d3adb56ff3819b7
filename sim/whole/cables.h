#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "base/random.h"
#include "base/units.h"
#include "sim/whole/host_loop.h"
#include "transport/io/net/network.h"

namespace weightcast::sim {

using HostIndex = std::uint32_t;

/// The network between simulated hosts. Its connections carry the frames of real nodes, with their bytes. The
/// connections of a host share its uplink, and each frame takes a latency. A connection holds its sender back while the
/// receiver does not read. Loss is delay, as under TCP. Frames of a connection keep their order, except that control
/// frames overtake chunks that still wait.
class Cables {
 public:
  Cables(SimLoop& clock, std::uint64_t seed, std::uint32_t hosts);
  Cables(const Cables&) = delete;
  Cables& operator=(const Cables&) = delete;

  [[nodiscard]] static std::string address_of(HostIndex host);
  /// "origin" for the first, "w1" and so on: the name that a host's certificate gives.
  [[nodiscard]] static std::string name_of(HostIndex host);

  /// The network of a process on that host. Destroying it ends the process, and its connections break.
  [[nodiscard]] std::unique_ptr<Network> attach(HostIndex host, HostLoop& loop);

  /// What waits there goes at the new rate, too.
  void set_uplink(HostIndex host, Rate rate);
  void set_latency(HostIndex host, Duration latency) { hosts_[host].latency = latency; }
  /// This share of the chunks that the host sends arrives with a wrong bit.
  void set_corruption(HostIndex host, double share) { hosts_[host].corruption = share; }
  /// Nothing passes between the two until then. Frames sent meanwhile arrive afterwards.
  void partition(HostIndex a, HostIndex b, Instant until);
  /// Breaks the connections between the two.
  void reset(HostIndex a, HostIndex b);
  /// The host goes dark. Nobody hears that its connections broke until it is back.
  void power_cut(HostIndex host);
  void power_on(HostIndex host);
  /// Frames that the process sends from now on are lost: it was killed in the middle of something.
  void silence(HostIndex host) { hosts_[host].silent = true; }

  /// A planted bug: connections keep reading although their reader asked for a pause.
  void ignore_pauses() { ignore_pauses_ = true; }

 private:
  class Wire;
  class Connection;
  class Acceptor;
  class Attempt;
  class HostNetwork;
  using WireRef = std::shared_ptr<Wire>;

  struct Host {
    Rate uplink{};
    Duration latency = std::chrono::microseconds(200);
    double corruption = 0;
    Instant uplink_free{};
    bool dark = false;
    bool silent = false;
    HostLoop* loop = nullptr;  // of the process that is attached
    std::map<std::uint16_t, Acceptor*> acceptors;
  };

  [[nodiscard]] Duration latency(HostIndex a, HostIndex b);
  [[nodiscard]] Instant open_at(HostIndex a, HostIndex b) const;

  SimLoop& clock_;
  Random random_;
  std::vector<Host> hosts_;
  std::map<std::pair<HostIndex, HostIndex>, Instant> partitions_;  // until when
  std::vector<std::weak_ptr<Wire>> wires_;
  bool ignore_pauses_ = false;
};

}  // namespace weightcast::sim
