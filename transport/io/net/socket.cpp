#include "transport/io/net/socket.h"

#include <arpa/inet.h>
#include <fmt/format.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/un.h>

#include <array>
#include <atomic>
#include <cerrno>
#include <cstddef>
#include <cstring>
#include <fstream>

#include "transport/io/log.h"

namespace weightcast {
namespace {

template <typename Address>
Address as(const sockaddr_storage& storage) {
  Address address;
  std::memcpy(&address, &storage, sizeof address);
  return address;
}

template <typename Address>
SocketAddress from(const Address& address, std::size_t size = sizeof(Address)) {
  SocketAddress out;
  std::memcpy(&out.storage, &address, sizeof address);
  out.size = static_cast<socklen_t>(size);
  return out;
}

template <typename Value>
bool set_option(int fd, int level, int name, const Value& value) {
  return ::setsockopt(fd, level, name, &value, sizeof value) == 0;
}

// A peer that went without a word (its host lost power, a path broke) is noticed: by what is not acknowledged, or,
// where nothing is under way, by probes. The kernel's own patience is a quarter of an hour, and two hours.
constexpr unsigned kUnacknowledgedMax_ms = 60'000;
constexpr int kProbeAfter_s = 30;
constexpr int kProbeEvery_s = 10;
constexpr int kProbes = 3;

void set_patience(int fd) {
  static_cast<void>(set_option(fd, IPPROTO_TCP, TCP_USER_TIMEOUT, kUnacknowledgedMax_ms) &&
                    set_option(fd, IPPROTO_TCP, TCP_KEEPIDLE, kProbeAfter_s) &&
                    set_option(fd, IPPROTO_TCP, TCP_KEEPINTVL, kProbeEvery_s) &&
                    set_option(fd, IPPROTO_TCP, TCP_KEEPCNT, kProbes) &&
                    set_option(fd, SOL_SOCKET, SO_KEEPALIVE, int{1}));
}

void set_congestion(int fd, const std::string& name) {
  if (name.empty()) return;
  if (::setsockopt(fd, IPPROTO_TCP, TCP_CONGESTION, name.data(), static_cast<socklen_t>(name.size())) == 0) return;
  const int error_number = errno;
  static std::atomic_flag told;
  if (told.test_and_set()) return;
  std::string available;
  std::ifstream list("/proc/sys/net/ipv4/tcp_available_congestion_control");
  std::getline(list, available);
  log_warning("cannot use TCP congestion control {}: {}; the kernel has: {}. Going on with its default", name,
              std::strerror(error_number), available);
}

}  // namespace

Endpoint SocketAddress::endpoint() const {
  std::array<char, INET6_ADDRSTRLEN> text{};
  if (storage.ss_family == AF_INET) {
    const auto v4 = as<sockaddr_in>(storage);
    ::inet_ntop(AF_INET, &v4.sin_addr, text.data(), text.size());
    return {text.data(), ntohs(v4.sin_port)};
  }
  if (storage.ss_family == AF_INET6) {
    const auto v6 = as<sockaddr_in6>(storage);
    if (IN6_IS_ADDR_V4MAPPED(&v6.sin6_addr)) {
      ::inet_ntop(AF_INET, v6.sin6_addr.s6_addr + 12, text.data(), text.size());
    } else {
      ::inet_ntop(AF_INET6, &v6.sin6_addr, text.data(), text.size());
    }
    return {text.data(), ntohs(v6.sin6_port)};
  }
  return {"local", 0};
}

void SocketAddress::set_port(std::uint16_t port) {
  // Both kinds have it behind their family.
  static_assert(offsetof(sockaddr_in, sin_port) == offsetof(sockaddr_in6, sin6_port));
  const std::uint16_t in_network_order = htons(port);
  std::memcpy(reinterpret_cast<char*>(&storage) + offsetof(sockaddr_in, sin_port), &in_network_order,
              sizeof in_network_order);
}

Result<SocketAddress> SocketAddress::numeric(const Endpoint& endpoint) {
  sockaddr_in v4{};
  v4.sin_family = AF_INET;
  v4.sin_port = htons(endpoint.port);
  if (::inet_pton(AF_INET, endpoint.host.c_str(), &v4.sin_addr) == 1) return from(v4);
  sockaddr_in6 v6{};
  v6.sin6_family = AF_INET6;
  v6.sin6_port = htons(endpoint.port);
  if (::inet_pton(AF_INET6, endpoint.host.c_str(), &v6.sin6_addr) == 1) return from(v6);
  return fail(Errc::kInvalidArgument, Op::kParse, fmt::format("\"{}\" is not a numeric address", endpoint.host));
}

Result<SocketAddress> SocketAddress::local(const std::string& path) {
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  if (path.empty() || path.size() >= sizeof address.sun_path) {
    return fail(Errc::kInvalidArgument, Op::kOpen,
                fmt::format("{}: a socket's path has 1 to {} bytes, this one has {}; use a shorter directory", path,
                            sizeof address.sun_path - 1, path.size()));
  }
  std::memcpy(address.sun_path, path.data(), path.size());
  return from(address);
}

Result<UniqueFd> open_socket(const SocketAddress& address, Op op) {
  UniqueFd fd(::socket(address.storage.ss_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
  if (!fd.valid()) return fail_errno(errno, op, "socket");
  return fd;
}

void configure_tcp(int fd, const SocketOptions& options, Rate uplink) {
  const bool fits =
      set_option(fd, IPPROTO_TCP, TCP_NODELAY, int{1}) &&
      set_option(fd, IPPROTO_TCP, TCP_NOTSENT_LOWAT, static_cast<unsigned>(options.send_buffer_bytes_max));
  if (!fits) {
    static std::atomic_flag told;
    if (!told.test_and_set()) log_warning("cannot set TCP options: {}", std::strerror(errno));
  }
  set_patience(fd);
  set_congestion(fd, options.congestion);
  if (uplink.limited()) {
    // What a slow receiver made pile up in the kernel must not leave it faster than the node may send.
    static_cast<void>(set_option(fd, SOL_SOCKET, SO_MAX_PACING_RATE, static_cast<unsigned long>(uplink.bytes_per_s)));
  }
}

SocketAddress peer_address(int fd) {
  SocketAddress address;
  address.size = sizeof address.storage;
  if (::getpeername(fd, address.get(), &address.size) != 0) address = {};
  return address;
}

}  // namespace weightcast
