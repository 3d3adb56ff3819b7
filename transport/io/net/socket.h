#pragma once

#include <sys/socket.h>

#include <string>

#include "base/files/unique_fd.h"
#include "base/settings/endpoint.h"
#include "base/units.h"
#include "transport/io/net/frame_connection.h"

namespace weightcast {

/// Why an address is refused with SocketOptions::loopback_only, and what to do.
inline constexpr std::string_view kBeyondLoopback =
    "this address is beyond loopback, and without keys everybody on the way can read and change what goes there; give "
    "--keys FILE (weightcast keys init and issue make it), or --insecure where the network is trusted";

/// An IPv4, IPv6 or Unix address.
struct SocketAddress {
  sockaddr_storage storage{};
  socklen_t size = 0;

  [[nodiscard]] const sockaddr* get() const { return reinterpret_cast<const sockaddr*>(&storage); }
  [[nodiscard]] sockaddr* get() { return reinterpret_cast<sockaddr*>(&storage); }
  /// The numeric host and the port. IPv4 inside IPv6 gives IPv4. A Unix address gives "local" and 0.
  [[nodiscard]] Endpoint endpoint() const;
  /// Of an IPv4 or IPv6 address.
  void set_port(std::uint16_t port);

  /// Errors: kInvalidArgument when `host` is a name and not a number.
  [[nodiscard]] static Result<SocketAddress> numeric(const Endpoint& endpoint);
  /// Errors: kInvalidArgument when the path is longer than the kernel allows (107 bytes).
  [[nodiscard]] static Result<SocketAddress> local(const std::string& path);
};

/// A non-blocking stream socket for addresses like `address`. Errors: kIo.
[[nodiscard]] Result<UniqueFd> open_socket(const SocketAddress& address, Op op);

/// Applies `options` to a connected TCP socket. If the kernel refuses an option, this logs once per process and option
/// what the kernel would need, and the connection works without the option.
void configure_tcp(int fd, const SocketOptions& options, Rate uplink);

/// The address of the other end.
[[nodiscard]] SocketAddress peer_address(int fd);

}  // namespace weightcast
