#pragma once

#include <functional>
#include <memory>
#include <string>

#include "base/ids.h"
#include "base/result.h"
#include "proto/frame.h"
#include "transport/io/buffer.h"
#include "transport/io/net/pacer.h"
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
/// Reading waits for the downlink's turn. A frame that does not parse, or whose bytes stop coming for
/// `body_timeout`, closes the connection with an error. Handlers run on the loop, never from inside a call; they may
/// destroy the connection, which closes it at once.
class FrameConnection {
 public:
  /// Control bytes that may wait for a peer that does not read; past that the connection is closed (kTooLarge).
  static constexpr std::size_t kControlQueueBytesMax = 32 * kMiB;
  static constexpr Duration kFlushTimeout = std::chrono::seconds(1);

  struct Handlers {
    /// Body of a control frame. An error closes the connection with it.
    std::function<Status(std::string body)> on_control;
    std::function<void(ReceivedChunk)> on_chunk;
    /// Once, last. kClosed for an end of stream between frames; kTimedOut, kIo (an end inside a frame, too), kTooLarge
    /// (the peer does not read), and what a frame that does not parse or on_control brought.
    std::function<void(Error)> on_closed;
  };

  /// Takes over a connected stream socket. `peer_host` is what peer_host() will say.
  [[nodiscard]] static std::unique_ptr<FrameConnection> over(const ConnectionContext& context, UniqueFd socket,
                                                             std::string peer_host);
  virtual ~FrameConnection() = default;

  /// All three. Before the first turn of the loop after it was made.
  virtual void set_handlers(Handlers handlers) = 0;

  virtual void send_control(std::string body) = 0;
  /// `on_sent` runs when the kernel has taken the last byte; not at all if the connection closes before.
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
