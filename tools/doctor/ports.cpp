#include "tools/doctor/ports.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <netdb.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>

#include <cerrno>
#include <cstring>
#include <future>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "base/files/unique_fd.h"

namespace weightcast {
namespace {

struct Address {
  sockaddr_storage storage{};
  socklen_t size = 0;
};
struct Lookup {
  int error = 0;  ///< EAI_*
  std::vector<Address> addresses;
};

Lookup look_up(const Endpoint& endpoint, int flags) {
  Lookup found;
  addrinfo hints{};
  hints.ai_socktype = SOCK_STREAM;
  hints.ai_flags = flags;
  addrinfo* list = nullptr;
  found.error = ::getaddrinfo(endpoint.host.c_str(), std::to_string(endpoint.port).c_str(), &hints, &list);
  if (found.error != 0) return found;
  for (const addrinfo* one = list; one != nullptr; one = one->ai_next) {
    Address& address = found.addresses.emplace_back();
    std::memcpy(&address.storage, one->ai_addr, one->ai_addrlen);
    address.size = one->ai_addrlen;
  }
  ::freeaddrinfo(list);
  return found;
}

/// getaddrinfo() knows no bound of its own: a thread that hangs in it is left to the process's end.
std::optional<Lookup> look_up_within(const Endpoint& endpoint, Duration limit) {
  auto result = std::make_shared<std::promise<Lookup>>();
  std::future<Lookup> future = result->get_future();
  std::thread([result, endpoint] { result->set_value(look_up(endpoint, 0)); }).detach();
  if (future.wait_for(limit) != std::future_status::ready) return std::nullopt;
  return future.get();
}

/// errno, or 0 once it is connected.
int dial(const Address& address, Duration limit) {
  const UniqueFd fd(::socket(address.storage.ss_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (!fd.valid()) return errno;
  if (::connect(fd.get(), reinterpret_cast<const sockaddr*>(&address.storage), address.size) == 0) return 0;
  if (errno != EINPROGRESS) return errno;
  pollfd polled{fd.get(), POLLOUT, 0};
  const int ready = ::poll(&polled, 1, int(std::chrono::duration_cast<std::chrono::milliseconds>(limit).count()));
  if (ready <= 0) return ETIMEDOUT;
  int error = 0;
  socklen_t size = sizeof error;
  ::getsockopt(fd.get(), SOL_SOCKET, SO_ERROR, &error, &size);
  return error;
}

std::string remedy_of(const std::string& check, const Endpoint& endpoint, int error) {
  switch (error) {
    case ECONNREFUSED:
      return fmt::format("start the {} there (systemctl start weightcast-{}), or mend the port: ss -ltnp on its host",
                         check == "origin" ? "origin" : "daemon", check == "origin" ? "origin" : "worker");
    case ETIMEDOUT:
      return fmt::format(
          "let TCP to port {} through the firewalls between, and on its host: nft add rule inet filter "
          "input tcp dport {} accept",
          endpoint.port, endpoint.port);
    case ENETUNREACH:
    case EHOSTUNREACH: return fmt::format("ip route get {}", endpoint.host);
    default: return fmt::format("nc -vz {} {}", endpoint.host, endpoint.port);
  }
}

}  // namespace

Findings check_dial(const std::string& check, const Endpoint& endpoint, Duration limit) {
  Findings findings;
  const auto found = look_up_within(endpoint, limit);
  if (!found || found->error != 0) {
    findings.push_back(
        fault(check + "-name",
              fmt::format("{}: {}", endpoint.host, found ? ::gai_strerror(found->error) : "no name server answers"),
              fmt::format("getent hosts {}; then mend the name, /etc/hosts or /etc/resolv.conf", endpoint.host)));
    return findings;
  }
  findings.push_back(ok(check + "-name", endpoint.host));
  int error = 0;
  for (const Address& address : found->addresses) {
    error = dial(address, limit);
    if (error == 0) break;
  }
  if (error == 0) {
    findings.push_back(ok(check + "-port", fmt::format("{} answers", endpoint.to_string())));
  } else {
    findings.push_back(fault(check + "-port", fmt::format("{}: {}", endpoint.to_string(), std::strerror(error)),
                             remedy_of(check, endpoint, error)));
  }
  return findings;
}

Finding check_listen(const Endpoint& listen, bool is_running) {
  if (is_running) return ok("listen-port", "the daemon of that state directory runs, and listens");
  const Lookup found = look_up(listen, AI_PASSIVE | AI_NUMERICHOST);
  if (found.error != 0) {
    return fault("listen-port", fmt::format("{}: {}", listen.to_string(), ::gai_strerror(found.error)),
                 "--listen with an address of this host: ip -br address; 0.0.0.0 is all of them");
  }
  const UniqueFd fd(::socket(found.addresses.front().storage.ss_family, SOCK_STREAM | SOCK_CLOEXEC, 0));
  const int yes = 1;
  ::setsockopt(fd.get(), SOL_SOCKET, SO_REUSEADDR, &yes, sizeof yes);
  const Address& address = found.addresses.front();
  if (fd.valid() && ::bind(fd.get(), reinterpret_cast<const sockaddr*>(&address.storage), address.size) == 0 &&
      ::listen(fd.get(), 1) == 0) {
    return ok("listen-port", fmt::format("{} is free", listen.to_string()));
  }
  const int error = errno;
  return fault("listen-port", fmt::format("{}: {}", listen.to_string(), std::strerror(error)),
               error == EADDRINUSE
                   ? fmt::format("ss -ltnp sport = :{}, and end what holds it, or take another port", listen.port)
               : error == EADDRNOTAVAIL
                   ? "--listen with an address of this host: ip -br address; 0.0.0.0 is all of them"
               : error == EACCES ? "a port from 1024 on"
                                 : "ip -br address");
}

Finding check_reachable(const Endpoint& listen, const Endpoint& origin) {
  if (!listen.is_loopback() || origin.is_loopback()) {
    return ok("listen-address", fmt::format("{}; 'weightcast doctor --peer HOST:{}' on another host dials it",
                                            listen.to_string(), listen.port));
  }
  return fault("listen-address",
               fmt::format("{} is this host's alone, so nobody can take versions from this worker", listen.to_string()),
               fmt::format("--listen 0.0.0.0:{}, or --leaf-only where nobody is to dial it", listen.port));
}

}  // namespace weightcast
