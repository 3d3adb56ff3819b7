#pragma once

#include <sys/uio.h>

#include <deque>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>

#include "base/digest/checksum.h"
#include "base/peer_identity.h"
#include "base/result.h"
#include "base/units.h"
#include "transport/security/node_keys.h"
#include "transport/security/revocations.h"

using SSL = struct ssl_st;
using SSL_CTX = struct ssl_ctx_st;
using SSL_SESSION = struct ssl_session_st;

namespace weightcast {

/// What carries the encrypted bytes of a session: a socket, or a test's memory.
class TlsWire {
 public:
  struct Got {
    std::size_t bytes = 0;  ///< 0: nothing there now
    bool ended = false;     ///< the peer will send nothing more
  };
  virtual ~TlsWire() = default;
  [[nodiscard]] virtual Result<Got> read_wire(MutableBytes into) = 0;
  /// Returns how many bytes it took; the rest would block. `more_follows`: soon, so that packets may wait to be filled.
  [[nodiscard]] virtual Result<std::size_t> write_wire(Bytes from, bool more_follows) = 0;
};

/// One connection's encryption: TLS 1.3, where both ends prove by their certificates who they are. Moves bytes between
/// a caller's memory and a TlsWire, and waits for nothing. Bytes are encrypted and decrypted a record of 16 KiB at a
/// time: one pass of the cipher and one copy in the processor's cache. It reads at most four records ahead, holds at
/// most one of what it writes, and what the wire did not take. Invariant: nothing of the peer's is read before the peer
/// has proven who it is.
class TlsSession {
 public:
  /// What the peer may send before it has proven who it is.
  static constexpr std::size_t kHandshakeBytesMax = 32 * kKiB;
  /// What may wait for the wire. Beyond it the session fails: the peer asks for answers, and reads none.
  static constexpr std::size_t kOutputBytesMax = 64 * kKiB;
  /// What a record adds to its bytes.
  static constexpr std::size_t kRecordOverheadBytes = 22;
  static constexpr std::size_t kRecordBytesMax = 16 * kKiB;

  ~TlsSession();
  TlsSession(const TlsSession&) = delete;
  TlsSession& operator=(const TlsSession&) = delete;

  /// Goes on with the handshake as far as the wire allows. True once it is done; then peer() says who the peer is. To
  /// be called again when the wire is ready. Errors, all of them final: kNotAllowed (who the peer is, or what it says
  /// of us; see peer_is_plain()), kTooLarge, kCorrupt (not TLS 1.3), kClosed (the peer ended it), those of the wire.
  [[nodiscard]] Result<bool> handshake(TlsWire& wire);
  [[nodiscard]] bool done() const { return done_; }
  /// After handshake().
  [[nodiscard]] const PeerIdentity& peer() const { return peer_; }
  /// Whether an abbreviated handshake was enough, because both ends have met before.
  [[nodiscard]] bool resumed() const { return resumed_; }
  /// The peer sent something else than TLS.
  [[nodiscard]] bool peer_is_plain() const { return peer_is_plain_; }

  struct Moved {
    std::size_t bytes = 0;
    bool ended = false;  ///< read() only: the peer will send nothing more
  };
  /// Fills `into` with decrypted bytes. If it moved fewer than asked for, the wire has no more. Errors, all of them
  /// final: kCorrupt, kNotAllowed (the peer refuses our certificate: it can say so only after our handshake), those of
  /// the wire.
  [[nodiscard]] Result<Moved> read(std::span<iovec> into, TlsWire& wire);
  /// Encrypts bytes and hands them to the wire; first what the wire did not take before. Returns how many it took:
  /// fewer than asked for only if the wire would block. Without bytes it only does the first. Errors: those of the
  /// wire.
  [[nodiscard]] Result<std::size_t> write(std::span<iovec> from, TlsWire& wire);
  /// Whether encrypted bytes wait for the wire: write() again when it can take some.
  [[nodiscard]] bool holds_output() const { return !output_.empty(); }
  /// Says that nothing more will be written. As far as the wire takes it at once.
  void end_writing(TlsWire& wire);

  /// Bytes on the wire so far, headers of records and the handshake included.
  [[nodiscard]] std::uint64_t wire_bytes_received() const { return wire_bytes_received_; }
  [[nodiscard]] std::uint64_t wire_bytes_sent() const { return wire_bytes_sent_; }

 private:
  friend class TlsContext;
  friend struct TlsCallbacks;
  enum class End { kAccepted, kDialled };

  TlsSession(std::shared_ptr<class TlsContext> context, End end, std::string target);

