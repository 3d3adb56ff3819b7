#pragma once

#include <sys/types.h>

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/digest/content_digest.h"
#include "base/files/unique_fd.h"
#include "base/ids.h"
#include "base/peer_identity.h"
#include "base/result.h"
#include "base/settings/endpoint.h"
#include "proto/frame.h"
#include "transport/io/buffer.h"
#include "transport/io/net/pacer.h"
#include "transport/io/net/receive_budget.h"
#include "transport/io/uv_loop.h"
#include "transport/io/work_thread.h"
#include "transport/security/tls.h"

namespace weightcast {

struct ReceivedChunk {
  PayloadId payload{};
  ChunkIndex chunk{};
  BufferRef bytes;
  ContentDigest digest{};  ///< of the bytes that arrived; the receiver has to compare it
};

struct SocketOptions {
  std::string congestion;                          ///< "" leaves the kernel's default; "bbr", "cubic", ...
  std::size_t send_buffer_bytes_max = 256 * kKiB;  ///< kept unsent in the kernel (TCP_NOTSENT_LOWAT)
  Duration connect_timeout = std::chrono::seconds(5);
  Duration handshake_timeout = std::chrono::seconds(5);  ///< of encryption, from the connection on
  bool loopback_only =
      false;  ///< other addresses are neither dialled nor listened on: what goes there is not encrypted
  Duration body_timeout = std::chrono::seconds(30);  ///< how long the bytes of a begun frame may pause
  std::vector<Endpoint> name_servers;                ///< numeric; none: those of /etc/resolv.conf
  Duration idle_timeout{};                           ///< how long a connection may carry nothing; zero: for ever
  std::optional<gid_t> local_group;                  ///< whose members may use a local socket, too
};

/// Limits on the memory that a peer can make this end hold. The connection's owner widens them when it knows the peer.
struct ReceiveLimits {
  std::size_t control_bytes_max = kControlBytesMax;
  std::size_t chunk_bytes_max = kChunkBytesMax;  ///< 0: no chunk at all, not even an empty one
  /// Frames above kFreeFrameBytes take their memory from this budget, and must then arrive within kBudgetHoldTimeout.
  /// Null: connections have no common bound. Outlives the connection.
  ReceiveBudget* budget = nullptr;
  std::shared_ptr<ReceiveBudget::Holder> holder = nullptr;  ///< whose part of the budget it is

  static constexpr std::size_t kFreeFrameBytes = 4 * kKiB;
  static constexpr Duration kBudgetHoldTimeout = std::chrono::seconds(120);
};

/// What a connection shares with the others of its node. All outlive it. While a close() still sends, only the loop has
/// to exist.
struct ConnectionContext {
  UvLoop& loop;
  BufferPool& buffers;
  Pacer& uplink;
  Pacer& downlink;
  SocketOptions socket;
  std::shared_ptr<TlsContext> tls = nullptr;  ///< null: connections are not encrypted
  OffloadThreads* hashing = nullptr;          ///< hashes large chunks; null: who reads them does
  class IoThreads* io = nullptr;              ///< move the bytes; null: the loop does
};

/// One stream (TCP or Unix) of frames. Loop thread only; where the context has I/O threads, one of them moves its
/// bytes.
///   handshake          of an encrypted stream: first, and in bounded time; frames wait for it
///   control messages   overtake waiting chunks, between frames; the uplink is charged for them but does not delay them
///   chunks             wait for their turn at the uplink, which the connections of one member share
///   reading            waits for its turn at the downlink
/// Both rates count bytes on the wire. The connection closes with an error when an incoming frame does not parse,
/// exceeds the receive limits or pauses for `body_timeout`, and when a message to be sent is too large. Handlers run on
/// the loop, never from inside a call. They may destroy the connection, which closes it at once.
///
/// Frames are delivered in their order. Large chunks are hashed by other threads, if there are any, and what comes
/// after them waits; nothing is read while ArrivedFrames::kBytesMax wait. All that came before the end of the stream is
/// delivered before on_closed.
class FrameConnection {
 public:
  /// Memory that control messages may take while they wait for the peer to read, with the overhead of each message. If
  /// they exceed it, the connection closes (kTooLarge).
  static constexpr std::size_t kControlQueueBytesMax = 32 * kMiB;
  static constexpr Duration kFlushTimeout = std::chrono::seconds(1);

