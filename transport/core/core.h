#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/time.h"
#include "transport/core/action.h"
#include "transport/core/deadline.h"
#include "transport/core/edge/holdings.h"

namespace weightcast {

/// The part of a node that decides: no I/O, no clock. Whoever drives it (the daemon, the simulator, a test) gives one
/// input, performs poll_action() until it is empty, and comes back at poll_deadline(). `now` never goes back.
class Core {
 public:
  virtual ~Core() = default;

  virtual void start(Instant now) = 0;
  /// Tells everyone connected why, and closes everything.
  virtual void stop(std::string_view reason) = 0;

  /// Numbers a connection that comes from outside; handle_accepted() follows.
  [[nodiscard]] virtual ConnId next_conn() = 0;
  /// `peer_host` is the numeric address that the connection comes from.
  virtual void handle_accepted(Instant now, ConnId conn, std::string_view peer_host) = 0;
  virtual void handle_connected(Instant now, ConnId conn) = 0;
  virtual void handle_closed(Instant now, ConnId conn, const Error& why) = 0;
  virtual void handle_message(Instant now, ConnId conn, const wire::Message& message) = 0;
  virtual void handle_chunk(Instant now, ConnId conn, const ChunkArrival& chunk) = 0;
  virtual void handle_chunk_sent(Instant now, ConnId conn) = 0;

  virtual void handle_chunk_unreadable(Instant now, PayloadId payload, ChunkIndex chunk) = 0;
  virtual void handle_chunk_checked(Instant now, PayloadId payload, ChunkIndex chunk, Result<Digest> digest) = 0;

  virtual void handle_payload_begun(Instant now, PayloadId payload, Result<RestoredPayload> restored) = 0;
  virtual void handle_chunk_stored(Instant now, PayloadId payload, ChunkIndex chunk, Status status) = 0;
  virtual void handle_finished(Instant now, PayloadId payload, Status status) = 0;

  /// What this node may be asked for. Whoever drives the core keeps all of it readable.
  [[nodiscard]] virtual const Holdings& holdings() const = 0;

  virtual void handle_timeout(Instant now) = 0;
  [[nodiscard]] virtual std::optional<Action> poll_action() = 0;
  [[nodiscard]] virtual std::optional<Instant> poll_deadline() const = 0;
};

}  // namespace weightcast
