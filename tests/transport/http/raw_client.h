#pragma once

#include <gtest/gtest.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>

#include <chrono>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include "base/files/unique_fd.h"

namespace weightcast {

/// A client over a plain socket that says what a test wants, well-formed or not. Each wait has a bound of a minute.
class RawClient {
 public:
  /// `receive_bytes`: of the socket's buffer, where the test wants the server to feel a client that does not read.
  /// `from`: the address on loopback that it dials from.
  explicit RawClient(std::uint16_t port, int receive_bytes = 0, std::uint32_t from = INADDR_LOOPBACK)
      : fd_(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
    if (receive_bytes > 0) {
      EXPECT_EQ(::setsockopt(fd_.get(), SOL_SOCKET, SO_RCVBUF, &receive_bytes, sizeof receive_bytes), 0);
    }
    sockaddr_in own{};
    own.sin_family = AF_INET;
    own.sin_addr.s_addr = htonl(from);
    EXPECT_EQ(::bind(fd_.get(), reinterpret_cast<const sockaddr*>(&own), sizeof own), 0);
    sockaddr_in to{};
    to.sin_family = AF_INET;
    to.sin_port = htons(port);
    to.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    EXPECT_EQ(::connect(fd_.get(), reinterpret_cast<const sockaddr*>(&to), sizeof to), 0);
  }

  bool say(std::string_view text) {
    while (!text.empty()) {
      const ssize_t put = ::send(fd_.get(), text.data(), text.size(), MSG_NOSIGNAL);
      if (put <= 0) return false;
      text.remove_prefix(static_cast<std::size_t>(put));
    }
    return true;
  }
  bool post(const std::string& path, const std::string& body) {
    return say("POST " + path + " HTTP/1.1\r\nContent-Length: " + std::to_string(body.size()) + "\r\n\r\n" + body);
  }
  void end_writing() { ::shutdown(fd_.get(), SHUT_WR); }
  void close() { fd_.reset(); }

  /// Bytes until `end` is among them; fewer if the server ends the connection, or after a minute.
  std::string hear_until(std::string_view end) {
    while (heard_.find(end) == std::string::npos && hear_some()) continue;
    const std::size_t at = heard_.find(end);
    const std::size_t size = at == std::string::npos ? heard_.size() : at + end.size();
    std::string text = heard_.substr(0, size);
    heard_.erase(0, size);
    return text;
  }
  /// How many bytes come next; they are forgotten, with those that were heard and not taken. 0 if the server has ended
  /// the connection, or after a minute.
  std::size_t hear_bytes() {
    heard_.clear();
    hear_some();
    return std::exchange(heard_, {}).size();
  }
  /// All bytes until the server ends the connection.
  std::string hear_all() {
    while (hear_some()) continue;
    return std::exchange(heard_, {});
  }
  /// Whether the server has ended the connection, after all that it said; false after a minute.
  bool ended() {
    hear_all();
    return ended_;
  }

 private:
  bool hear_some() {
    pollfd polled{fd_.get(), POLLIN, 0};
    if (ended_ || ::poll(&polled, 1, 60'000) <= 0) return false;
    char buffer[16384];
    const ssize_t got = ::recv(fd_.get(), buffer, sizeof buffer, 0);
    if (got <= 0) {
      ended_ = true;
      return false;
    }
    heard_.append(buffer, static_cast<std::size_t>(got));
    return true;
  }

  UniqueFd fd_;
  std::string heard_;
  bool ended_ = false;
};

}  // namespace weightcast
