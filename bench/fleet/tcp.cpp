#include "bench/fleet/tcp.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>

#include <cerrno>

namespace weightcast::bench {
namespace {

constexpr int kAcceptTimeout_ms = 5000;

sockaddr_in address_of(const Endpoint& endpoint) {
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(endpoint.port);
  ::inet_pton(AF_INET, endpoint.host.c_str(), &address.sin_addr);
  return address;
}

Result<UniqueFd> tcp_socket() {
  UniqueFd fd(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  if (!fd.valid()) return fail_errno(errno, Op::kConnect, "a socket");
  const int on = 1;
  ::setsockopt(fd.get(), IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
  return fd;
}

}  // namespace

Result<TcpListener> tcp_listen(const Endpoint& endpoint) {
  WC_ASSIGN(UniqueFd fd, tcp_socket());
  const int on = 1;
  ::setsockopt(fd.get(), SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
  sockaddr_in address = address_of(endpoint);
  socklen_t size = sizeof address;
  auto* const generic = reinterpret_cast<sockaddr*>(&address);
  if (::bind(fd.get(), generic, size) != 0 || ::listen(fd.get(), 64) != 0 ||
      ::getsockname(fd.get(), generic, &size) != 0) {
    return fail_errno(errno, Op::kListen, endpoint.to_string());
  }
  return TcpListener{std::move(fd), {endpoint.host, ntohs(address.sin_port)}};
}

Result<UniqueFd> tcp_connect(const Endpoint& endpoint) {
  WC_ASSIGN(UniqueFd fd, tcp_socket());
  const sockaddr_in address = address_of(endpoint);
  if (::connect(fd.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address) != 0) {
    return fail_errno(errno, Op::kConnect, endpoint.to_string());
  }
  return fd;
}

Result<UniqueFd> tcp_accept(const UniqueFd& listener) {
  pollfd ready{listener.get(), POLLIN, 0};
  if (::poll(&ready, 1, kAcceptTimeout_ms) == 0) {
    return fail(Errc::kTimedOut, Op::kListen, "nobody connected to the plain stream within 5 s");
  }
  UniqueFd fd(::accept4(listener.get(), nullptr, nullptr, SOCK_CLOEXEC));
  if (!fd.valid()) return fail_errno(errno, Op::kListen, "a plain stream");
  const int on = 1;
  ::setsockopt(fd.get(), IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
  return fd;
}

Status tcp_send_all(const UniqueFd& socket, Bytes bytes) {
  while (!bytes.empty()) {
    const ssize_t n = ::send(socket.get(), bytes.data(), bytes.size(), MSG_NOSIGNAL);
    if (n < 0) return fail_errno(errno, Op::kSend, "a plain stream");
    bytes = bytes.subspan(static_cast<std::size_t>(n));
  }
  return {};
}

Result<std::size_t> tcp_receive(const UniqueFd& socket, MutableBytes into) {
  const ssize_t n = ::recv(socket.get(), into.data(), into.size(), 0);
  if (n < 0) return fail_errno(errno, Op::kReceive, "a plain stream");
  return static_cast<std::size_t>(n);
}

}  // namespace weightcast::bench
