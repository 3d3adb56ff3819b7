#pragma once

#include <functional>
#include <memory>
#include <string>

#include "base/ids.h"
#include "base/result.h"
#include "proto/frame.h"
#include "transport/io/buffer.h"
#include "transport/io/event_loop.h"
#include "transport/io/pacer.h"

namespace weightcast {

/// A host and a port. `host` is numeric or a name; name resolution is bounded by the connect time-out.
struct Endpoint {
  std::string host;
  std::uint16_t port = 0;

  /// Reads "HOST:PORT" and "[V6]:PORT". Errors: kInvalidArgument.
  [[nodiscard]] static Result<Endpoint> parse(std::string_view text);
  [[nodiscard]] std::string to_string() const;
  /// Whether the host is a numeric loopback address or "localhost".
  [[nodiscard]] bool is_loopback() const;
};

struct ReceivedChunk {
  Version version{};
  ChunkIndex chunk{};
  BufferRef bytes;
  Digest digest{};  ///< computed here, while the bytes were hot; nobody has compared it yet
};

struct SocketOptions {
  std::string congestion;         ///< "" leaves the kernel's default; "bbr", "cubic", ...
  std::size_t send_buffer_bytes_max = 256 * kKiB;  ///< kept unsent in the kernel (TCP_NOTSENT_LOWAT)
  Duration connect_timeout = std::chrono::seconds(5);
};

/// What a connection shares with the others of its node. All outlive it.
struct ConnectionContext {
  EventLoop& loop;
  BufferPool& buffers;
  Pacer& uplink;
  Pacer& downlink;
  SocketOptions socket;
};

/// One stream (TCP or Unix) of frames. Loop thread only. Control messages go out before waiting chunks (between
/// frames, never inside one) and are charged to the uplink without waiting for it; chunks wait for the uplink's turn.
/// Reading waits for the downlink's turn. A frame that does not parse, or a body that does not come within
/// `kBodyTimeout` of its header, closes the connection with an error.
class FrameConnection {
 public:
  /// A body whose bytes stop coming for this long is given up.
  static constexpr Duration kBodyTimeout = std::chrono::seconds(30);
  /// Control bytes that may wait for a peer that does not read; past that the connection is closed (kTooLarge).
  static constexpr std::size_t kControlQueueBytesMax = 32 * kMiB;

  struct Handlers {
    /// Body of a control frame. An error closes the connection with it.
    std::function<Status(std::string body)> on_control;
    std::function<void(ReceivedChunk)> on_chunk;
    /// Once, last. kClosed for an end of stream between frames.
    std::function<void(Error)> on_closed;
  };

  virtual ~FrameConnection() = default;

  /// Before the first turn of the loop after it was made.
  virtual void set_handlers(Handlers handlers) = 0;

  virtual void send_control(std::string body) = 0;
  /// `on_sent` runs when the kernel has taken the last byte; not at all if the connection closes before.
  virtual void send_chunk(Version version, ChunkIndex chunk, BufferRef bytes, std::function<void()> on_sent) = 0;
  /// Sends what control messages are queued, for at most a second, then closes. on_closed does not run after this.
  virtual void close() = 0;

  [[nodiscard]] virtual std::string peer_host() const = 0;  ///< numeric; "local" on a Unix socket
  [[nodiscard]] virtual std::uint64_t bytes_received() const = 0;
  [[nodiscard]] virtual std::uint64_t bytes_sent() const = 0;
};

/// Starts to connect; `on_done` runs once, later, with the connection or the error (kTimedOut, kIo). Dropping the
/// returned handle cancels.
class Dial {
 public:
  using Done = std::function<void(Result<std::unique_ptr<FrameConnection>>)>;
  Dial(const ConnectionContext& context, const Endpoint& to, Done on_done);
  ~Dial();
  Dial(const Dial&) = delete;
  Dial& operator=(const Dial&) = delete;

 private:
  struct Impl;
  Impl* impl_;
};

/// Connects to a Unix socket at `path`, as Dial does.
class DialLocal {
 public:
  DialLocal(const ConnectionContext& context, const std::string& path, Dial::Done on_done);
  ~DialLocal();
  DialLocal(const DialLocal&) = delete;
  DialLocal& operator=(const DialLocal&) = delete;

 private:
  struct Impl;
  Impl* impl_;
};

/// Accepts connections.
class Listener {
 public:
  using OnConnection = std::function<void(std::unique_ptr<FrameConnection>)>;

  /// Port 0 takes a free one. Errors: kListen with the address and what to do (taken, not ours, not allowed).
  [[nodiscard]] static Result<std::unique_ptr<Listener>> tcp(const ConnectionContext& context, const Endpoint& at,
                                                             OnConnection on_connection);
  /// A Unix socket that only its owner may use (mode 0600). A socket file that nobody listens on is replaced.
  [[nodiscard]] static Result<std::unique_ptr<Listener>> local(const ConnectionContext& context,
                                                               const std::string& path, OnConnection on_connection);
  virtual ~Listener() = default;
  /// With the port that was really taken.
  [[nodiscard]] virtual Endpoint endpoint() const = 0;
};

}  // namespace weightcast
