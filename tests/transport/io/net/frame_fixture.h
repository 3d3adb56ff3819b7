#pragma once

#include <gtest/gtest.h>
#include <malloc.h>
#include <sys/socket.h>

#include <algorithm>
#include <cstring>
#include <memory>
#include <random>
#include <string>

#include "tests/transport/io/io_fixture.h"
#include "transport/io/net/dial.h"
#include "transport/io/net/listener.h"

namespace weightcast {

/// That the allocator has handed out.
inline std::size_t allocated_bytes() {
  const struct mallinfo2 info = ::mallinfo2();
  return info.uordblks + info.hblkhd;
}

inline BufferRef random_buffer(BufferPool& pool, std::size_t bytes, std::uint64_t seed) {
  BufferRef buffer = pool.take(bytes);
  buffer->set_size(bytes);
  std::mt19937_64 random(seed);
  for (std::size_t i = 0; i < bytes; i += 8) {
    const std::uint64_t word = random();
    std::memcpy(buffer->data() + i, &word, std::min<std::size_t>(8, bytes - i));
  }
  return buffer;
}

/// Two ends of one TCP connection over loopback, each with limits of its own.
class TcpPair {
 public:
  explicit TcpPair(Net& net) : TcpPair(net, net) {}
  TcpPair(Net& dialer, Net& acceptor) {
    auto listener = Listener::tcp(acceptor.context(), {"127.0.0.1", 0},
                                  [this](std::unique_ptr<FrameConnection> c) { accepted.adopt(std::move(c)); });
    EXPECT_TRUE(listener.has_value());
    Dial dial(dialer.context(), (*listener)->endpoint(), [this](Result<std::unique_ptr<FrameConnection>> c) {
      ASSERT_TRUE(c.has_value()) << c.error().message();
      dialed.adopt(std::move(*c));
    });
    EXPECT_TRUE(acceptor.run_until([&] {
      if (&dialer != &acceptor) dialer.loop.run_until(dialer.loop.now());
      return dialed.connection && accepted.connection && !accepted.connection->awaits_peer();
    }));
  }

  End dialed;
  End accepted;
};

/// A FrameConnection whose peer is a bare socket in the test's hands. Never encrypted.
class BarePeer {
 public:
  explicit BarePeer(Net& net) {
    int fds[2];
    EXPECT_EQ(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, fds), 0);
    socket.reset(fds[0]);
    end.adopt(FrameConnection::over(net.context(), UniqueFd(fds[1]), "peer"));
  }

  void write(Bytes bytes) {
    while (!bytes.empty()) {
      const ssize_t put = ::send(socket.get(), bytes.data(), bytes.size(), MSG_NOSIGNAL);
      ASSERT_GT(put, 0);
      bytes = bytes.subspan(std::size_t(put));
    }
  }

  // The same to a connection that may have ended.
  void try_write(Bytes bytes) { (void)!::send(socket.get(), bytes.data(), bytes.size(), MSG_NOSIGNAL); }

  // What has arrived by now; nothing at the end of the stream, too.
  [[nodiscard]] std::string read() {
    std::string out(64 * kKiB, '\0');
    const ssize_t got = ::recv(socket.get(), out.data(), out.size(), 0);
    out.resize(got > 0 ? std::size_t(got) : 0);
    return out;
  }

  UniqueFd socket;
  End end;
};

inline FrameHeaderBytes control_header(std::uint32_t body_bytes) {
  return encode_frame_header({.type = FrameType::kControl, .body_bytes = body_bytes});
}

}  // namespace weightcast
