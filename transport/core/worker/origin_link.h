#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "transport/core/action.h"
#include "transport/core/edge/links.h"
#include "transport/core/worker/worker_config.h"

namespace weightcast {

/// A worker's control connection to its origin: dials, joins, dials again with growing pauses, and says when the next
/// heartbeat is due. Pure. Called by the WorkerCore that owns it. Invariant: at most one connection.
class OriginLink {
 public:
  OriginLink(const WorkerConfig& config, ConnIds& conn_ids, ActionQueue& actions)
      : config_(config), conn_ids_(conn_ids), actions_(actions), heartbeat_(config.timeouts.heartbeat) {}

  void start(Instant now);
  /// Closes it for good.
  void stop();

  [[nodiscard]] bool is(ConnId conn) const { return conn == conn_; }
  [[nodiscard]] ConnId conn() const { return conn_; }
  [[nodiscard]] bool joined() const { return joined_; }
  [[nodiscard]] PeerId id() const { return id_; }
  /// Why there is no connection, in the origin's own words if it refused; "" once joined.
  [[nodiscard]] const std::string& last_error() const { return last_error_; }

  /// The connection was made; sends `join`, completed by what the configuration says of this worker.
  void handle_connected(Instant now, wire::Join join);
  void handle_closed(Instant now, const Error& why);
  /// Closes the connection, and joins on a new one: what this worker has is not what it said.
  void rejoin(Instant now, std::string_view why);
  /// To be called for every message that comes on it.
  void handle_heard(Instant now) { heard_at_ = now; }
  void handle_joined(Instant now, const wire::Joined& joined);
  void handle_bye(const wire::Bye& bye);

  /// Lost if there is no connection now.
  void send(wire::Message message);
  void send_heartbeat(Instant now, wire::Message heartbeat);
  /// The number of the list of revoked keys that counts here.
  void set_revocations(std::uint64_t number) { revocations_ = number; }
  [[nodiscard]] bool heartbeat_due(Instant now) const { return joined_ && now >= heartbeat_due_; }

  void handle_timeout(Instant now);
  [[nodiscard]] std::optional<Instant> poll_deadline() const;

 private:
  void dial();
  void lose(Instant now);

  const WorkerConfig& config_;
  ConnIds& conn_ids_;
  ActionQueue& actions_;
  ConnId conn_{};
  bool open_ = false;
  bool joined_ = false;
  bool refused_ = false;  // on this connection, or the last one if there is none
  PeerId id_{};
  Instant heard_at_{};
  Duration heartbeat_{};
  Instant heartbeat_due_{};
  std::optional<Instant> redial_at_;
  std::uint32_t redials_ = 0;
  std::uint64_t revocations_ = 0;
  std::string last_error_;
};

}  // namespace weightcast
