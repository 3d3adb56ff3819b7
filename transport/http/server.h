#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "base/settings/endpoint.h"
#include "base/time.h"
#include "base/units.h"
#include "transport/http/message.h"
#include "transport/http/trust.h"

namespace weightcast {

/// Bounds on the cost of one client, and of all together. A client that exceeds one is answered if that can be, and
/// then closed.
struct HttpLimits {
  /// Beyond it 503, and fewer where the process has too few descriptors: half of them stay for files. Of one host three
  /// quarters. Clients that have neither keys nor sent a request yet: AdmissionLimits::for_connections().
  std::size_t connections_max = 4096;
  std::uint32_t header_bytes_max = 16 * 1024;
  std::uint64_t body_bytes_max = 16 * kMiB;
  std::uint64_t bodies_bytes_max = 256 * kMiB;  ///< of all requests that are arriving or being answered: beyond it 503
  std::uint64_t bodies_bytes_per_peer_max = 256 * kMiB;  ///< the same of one peer with keys
  std::size_t stream_bytes_max = 4 * kMiB;               ///< of a stream that its client has not taken yet
  std::size_t streams_bytes_max = 64 * kMiB;  ///< of all of them: a stream gets at most what the others leave
  Duration handshake_time_max = std::chrono::seconds(10);
  Duration header_time_max = std::chrono::seconds(10);  ///< from a header's first byte to its last
  Duration body_time_max = std::chrono::seconds(60);
  Duration idle_time_max = std::chrono::seconds(300);   ///< before a request's first byte
  Duration stall_time_max = std::chrono::seconds(10);   ///< of a client that takes nothing of its answer
  Duration answer_time_max = std::chrono::minutes(30);  ///< from a request's last byte to the answer's first: then 504
};

/// A stream of bytes to a client, in chunks as they are written. Any thread; one at a time. Ends with the object.
class HttpStream {
 public:
  HttpStream() = default;
  ~HttpStream() { end(); }
  HttpStream(HttpStream&&) = default;
  HttpStream& operator=(HttpStream&& other) noexcept;

  /// Hands bytes to the server. False if they will not arrive: the client has gone, or it takes so little that
  /// stream_bytes_max was reached, or what streams_bytes_max leaves, or the server has stopped.
  bool write(std::string_view bytes);
  /// Nothing more follows. Harmless if repeated.
  void end();

 private:
  friend class HttpResponder;
  explicit HttpStream(std::shared_ptr<class HttpExchange> exchange) : exchange_(std::move(exchange)) {}
  std::shared_ptr<class HttpExchange> exchange_;
};

/// The answer to one request: once, at any time, from any thread. One that goes without an answer sends status 500.
class HttpResponder {
 public:
  explicit HttpResponder(std::shared_ptr<class HttpExchange> exchange) : exchange_(std::move(exchange)) {}
  ~HttpResponder();
  HttpResponder(HttpResponder&&) = default;
  HttpResponder& operator=(HttpResponder&& other) noexcept;

  /// Answers. Nothing of the responder may be used after it, but the destructor.
  void send(HttpResponse response);
  /// Answers with a stream; `head` has no body.
  [[nodiscard]] HttpStream stream(HttpResponse head);
  /// `gone` runs once if the client ends the connection before the answer's end: on the server's thread, or at once.
  /// It must not block.
  void on_gone(std::function<void()> gone);
  /// Whether nobody waits for the answer any more.
  [[nodiscard]] bool gone() const;

 private:
  std::shared_ptr<class HttpExchange> exchange_;
};

/// Called on the server's thread for each request. It must not block: work goes to other threads, with the responder.
using HttpHandler = std::function<void(HttpRequest request, HttpResponder responder)>;

struct HttpServerOptions {
  Endpoint listen{"127.0.0.1", 0};  ///< port 0: a free one
  HttpTrust trust = {};
  HttpLimits limits = {};
  std::function<void(std::string)> warn = {};  ///< of what goes wrong in the server itself; on its thread
};

struct HttpServerStats {
  std::uint64_t connections = 0;  ///< now
  std::uint64_t accepted = 0;
  std::uint64_t requests = 0;
  std::uint64_t refused_over_cap = 0;  ///< connections that got a 503, or nothing
  std::uint64_t crowded_out = 0;       ///< silent ones that made way for new ones
  std::uint64_t refused_peers = 0;     ///< handshakes that failed, and keys that no longer count
  std::uint64_t refused_requests = 0;  ///< bad ones, and those beyond a limit
  std::uint64_t timed_out = 0;         ///< connections closed since the client was too slow
};

/// An HTTP/1.1 server on a thread of its own. Connections cost a socket and some kilobytes, and no thread.
class HttpServer {
 public:
  /// Listens: from now on clients can connect, and wait. Errors: those of check_trust() and make_tls(), kIo and
  /// kAlreadyExists (the address is in use).
  [[nodiscard]] static Result<std::unique_ptr<HttpServer>> listen(HttpServerOptions options);
  /// Begins to answer. Once; for a handler that uses the server itself.
  void serve(HttpHandler handler);
  /// listen() and serve().
  [[nodiscard]] static Result<std::unique_ptr<HttpServer>> start(HttpServerOptions options, HttpHandler handler);
  /// stop() without time.
  ~HttpServer();
  HttpServer(const HttpServer&) = delete;
  HttpServer& operator=(const HttpServer&) = delete;

  /// Has connections that are made from now on go by the keys that are in their file by then. What is wrong with that
  /// goes to HttpServerOptions::warn.
  void read_keys_again();
  /// Where it listens, with the port that it got.
  [[nodiscard]] const Endpoint& endpoint() const;
  [[nodiscard]] HttpServerStats stats() const;
  /// Takes no more connections and requests, lets those that are being answered end for at most `grace`, and closes
  /// the rest. The handler is not called after it. Responders may outlive the server. Not from the server's thread.
  void stop(Duration grace);

 private:
  class Core;
  explicit HttpServer(std::unique_ptr<Core> core);
  std::unique_ptr<Core> core_;
};

}  // namespace weightcast
