#pragma once

#include <map>
#include <string>
#include <utility>
#include <vector>

#include "base/time.h"
#include "transport/core/action.h"
#include "transport/core/assignment.h"

namespace weightcast {

/// Whether a node can listen there. The field on the wire is wider.
[[nodiscard]] constexpr bool is_port(std::uint32_t port) { return port >= 1 && port <= 65535; }

/// Numbers connections; one per core.
class ConnIds {
 public:
  [[nodiscard]] ConnId next() { return ConnId{++last_}; }

 private:
  std::uint64_t last_ = 0;
};

/// The child's connections to its parents: one per parent and lane, shared by stripes and versions, and kept while
/// needed. Lanes are the parallel streams of one edge. Pure. Invariant: at most one connection per peer and lane.
class Links {
 public:
  Links(ConnIds& ids, ActionQueue& actions) : ids_(ids), actions_(actions) {}

  /// The origin's address in this node's configuration. It counts for peer 0, whatever the plan says.
  void set_origin(std::string host, std::uint16_t port);

  /// The connection to `peer` on `lane`, opened if there is none.
  ConnId open(Instant now, const NodeAddress& peer, std::uint32_t lane);
  [[nodiscard]] bool is_link(ConnId conn) const { return links_.contains(conn); }
  [[nodiscard]] bool is_open(ConnId conn) const;
  [[nodiscard]] bool leads_to_origin(ConnId conn) const;
  /// The name of the peer, as the plan gives it.
  [[nodiscard]] const std::string& name_of(ConnId conn) const { return links_.at(conn).name; }
  /// Who is dialled there.
  [[nodiscard]] NodeAddress peer_of(ConnId conn) const {
    const Link& link = links_.at(conn);
    return {link.peer, link.name, link.host, link.port};
  }
  /// It takes long to make that connection.
  void note_overdue(ConnId conn) { overdue_.push_back(peer_of(conn)); }
  /// Who was noted since the last call.
  [[nodiscard]] std::vector<NodeAddress> take_overdue() { return std::exchange(overdue_, {}); }
  /// Marks the connection as made. The caller then says hello on it.
  void handle_connected(Instant now, ConnId conn);
  /// How long to wait for a peer that is dialled: `least`, or twice what connections took of late (the median of the
  /// last five peers, of three at least), at most 8 s. Where many nodes share a host's processors, all of them take
  /// long.
  [[nodiscard]] Duration dial_patience(Duration least) const;
  void handle_closed(ConnId conn) { links_.erase(conn); }
  void close(ConnId conn);
  /// Closes the connections for which `wanted` is false.
  template <typename Wanted>
  void close_unless(Wanted wanted) {
    for (auto link = links_.begin(); link != links_.end();) {
      const ConnId conn = (link++)->first;
      if (!wanted(conn)) close(conn);
    }
  }

 private:
  struct Link {
    PeerId peer{};
    std::uint32_t lane = 0;
    std::string name;
    std::string host;
    std::uint16_t port = 0;
    bool open = false;
    Instant dialled_at{};
  };

  ConnIds& ids_;
  ActionQueue& actions_;
  std::string origin_host_;
  std::uint16_t origin_port_ = 0;
  std::map<ConnId, Link> links_;
  std::vector<NodeAddress> overdue_;
  std::vector<std::pair<PeerId, Duration>> handshakes_;  // what connections took of late, one of each peer
};

}  // namespace weightcast
