#include "transport/io/net/stream.h"

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

Stream::Stream(UvLoop& loop, UniqueFd fd, std::string peer, std::function<void(FdWatch::Ready)> on_ready)
    : fd_(std::move(fd)), peer_(std::move(peer)), is_tcp_(speaks_tcp(fd_.get())) {
  watch_.emplace(loop, fd_.get(), std::move(on_ready));
}

Result<Stream::Moved> Stream::read(std::span<iovec> into) {
  for (;;) {
    const ssize_t got = read_once(into);
    if (got > 0) return Moved{.bytes = static_cast<std::size_t>(got)};
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

Result<Stream::Moved> Stream::write(std::span<iovec> from) {
  msghdr message{};
  message.msg_iov = from.data();
  message.msg_iovlen = from.size();
  for (;;) {
    const ssize_t put = ::sendmsg(fd_.get(), &message, MSG_NOSIGNAL);
    if (put >= 0) return Moved{.bytes = static_cast<std::size_t>(put)};
    if (must_wait(errno)) return Moved{};
    if (errno != EINTR) return fail_errno(errno, Op::kSend, "to " + peer_);
  }
}

void Stream::end_writing() { ::shutdown(fd_.get(), SHUT_WR); }

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
