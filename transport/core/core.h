#pragma once

#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/peer_identity.h"
#include "base/time.h"
#include "transport/core/action.h"
#include "transport/core/budget.h"
#include "transport/core/deadline.h"
#include "transport/core/edge/holdings.h"
#include "transport/core/edge/links.h"
#include "transport/core/edge/self_check.h"
#include "transport/core/edge/uploads.h"
#include "transport/core/message_fate.h"
#include "transport/core/timeouts.h"
#include "transport/core/unidentified_connections.h"

namespace weightcast {

/// The part of a node that decides, as far as both roles have it: it accepts connections, serves children from what the
/// node holds, and looks again at what somebody finds damaged. OriginCore and WorkerCore add their roles. No I/O, no
/// clock. Whoever drives a core (the daemon, the simulator, a test) gives one input, performs poll_action() until it is
/// empty, and comes back at poll_deadline(). `now` never goes back.
/// Invariant: a connection is unidentified, a child's, or of a kind that only the role knows.
class Core {
 public:
  virtual ~Core() = default;
  Core(const Core&) = delete;
  Core& operator=(const Core&) = delete;

  virtual void start(Instant now) = 0;
  /// Tells everyone connected why, and closes everything.
  virtual void stop(std::string_view reason) = 0;

  /// Numbers a connection that comes from outside; handle_accepted() follows.
  [[nodiscard]] ConnId next_conn() { return conn_ids_.next(); }
  /// `peer_host` is the numeric address that the connection comes from. `peer` is who the other end has proven to be;
  /// absent where connections are not encrypted, and then nothing is proven.
  virtual void handle_accepted(Instant now, ConnId conn, std::string_view peer_host,
                               const std::optional<PeerIdentity>& peer = std::nullopt);
  virtual void handle_connected(Instant now, ConnId conn, const std::optional<PeerIdentity>& peer = std::nullopt) = 0;
  virtual void handle_closed(Instant now, ConnId conn, const Error& why) = 0;
  /// The body of a control frame. What its sender may not say there is refused or ignored before anything is parsed.
  /// Errors (the caller closes the connection): kCorrupt.
  Status handle_control(Instant now, ConnId conn, std::string_view body);
  virtual void handle_message(Instant now, ConnId conn, const wire::Message& message) = 0;
  virtual void handle_chunk(Instant now, ConnId conn, const ChunkArrival& chunk) = 0;
  /// Who speaks on a connection, so far.
  [[nodiscard]] virtual Speaker speaker_on(ConnId conn) const;
  /// Whom a connection speaks for, by its keys or, without them, by its own word; "" if it has not said.
  [[nodiscard]] virtual std::string name_on(ConnId conn) const { return uploads_.name_of(conn); }
  /// Whoever drives this core reads that peer more slowly, again and again: it says more than its share.
  virtual void handle_excess(std::string_view /*name*/) {}
  /// The last byte of the oldest chunk of action::SendChunk has left on `conn`.
  void handle_chunk_sent(Instant /*now*/, ConnId conn) { uploads_.handle_chunk_sent(conn); }

  /// A chunk of action::SendChunk cannot be read; the connection is closed next.
  void handle_chunk_unreadable(Instant now, PayloadId payload, ChunkIndex chunk);
  /// The answer to action::CheckChunk: the digest of what is on disk, or why it cannot be read.
  void handle_chunk_checked(Instant now, PayloadId payload, ChunkIndex chunk, const Result<ContentDigest>& digest);
  /// The store has lost a complete version, and deleted what it had of it. `newest` is the newest that is left, or
  /// null.
  virtual void handle_version_lost(Instant now, Version version, std::shared_ptr<const Manifest> newest,
                                   const Error& why) = 0;

  /// What this node may be asked for. Whoever drives the core keeps all of it readable.
  [[nodiscard]] const Holdings& holdings() const { return holdings_; }
  /// What whoever drives the core keeps in its store: what is held, and of an origin all versions.
  [[nodiscard]] virtual std::vector<PayloadId> retained() const;
  /// Names of the children that are subscribed to something, for status.
  [[nodiscard]] std::vector<std::string> children() const { return uploads_.children(); }
  /// Of chunks whose last byte has left, since the start.
  [[nodiscard]] std::uint64_t bytes_sent() const { return uploads_.bytes_sent(); }
  /// Which protocol version each connection speaks.
  [[nodiscard]] const AgreedProtocols& protocols() const { return actions_.protocols(); }

  virtual void handle_timeout(Instant now);
  [[nodiscard]] virtual std::optional<Action> poll_action() { return actions_.poll(); }
  [[nodiscard]] virtual std::optional<Instant> poll_deadline() const;

 protected:
  Core(const Timeouts& timeouts, const ProtocolRange& protocols);

  /// What is held of `payload` was found to be damaged on disk.
  virtual void handle_damaged(Instant now, PayloadId payload, const Error& why) = 0;

  /// A message on a connection that came from outside and is no member's. `greeting`: what the role expects there
  /// first.
  void handle_child_message(Instant now, ConnId conn, const wire::Message& message, std::string_view greeting);
  /// Whether that accepted connection may send one more message now. If not, it is refused, and gone.
  [[nodiscard]] bool admit_message(Instant now, ConnId conn);
  /// Says why, and closes. The connection is gone.
  void close(ConnId conn, const Error& why);
  /// The same for what the peer did wrong: the audit log tells it.
  void refuse(ConnId conn, const Error& why, Refusal reason = Refusal::kMessage);
  /// The number of the child that says hello; by default its own word.
  [[nodiscard]] virtual PeerId child_id(const wire::Hello& hello) const { return PeerId{hello.peer_id()}; }
  /// A message of a kind that no release sends there. The connection is gone afterwards.
  virtual void handle_refused(Instant now, ConnId conn, const Error& why);
  /// A child asks for what it has no place for, on a connection that is closed next.
  virtual void handle_placeless(Instant /*now*/, ConnId /*conn*/) {}
  /// Somebody says that this node's copy of a chunk is damaged.
  void handle_suspected(Instant now, PayloadId payload, ChunkIndex chunk) {
    self_check_.handle_suspected(now, payload, chunk);
  }
  /// The connection of a child, or an unidentified one, is gone.
  void forget(ConnId conn);

  const Timeouts timeouts_;
  const ProtocolRange protocols_spoken_;
  ActionQueue actions_;
  ConnIds conn_ids_;
  Holdings holdings_;
  Uploads uploads_;
  UnidentifiedConnections unidentified_;

 private:
  void handle_hello(ConnId conn, const wire::Hello& hello);
  /// Whether that child may be who it says.
  [[nodiscard]] Status check_hello(ConnId conn, const wire::Hello& hello) const;

  SelfCheck self_check_;
  std::map<ConnId, Budget> budgets_;  // of messages, of accepted connections
};

}  // namespace weightcast
