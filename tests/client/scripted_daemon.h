#pragma once

#include <gtest/gtest.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <cstring>
#include <deque>
#include <functional>
#include <future>
#include <optional>
#include <string>
#include <utility>

#include "proto/frame.h"
#include "tests/local_message.h"
#include "tests/patch/temp_dir.h"

namespace weightcast {

/// The other end of a state directory's api.sock, in the test's hands: one connection at a time, message by message.
/// Whatever does not come within half a minute is absent.
class ScriptedDaemon {
 public:
  ScriptedDaemon() {
    listener_ = ::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    sockaddr_un address{};
    address.sun_family = AF_UNIX;
    std::strncpy(address.sun_path, directory_.file("api.sock").c_str(), sizeof address.sun_path - 1);
    EXPECT_EQ(::bind(listener_, reinterpret_cast<const sockaddr*>(&address), sizeof address), 0);
    EXPECT_EQ(::listen(listener_, 8), 0);
  }
  ~ScriptedDaemon() {
    if (playing_.valid()) playing_.wait();
    end();
    ::close(listener_);
  }
  ScriptedDaemon(const ScriptedDaemon&) = delete;
  ScriptedDaemon& operator=(const ScriptedDaemon&) = delete;

  [[nodiscard]] std::string state_dir() const { return directory_.path(); }

  /// Runs `script` beside the test; the one before has ended by then.
  void play(std::function<void()> script) {
    if (playing_.valid()) playing_.wait();
    playing_ = std::async(std::launch::async, std::move(script));
  }

  /// Answers the next request, beside the test.
  void answer(local::Message::Kind kind) {
    play([this, kind = std::move(kind)] {
      const auto request = receive();
      ASSERT_TRUE(request);
      send(kind, request->request_id);
    });
  }

  /// Takes the next one who connects.
  bool accept() {
    if (connection_ < 0 && readable(listener_)) connection_ = ::accept(listener_, nullptr, nullptr);
    return connection_ >= 0;
  }

  /// The next request, of whoever has connected first.
  std::optional<local::Message> receive() {
    if (!accept()) return std::nullopt;
    const auto head = read_bytes(FrameHeader::kBytes);
    if (!head) return std::nullopt;
    const auto header = decode_frame_header(std::as_bytes(std::span(*head)));
    EXPECT_TRUE(header.has_value());
    const auto body = read_bytes(header->body_bytes);
    if (!body) return std::nullopt;
    Result<local::Message> message = local::decode(*body);
    return message.has_value() ? std::optional(*std::move(message)) : std::nullopt;
  }

  /// The next descriptor that came with what receive() gave last; the test closes it. -1 for none.
  [[nodiscard]] int take_descriptor() {
    if (descriptors_.empty()) return -1;
    const int oldest = descriptors_.front();
    descriptors_.pop_front();
    return oldest;
  }

  /// Whoever has gone hears nothing.
  void send(local::Message::Kind kind, std::uint64_t request_id) {
    const std::string body = local::encode({.kind = std::move(kind), .request_id = request_id});
    const FrameHeaderBytes header =
        encode_frame_header({.type = FrameType::kControl, .body_bytes = static_cast<std::uint32_t>(body.size())});
    const std::string frame = std::string(reinterpret_cast<const char*>(header.data()), header.size()) + body;
    static_cast<void>(::send(connection_, frame.data(), frame.size(), MSG_NOSIGNAL));
  }

  void end() {
    if (connection_ >= 0) ::close(connection_);
    for (const int descriptor : descriptors_) ::close(descriptor);
    descriptors_.clear();
    connection_ = -1;
  }

 private:
  static bool readable(int fd) {
    pollfd p{fd, POLLIN, 0};
    return ::poll(&p, 1, 30'000) == 1;
  }
  std::optional<std::string> read_bytes(std::size_t bytes) {
    std::string out(bytes, '\0');
    for (std::size_t have = 0; have < bytes;) {
      if (!readable(connection_)) return std::nullopt;
      iovec piece{out.data() + have, bytes - have};
      alignas(cmsghdr) char control[CMSG_SPACE(2 * sizeof(int))];
      msghdr message{};
      message.msg_iov = &piece;
      message.msg_iovlen = 1;
      message.msg_control = control;
      message.msg_controllen = sizeof control;
      const ssize_t n = ::recvmsg(connection_, &message, MSG_CMSG_CLOEXEC);
      if (n <= 0) return std::nullopt;
      if (const cmsghdr* header = CMSG_FIRSTHDR(&message); header != nullptr) {
        EXPECT_TRUE(descriptors_.empty()) << "those before were not taken";
        for (std::size_t at = CMSG_LEN(0); at + sizeof(int) <= header->cmsg_len; at += sizeof(int)) {
          std::memcpy(&descriptors_.emplace_back(), reinterpret_cast<const char*>(header) + at, sizeof(int));
        }
      }
      have += std::size_t(n);
    }
    return out;
  }

  TempDir directory_;
  int listener_ = -1;
  int connection_ = -1;
  std::deque<int> descriptors_;
  std::future<void> playing_;
};

inline local::ErrorReply error_reply(Errc code, const std::string& detail) {
  return {.code = static_cast<std::uint32_t>(code), .detail = detail};
}

inline local::PublishAccepted accepted_reply(std::uint64_t version) { return {.version = version}; }

inline local::PublishTaken taken_reply(std::uint64_t version) { return {.version = version}; }

inline local::PublishResult result_reply(std::uint64_t version) { return {.version = version, .reached = true}; }

}  // namespace weightcast
