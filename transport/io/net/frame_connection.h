#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "base/ids.h"
#include "base/result.h"
#include "proto/frame.h"
#include "transport/io/buffer.h"
#include "transport/io/net/endpoint.h"
#include "transport/io/net/pacer.h"
#include "transport/io/net/receive_budget.h"
#include "transport/io/unique_fd.h"
#include "transport/io/uv_loop.h"

namespace weightcast {

struct ReceivedChunk {
  PayloadId payload{};
  ChunkIndex chunk{};
  BufferRef bytes;
  Digest digest{};  ///< computed here, while the bytes were hot; nobody has compared it yet
};

struct SocketOptions {
  std::string congestion;                          ///< "" leaves the kernel's default; "bbr", "cubic", ...
  std::size_t send_buffer_bytes_max = 256 * kKiB;  ///< kept unsent in the kernel (TCP_NOTSENT_LOWAT)
  Duration connect_timeout = std::chrono::seconds(5);
  Duration body_timeout = std::chrono::seconds(30);  ///< a frame whose bytes stop coming for this long is given up
  std::vector<Endpoint> name_servers;                ///< numeric; none: those of /etc/resolv.conf
  Duration idle_timeout{};  ///< a connection on which nothing moves for this long is closed; zero: never
};

/// What a peer may make this end hold. Whoever owns the connection widens it as it learns who the peer is.
struct ReceiveLimits {
  std::size_t control_bytes_max = kControlBytesMax;
  std::size_t chunk_bytes_max = kChunkBytesMax;  ///< 0: no chunk at all, not even an empty one
  /// Frames above kFreeFrameBytes take their memory from here and must be complete within kBudgetHoldTimeout. Null: no
  /// bound over connections. Outlives the connection.
  ReceiveBudget* budget = nullptr;

  static constexpr std::size_t kFreeFrameBytes = 4 * kKiB;
  static constexpr Duration kBudgetHoldTimeout = std::chrono::seconds(120);
};

/// What a connection shares with the others of its node. All outlive it; what a close() still sends needs the loop
/// only.
struct ConnectionContext {
  UvLoop& loop;
  BufferPool& buffers;
  Pacer& uplink;
  Pacer& downlink;
  SocketOptions socket;
};

/// One stream (TCP or Unix) of frames. Loop thread only. Control messages go out before waiting chunks (between
/// frames, never inside one) and are charged to the uplink without waiting for it; chunks wait for the uplink's turn.
/// Reading waits for the downlink's turn. A frame that does not parse, that exceeds the receive limits, or whose bytes
/// stop coming for `body_timeout`, closes the connection with an error; so does a message to be sent that is too large.
/// Handlers run on the loop, never from inside a call; they may destroy the connection, which closes it at once.
class FrameConnection {
 public:
  /// Memory that control messages may take while they wait for a peer that does not read, what is kept beside each
  /// message included; past that the connection is closed (kTooLarge).
  static constexpr std::size_t kControlQueueBytesMax = 32 * kMiB;
  static constexpr Duration kFlushTimeout = std::chrono::seconds(1);

  struct Handlers {
    /// Body of a control frame. An error closes the connection with it.
    std::function<Status(std::string body)> on_control;
    std::function<void(ReceivedChunk)> on_chunk;
    /// Once, last. kClosed for an end of stream between frames; kTimedOut, kIo (an end inside a frame, too), kTooLarge
    /// (the peer does not read, or a message exceeds its limit, either way), and what a frame that does not parse or
    /// on_control brought.
    std::function<void(Error)> on_closed;
    /// May be absent: the last control message that waited has left.
    std::function<void()> on_control_sent = {};
  };

  /// Takes over a connected stream socket. `peer_host` is what peer_host() will say.
  [[nodiscard]] static std::unique_ptr<FrameConnection> over(const ConnectionContext& context, UniqueFd socket,
                                                             std::string peer_host);
  virtual ~FrameConnection() = default;

  /// Before the first turn of the loop after it was made.
  virtual void set_handlers(Handlers handlers) = 0;
  /// Counts from the next frame on.
  virtual void set_receive_limits(const ReceiveLimits& limits) = 0;

  /// Lets go of `token` when the socket is closed: with this object or, after a close(), up to kFlushTimeout later.
  virtual void keep_while_open(std::shared_ptr<void> token) = 0;

  /// At most kControlBytesMax; a longer one closes the connection (kTooLarge).
  virtual void send_control(std::string body) = 0;
  /// `on_sent` runs when the kernel has taken the last byte; not at all if the connection closes before. At most
  /// kChunkBytesMax, as above.
  virtual void send_chunk(PayloadId payload, ChunkIndex chunk, BufferRef bytes, std::function<void()> on_sent) = 0;
  /// Sends what control messages are queued (and the rest of a chunk that has begun, because they come after it), for
  /// at most kFlushTimeout, then closes. No handler runs after this. The object may go away meanwhile.
  virtual void close() = 0;

  /// Back-pressure: no frame arrives while paused, nor is the end of the stream seen.
  virtual void pause_reading() = 0;
  virtual void resume_reading() = 0;

  [[nodiscard]] virtual std::string peer_host() const = 0;  ///< numeric; "local" on a Unix socket
  [[nodiscard]] virtual std::uint64_t bytes_received() const = 0;
  [[nodiscard]] virtual std::uint64_t bytes_sent() const = 0;
};

}  // namespace weightcast
