#pragma once

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <condition_variable>
#include <deque>
#include <mutex>
#include <thread>

#include "tests/eventually.h"
#include "tests/transport/http/raw_client.h"
#include "transport/http/client.h"
#include "transport/http/server.h"

namespace weightcast {

/// For what never comes, not for a host that is slow.
inline constexpr Duration kCallLimit = std::chrono::minutes(1);

/// A server on a free port of loopback. GET /hello and POST /echo answer at once; any other request waits until the
/// test takes it.
class ServerTest : public testing::Test {
 protected:
  struct Held {
    HttpRequest request;
    HttpResponder responder;
  };

  void start(HttpServerOptions options = {}) {
    auto server = HttpServer::start(std::move(options), [this](HttpRequest request, HttpResponder responder) {
      if (request.path == "/hello") {
        responder.send({.content_type = "text/plain", .body = "hello"});
      } else if (request.path == "/echo") {
        responder.send({.content_type = "text/plain", .body = std::move(request.body)});
      } else {
        const std::scoped_lock lock(mutex_);
        held_.push_back({std::move(request), std::move(responder)});
        arrived_.notify_all();
      }
    });
    ASSERT_TRUE(server.has_value()) << server.error().message();
    server_ = std::move(*server);
  }
  void start(const HttpLimits& limits) {
    HttpServerOptions options;
    options.limits = limits;
    start(std::move(options));
  }

  /// The next request that waits.
  Held take() {
    std::unique_lock lock(mutex_);
    WC_CHECK(arrived_.wait_for(lock, kCallLimit, [this] { return !held_.empty(); }));
    Held held = std::move(held_.front());
    held_.pop_front();
    return held;
  }

  [[nodiscard]] std::uint16_t port() const { return server_->endpoint().port; }
  [[nodiscard]] RawClient dial(int receive_bytes = 0) const { return RawClient(port(), receive_bytes); }
  /// A client that has said this.
  [[nodiscard]] RawClient saying(const std::string& text, int receive_bytes = 0) const {
    RawClient client = dial(receive_bytes);
    EXPECT_TRUE(client.say(text));
    return client;
  }
  /// A client that has asked for this.
  [[nodiscard]] RawClient ask(const std::string& path, int receive_bytes = 0) const {
    return saying("GET " + path + " HTTP/1.1\r\n\r\n", receive_bytes);
  }
  [[nodiscard]] std::unique_ptr<HttpClient> client() const {
    auto made = HttpClient::make({.server = server_->endpoint(), .trust = {}});
    WC_CHECK(made.has_value());
    return std::move(*made);
  }

  std::mutex mutex_;
  std::condition_variable arrived_;
  std::deque<Held> held_;
  std::unique_ptr<HttpServer> server_;  // the last member: its thread, which ends with it, writes the others
};

}  // namespace weightcast
