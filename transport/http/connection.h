#pragma once

#include <atomic>
#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "base/ids.h"
#include "base/peer_shares.h"
#include "transport/http/server.h"
#include "transport/security/tls.h"

namespace weightcast {

class HttpConnection;

/// What the connections of one server share. On the server's thread, but for the counters.
struct HttpShared {
  HttpServerOptions options;
  HttpHandler handler;
  std::function<void(const std::shared_ptr<HttpConnection>&)> closed;  ///< once per connection, at its end
  std::function<void(ConnId)> identified;  ///< its client has proven who it is or, where connections are plain, asked
  std::shared_ptr<TlsContext> tls;         ///< null: plain
  boost::asio::io_context io{1};
  std::string buffer = std::string(64 * kKiB, '\0');  ///< into which each connection reads in its turn
  const std::shared_ptr<std::atomic<std::size_t>> streams_unsent =
      std::make_shared<std::atomic<std::size_t>>(0);  ///< bytes of streams that clients have not taken
  std::uint64_t bodies_bytes = 0;                     ///< of all requests that are arriving or being answered
  std::optional<PeerShares> bodies_shares;            ///< of them each peer's
  bool stopping = false;                              ///< no more requests are taken
  struct {
    std::atomic<std::uint64_t> connections = 0, accepted = 0, requests = 0, over_cap = 0, crowded_out = 0, peers = 0,
                               refused_requests = 0, timed_out = 0;
  } counters;

  void warn(const std::string& why) const {
    if (options.warn) options.warn(why);
  }
};

/// One client: its handshake, then its requests one after the other, and how long each may take. The server owns it;
/// all of it runs on the server's thread.
class HttpConnection {
 public:
  virtual ~HttpConnection() = default;
  [[nodiscard]] virtual ConnId id() const = 0;
  /// It came above the cap, and gets a 503.
  [[nodiscard]] virtual bool is_over_cap() const = 0;
  /// Since when it has had no request in progress; absent while it has one.
  [[nodiscard]] virtual std::optional<std::chrono::steady_clock::time_point> idle_since() const = 0;
  [[nodiscard]] virtual const std::string& host() const = 0;
  /// Does all that can be done now, and waits for more.
  virtual void pump() = 0;
  /// The server takes no more requests: whoever has none in progress goes.
  virtual void handle_stopping() = 0;
  virtual void close() = 0;
};

/// `shared` outlives the connection.
[[nodiscard]] std::shared_ptr<HttpConnection> make_http_connection(HttpShared& shared,
                                                                   boost::asio::ip::tcp::socket socket, ConnId id,
                                                                   bool is_over_cap);

}  // namespace weightcast
