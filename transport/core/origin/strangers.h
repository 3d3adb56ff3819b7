#pragma once

#include <map>
#include <string>
#include <vector>

#include "transport/core/action.h"

namespace weightcast {

/// Connections that came from outside and have not said yet who they are. Pure.
class Strangers {
 public:
  /// `patience`: how long one may say nothing.
  explicit Strangers(Duration patience) : patience_(patience) {}

  /// `host` is where it comes from.
  void add(Instant now, ConnId conn, std::string_view host) { strangers_[conn] = {now, std::string(host)}; }
  /// It has said who it is, or is gone.
  void erase(ConnId conn) { strangers_.erase(conn); }
  [[nodiscard]] bool contains(ConnId conn) const { return strangers_.contains(conn); }
  /// Of one that is contained.
  [[nodiscard]] const std::string& host(ConnId conn) const { return strangers_.at(conn).host; }

  [[nodiscard]] std::vector<ConnId> overdue(Instant now) const {
    std::vector<ConnId> conns;
    for (const auto& [conn, stranger] : strangers_) {
      if (now - stranger.since >= patience_) conns.push_back(conn);
    }
    return conns;
  }
  [[nodiscard]] std::optional<Instant> poll_deadline() const {
    // Numbered as they come: the first has waited longest.
    if (strangers_.empty()) return std::nullopt;
    return strangers_.begin()->second.since + patience_;
  }

 private:
  struct Stranger {
    Instant since{};
    std::string host;
  };

  const Duration patience_;
  std::map<ConnId, Stranger> strangers_;
};

}  // namespace weightcast
