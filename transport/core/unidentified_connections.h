#pragma once

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "base/peer_identity.h"
#include "base/time.h"
#include "transport/core/action.h"

namespace weightcast {

/// Accepted connections on which neither Join nor Hello has come. Pure. Owned by a Core.
/// Invariant: connections are numbered in the order in which they come.
class UnidentifiedConnections {
 public:
  /// `patience`: how long a connection may stay unidentified.
  explicit UnidentifiedConnections(Duration patience) : patience_(patience) {}

  /// `host` is where it comes from, `peer` who it has proven to be.
  void add(Instant now, ConnId conn, std::string_view host, const std::optional<PeerIdentity>& peer) {
    unidentified_[conn] = {now, std::string(host), peer};
  }
  /// The connection is identified, or gone.
  void erase(ConnId conn) { unidentified_.erase(conn); }
  [[nodiscard]] bool contains(ConnId conn) const { return unidentified_.contains(conn); }
  /// Of one that is contained.
  [[nodiscard]] const std::string& host(ConnId conn) const { return unidentified_.at(conn).host; }
  [[nodiscard]] const std::optional<PeerIdentity>& peer(ConnId conn) const { return unidentified_.at(conn).peer; }

  [[nodiscard]] std::vector<ConnId> overdue(Instant now) const {
    std::vector<ConnId> conns;
    for (const auto& [conn, waiting] : unidentified_) {
      if (now - waiting.since >= patience_) conns.push_back(conn);
    }
    return conns;
  }
  [[nodiscard]] std::optional<Instant> poll_deadline() const {
    // Numbered as they come: the first has waited longest.
    if (unidentified_.empty()) return std::nullopt;
    return unidentified_.begin()->second.since + patience_;
  }

 private:
  struct Waiting {
    Instant since{};
    std::string host;
    std::optional<PeerIdentity> peer;
  };

  const Duration patience_;
  std::map<ConnId, Waiting> unidentified_;
};

}  // namespace weightcast
