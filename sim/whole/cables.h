#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "base/random.h"
#include "sim/host/sim_clock.h"
#include "sim/network.h"
#include "transport/io/net/network.h"

namespace weightcast::sim {

/// Plugs whole nodes into the simulated network. Its connections carry the frames of real nodes, with their bytes. As
/// the daemon's they send control messages before chunks that still wait.
class Cables final : private NetworkHandler {
 public:
  Cables(SimClock& clock, std::uint64_t seed, const NetworkOptions& options, std::uint32_t hosts);
  Cables(const Cables&) = delete;
  Cables& operator=(const Cables&) = delete;

  /// The network of a process on that host. Destroying it ends the process, and its connections break.
  [[nodiscard]] std::unique_ptr<weightcast::Network> attach(NodeIndex host);
  [[nodiscard]] Network& network() { return network_; }

  /// A planted bug: connections keep reading although their reader asked for a pause.
  void ignore_pauses() { ignore_pauses_ = true; }

 private:
  class Connection;
  class Acceptor;
  class Attempt;
  class HostNetwork;

  struct Host {
    Acceptor* acceptor = nullptr;  // null: nobody answers
    std::uint32_t conns = 0;       // so far
    std::map<ConnId, Attempt*> attempts;
    std::map<ConnId, Connection*> connections;  // that are open
  };

  void handle(const Event& event);
  bool is_up(NodeIndex host) const override { return hosts_[host].acceptor != nullptr; }
  ConnId on_accept(NodeIndex host, NodeIndex dialler, LinkIndex link) override;
  void on_connected(NodeIndex host, ConnId conn) override;
  void on_closed(NodeIndex host, ConnId conn, const Error& why) override;
  void on_control(NodeIndex host, ConnId conn, NodeIndex from, Cargo& cargo) override;
  void on_chunk(NodeIndex host, ConnId conn, PayloadId payload, ChunkIndex chunk, bool damaged, Cargo* cargo) override;
  void on_chunk_sent(NodeIndex host, ConnId conn) override;
  /// Ends a connection that brought what cannot be, unless it has ended meanwhile.
  void note(NodeIndex host, ConnId conn, const Status& taken);
  /// Null if it is closed.
  [[nodiscard]] Connection* connection(NodeIndex host, ConnId conn) const;

  SimClock& clock_;
  Random random_;
  std::vector<Host> hosts_;
  Network network_;
  bool ignore_pauses_ = false;
};

}  // namespace weightcast::sim
