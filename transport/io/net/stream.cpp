#include "transport/io/net/stream.h"

#include <fmt/format.h>
#include <sys/ioctl.h>
#include <sys/socket.h>

#include <cerrno>
#include <cstring>
#include <utility>

namespace weightcast {
namespace {

bool speaks_tcp(int fd) {
  int domain = 0;
  socklen_t size = sizeof domain;
  return ::getsockopt(fd, SOL_SOCKET, SO_DOMAIN, &domain, &size) == 0 && domain != AF_UNIX;
}

bool must_wait(int error_number) { return error_number == EAGAIN || error_number == EWOULDBLOCK; }

}  // namespace

Stream::Stream(UniqueFd fd, std::string peer, std::unique_ptr<TlsSession> tls)
    : fd_(std::move(fd)), peer_(std::move(peer)), tls_(std::move(tls)), is_tcp_(speaks_tcp(fd_.get())) {}

void Stream::attach(UvLoop& loop, std::function<void(FdWatch::Ready)> on_ready) {
  watch_.emplace(loop, fd_.get(), std::move(on_ready));
}

// ---- encryption, over the socket

Result<bool> Stream::handshake() {
  Result<bool> done = tls_->handshake(*this);
  if (!done.has_value()) done.error().detail = peer_ + ": " + done.error().detail;
  return done;
}

Result<Stream::Moved> Stream::read(std::span<iovec> into) {
  if (!tls_) return read_socket(into);
  const std::uint64_t before = tls_->wire_bytes_received();
  Result<TlsSession::Moved> moved = tls_->read(into, *this);
  if (!moved.has_value()) {
    return fail(moved.error().code, moved.error().op, fmt::format("from {}: {}", peer_, moved.error().detail));
  }
  return Moved{.bytes = moved->bytes,
               .wire_bytes = static_cast<std::size_t>(tls_->wire_bytes_received() - before),
               .ended = moved->ended};
}

Result<Stream::Moved> Stream::write(std::span<iovec> from) {
  if (!tls_) {
    WC_ASSIGN(const std::size_t bytes, write_socket(from, 0));
    return Moved{.bytes = bytes, .wire_bytes = bytes};
  }
  const std::uint64_t before = tls_->wire_bytes_sent();
  const Result<std::size_t> taken = tls_->write(from, *this);
  if (!taken.has_value()) {
    return fail(taken.error().code, taken.error().op, fmt::format("to {}: {}", peer_, taken.error().detail));
  }
  return Moved{.bytes = *taken, .wire_bytes = static_cast<std::size_t>(tls_->wire_bytes_sent() - before)};
}

Result<TlsWire::Got> Stream::read_wire(MutableBytes into) {
  iovec piece{.iov_base = into.data(), .iov_len = into.size()};
  WC_ASSIGN(const Moved moved, read_socket({&piece, 1}));
  return Got{moved.bytes, moved.ended};
}

Result<std::size_t> Stream::write_wire(Bytes from, bool more_follows) {
  iovec piece{.iov_base = const_cast<std::byte*>(from.data()), .iov_len = from.size()};
  return write_socket({&piece, 1}, more_follows ? MSG_MORE : 0);
}

void Stream::say_plainly(Bytes bytes) {
  static_cast<void>(::send(fd_.get(), bytes.data(), bytes.size(), MSG_NOSIGNAL | MSG_DONTWAIT));
}

bool Stream::discard(MutableBytes scratch, std::size_t& bytes) {
  const ssize_t got = ::recv(fd_.get(), scratch.data(), scratch.size(), 0);
  bytes = got > 0 ? static_cast<std::size_t>(got) : 0;
  return got > 0 || (got < 0 && (must_wait(errno) || errno == EINTR));
}

// ---- the socket

Result<Stream::Moved> Stream::read_socket(std::span<iovec> into) {
  for (;;) {
    const ssize_t got = read_once(into);
    if (got > 0) return Moved{.bytes = static_cast<std::size_t>(got), .wire_bytes = static_cast<std::size_t>(got)};
    if (got == 0) return Moved{.ended = true};
    if (must_wait(errno)) return Moved{};
    if (errno != EINTR) return fail_errno(errno, Op::kReceive, "from " + peer_);
  }
}

ssize_t Stream::read_once(std::span<iovec> into) {
  if (is_tcp_) return ::readv(fd_.get(), into.data(), static_cast<int>(into.size()));
  msghdr message{};
  message.msg_iov = into.data();
  message.msg_iovlen = into.size();
  alignas(cmsghdr) char control[CMSG_SPACE(kDescriptorsMax * sizeof(int))];
  message.msg_control = control;
  message.msg_controllen = sizeof control;
  // The kernel closes what finds no room in `control`.
  const ssize_t got = ::recvmsg(fd_.get(), &message, MSG_CMSG_CLOEXEC);
  if (got < 0) return got;
  for (cmsghdr* header = CMSG_FIRSTHDR(&message); header != nullptr; header = CMSG_NXTHDR(&message, header)) {
    if (header->cmsg_level != SOL_SOCKET || header->cmsg_type != SCM_RIGHTS) continue;
    for (std::size_t at = CMSG_LEN(0); at + sizeof(int) <= header->cmsg_len; at += sizeof(int)) {
      int number = -1;
      std::memcpy(&number, reinterpret_cast<const char*>(header) + at, sizeof number);
      UniqueFd descriptor(number);
      if (descriptors_.size() < kDescriptorsMax) descriptors_.push_back(std::move(descriptor));
    }
  }
  return got;
}

UniqueFd Stream::take_descriptor() {
  if (descriptors_.empty()) return {};
  UniqueFd oldest = std::move(descriptors_.front());
  descriptors_.pop_front();
  return oldest;
}

Result<std::size_t> Stream::write_socket(std::span<iovec> from, int flags) {
  msghdr message{};
  message.msg_iov = from.data();
  message.msg_iovlen = from.size();
  for (;;) {
    const ssize_t put = ::sendmsg(fd_.get(), &message, MSG_NOSIGNAL | flags);
    if (put >= 0) return static_cast<std::size_t>(put);
    if (must_wait(errno)) return std::size_t{0};
    if (errno != EINTR) return fail_errno(errno, Op::kSend, "to " + peer_);
  }
}

void Stream::end_writing() {
  if (tls_) tls_->end_writing(*this);
  ::shutdown(fd_.get(), SHUT_WR);
}

void Stream::set_low_water(std::size_t bytes) {
  // Unix sockets carry the local API, whose messages are few and small.
  if (!is_tcp_ || bytes == low_water_) return;
  // The kernel lowers what its receive buffer cannot hold by itself.
  const int value = static_cast<int>(bytes);
  if (::setsockopt(fd_.get(), SOL_SOCKET, SO_RCVLOWAT, &value, sizeof value) == 0) low_water_ = bytes;
}

std::size_t Stream::bytes_waiting() const {
  int bytes = 0;
  return ::ioctl(fd_.get(), FIONREAD, &bytes) == 0 && bytes > 0 ? static_cast<std::size_t>(bytes) : 0;
}

void Stream::close() {
  watch_.reset();
  fd_.reset();
  descriptors_.clear();
}

}  // namespace weightcast