  struct Handlers {
    /// Receives the body of a control frame. If it returns an error, the connection closes with that error.
    std::function<Status(std::string body)> on_control;
    std::function<void(ReceivedChunk)> on_chunk;
    /// Runs once, last. Errors: kClosed (the stream ended between frames), kTimedOut, kIo (also a stream that ended
    /// inside a frame), kTooLarge (the peer does not read, or a message in either direction exceeds its limit), and
    /// those of decode_frame_header() and of on_control.
    std::function<void(Error)> on_closed;
    /// Optional. Runs when the last waiting control message has left.
    std::function<void()> on_control_sent = {};
    /// Optional. Runs once, before anything arrives, if awaits_peer(): peer() now says who the peer is.
    std::function<void()> on_peer = {};
  };

  /// Takes over a connected stream socket. `peer_host` is what peer_host() returns. With `tls` the stream is encrypted.
  /// Errors of on_closed are then also those of TlsSession::handshake() and read(), and kTimedOut for a handshake.
  [[nodiscard]] static std::unique_ptr<FrameConnection> over(const ConnectionContext& context, UniqueFd socket,
                                                             std::string peer_host,
                                                             std::unique_ptr<TlsSession> tls = nullptr);
  virtual ~FrameConnection() = default;

  /// To be called before the loop's next turn.
  virtual void set_handlers(Handlers handlers) = 0;
  /// Applies from the next frame on.
  virtual void set_receive_limits(const ReceiveLimits& limits) = 0;

  /// Chunks wait for turns of this share of the uplink, which is a member's. Without it the connection has its own.
  virtual void set_uplink_share(std::shared_ptr<Pacer::Share> share) = 0;

  /// Releases `token` when the socket is closed: with this object or, after a close(), up to kFlushTimeout later.
  virtual void keep_while_open(std::shared_ptr<void> token) = 0;

  /// Queues a control message of at most kControlBytesMax. A longer one closes the connection (kTooLarge).
  virtual void send_control(std::string body) = 0;
  /// Queues a chunk of at most kChunkBytesMax. A longer one closes the connection (kTooLarge). `on_sent` runs when the
  /// kernel has taken the last byte, or all but the last encrypted record. It does not run if the connection closes
  /// before.
  virtual void send_chunk(PayloadId payload, ChunkIndex chunk, BufferRef bytes, std::function<void()> on_sent) = 0;
  /// Sends the queued control messages for at most kFlushTimeout, then closes. If a chunk has begun, its rest goes
  /// first; other chunks are dropped. No handler runs after this call. The object may be destroyed meanwhile.
  virtual void close() = 0;

  /// Back-pressure: while paused, the connection delivers no frame and does not notice the end of the stream.
  virtual void pause_reading() = 0;
  virtual void resume_reading() = 0;

  /// The oldest descriptor that the peer has sent with its frames and that nobody has taken; none where there is none,
  /// as on every connection but a Unix socket's that has no I/O thread. One that belongs to a frame is here before its
  /// handler runs.
  [[nodiscard]] virtual UniqueFd take_descriptor() { return {}; }

  /// Whether the peer has still to prove who it is.
  [[nodiscard]] virtual bool awaits_peer() const { return false; }
  /// Who the peer has proven to be; nothing on a stream that is not encrypted, and while awaits_peer().
  [[nodiscard]] virtual std::optional<PeerIdentity> peer() const { return std::nullopt; }
  [[nodiscard]] virtual std::string peer_host() const = 0;  ///< numeric; "local" on a Unix socket
  /// Of frames.
  [[nodiscard]] virtual std::uint64_t bytes_received() const = 0;
  [[nodiscard]] virtual std::uint64_t bytes_sent() const = 0;
};

}  // namespace weightcast