  [[nodiscard]] Status flush(TlsWire& wire);
  /// Whether the peer's certificate counts now. `sent` came with it. Fills peer_.
  [[nodiscard]] Status check_peer(X509* certificate, const Between& sent);
  /// Why a call failed, of which SSL_get_error() says `kind`.
  [[nodiscard]] Error error_of(int kind);
  [[nodiscard]] Status update_keys();

  const std::shared_ptr<TlsContext> context_;
  const End end_;
  const std::string target_;
  const std::uint64_t keys_number_;  // TlsContext's, when it was made
  SSL* ssl_ = nullptr;
  TlsWire* wire_ = nullptr;  // during a call
  bool done_ = false;
  bool resumed_ = false;
  bool peer_is_plain_ = false;
  bool more_follows_ = false;
  bool wire_ended_ = false;
  bool revoked_ = false;             // with peer_error_: why
  bool of_another_cluster_ = false;  // the same
  PeerIdentity peer_;
  std::optional<Error> error_;        // of reading the wire, or what a read met after bytes that it returned
  std::optional<Error> write_error_;  // of writing to it: what the peer said before can still be read
  std::optional<Error> peer_error_;   // why its certificate was refused; the alert that tells it may still leave
  std::string output_;
  std::string small_;  // pieces that share a record
  std::uint64_t wire_bytes_received_ = 0;
  std::uint64_t wire_bytes_sent_ = 0;
  std::uint64_t bytes_since_key_update_ = 0;
};

struct TlsOptions {
  /// Plain bytes under one key. The bound of AES-GCM is 2^24.5 records (RFC 8446, 5.5), that is 370 GiB of full ones.
  std::uint64_t key_update_bytes = std::uint64_t{64} << 30;
  /// Accepts peers without a certificate that ask for one, as Role::kStranger.
  bool enrols = false;
};

/// What the sessions of a node share: its keys, what is revoked, and tickets of those whom it has dialled. Its sessions
/// keep it alive. One thread makes sessions, shakes their hands and calls all else. After its handshake each session
/// may read and write on a thread of its own, and tickets come from there.
class TlsContext : public std::enable_shared_from_this<TlsContext> {
 public:
  /// Peers whose tickets are kept.
  static constexpr std::size_t kTicketsMax = 256;

  [[nodiscard]] static std::shared_ptr<TlsContext> make(NodeKeys keys, TlsOptions options = {});
  /// For a machine without keys that knows the cluster by its authority's key. It can dial, and its peer is the origin.
  [[nodiscard]] static std::shared_ptr<TlsContext> make_enrolling(const KeyId& authority);
  ~TlsContext();
  TlsContext(const TlsContext&) = delete;
  TlsContext& operator=(const TlsContext&) = delete;

  /// The accepting end of a connection.
  [[nodiscard]] std::unique_ptr<TlsSession> accept();
  /// The dialling end of a connection to `target`, by whose name a ticket is kept for the next one.
  [[nodiscard]] std::unique_ptr<TlsSession> dial(const std::string& target);

  [[nodiscard]] const NodeKeys& keys() const { return keys_; }
  /// Sessions that are made from now on show these, and check their peers by them; those before go on under theirs.
  /// Tickets of the keys before end, at both ends. Not for make_enrolling().
  void set_keys(NodeKeys keys);
  /// From now on no session begins with one of these.
  void set_revocations(Revocations revocations) { revocations_ = std::move(revocations); }
  [[nodiscard]] const Revocations& revocations() const { return revocations_; }

 private:
  friend class TlsSession;
  friend struct TlsCallbacks;

  TlsContext(NodeKeys keys, TlsOptions options, std::optional<KeyId> pinned);
  /// What OpenSSL makes sessions of, by keys_.
  [[nodiscard]] SSL_CTX* make_context() const;
  void use_keys(SSL_CTX* context) const;
  /// What may lie between a peer's certificate and the authority's: this node's own, and what peers have sent.
  [[nodiscard]] Between issuers() const;
  void keep_issuers(const Between& sent);
  /// Returns whether it took OpenSSL's reference. It does not take the ticket of a session under earlier keys.
  [[nodiscard]] bool keep_ticket(const std::string& target, std::uint64_t keys_number, SSL_SESSION* session);
  void drop_tickets();
  /// The caller frees it. A ticket is used once, so that one that does not work is not tried again.
  [[nodiscard]] SSL_SESSION* take_ticket(const std::string& target);

  NodeKeys keys_;
  const TlsOptions options_;
  const std::optional<KeyId> pinned_;
  std::deque<UniqueX509> issuers_;  // each issued by the authority
  SSL_CTX* context_ = nullptr;
  Revocations revocations_;
  std::mutex tickets_mutex_;
  std::map<std::string, SSL_SESSION*> tickets_;  // of the present keys
  std::uint64_t keys_number_ = 0;                // of the present keys; changes under the mutex, too
};

}  // namespace weightcast
