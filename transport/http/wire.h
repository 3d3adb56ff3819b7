#pragma once

#include <sys/socket.h>
#include <sys/uio.h>

#include <cerrno>
#include <memory>
#include <span>

#include "transport/security/tls.h"

namespace weightcast {

/// Reads and writes one connection, at either end: its socket, or a TLS session over it. Waits for nothing.
class HttpWire : public TlsWire {
 protected:
  /// Returns how many bytes it took; the rest would block.
  [[nodiscard]] Result<std::size_t> write(Bytes from) {
    if (!session_) return write_wire(from, false);
    iovec piece{const_cast<std::byte*>(from.data()), from.size()};
    return session_->write(std::span(&piece, from.empty() ? 0 : 1), *this);
  }
  [[nodiscard]] Result<Got> read(MutableBytes into) {
    if (!session_) return read_wire(into);
    iovec piece{into.data(), into.size()};
    WC_ASSIGN(const TlsSession::Moved moved, session_->read(std::span(&piece, 1), *this));
    return Got{moved.bytes, moved.ended};
  }
  /// Whether the session has bytes that the socket has not taken.
  [[nodiscard]] bool holds_output() const { return session_ && session_->holds_output(); }

  std::unique_ptr<TlsSession> session_;  // null: nothing is encrypted

 private:
  [[nodiscard]] virtual int descriptor() = 0;

  Result<Got> read_wire(MutableBytes into) final {
    const ssize_t got = ::recv(descriptor(), into.data(), into.size(), 0);
    if (got > 0) return Got{static_cast<std::size_t>(got), false};
    if (got == 0) return Got{0, true};
    if (errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR) return Got{};
    return fail_errno(errno, Op::kReceive, "the connection");
  }
  Result<std::size_t> write_wire(Bytes from, bool more_follows) final {
    const ssize_t put = ::send(descriptor(), from.data(), from.size(), MSG_NOSIGNAL | (more_follows ? MSG_MORE : 0));
    if (put >= 0) return static_cast<std::size_t>(put);
    if (errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR) return std::size_t{0};
    return fail_errno(errno, Op::kSend, "the connection");
  }
};

}  // namespace weightcast
