#include "transport/io/supervisor.h"

#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <cerrno>
#include <cstddef>
#include <cstdlib>
#include <cstring>

#include "transport/io/log.h"

namespace weightcast {

// sd_notify(3): one datagram to the socket that the environment names; a name that begins with '@' is abstract.
void tell_supervisor(std::string_view state) {
  const char* const named = std::getenv("NOTIFY_SOCKET");
  if (named == nullptr || *named == '\0') return;
  const std::string_view name(named);
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  if (name.size() >= sizeof address.sun_path) return;
  std::memcpy(address.sun_path, name.data(), name.size());
  if (address.sun_path[0] == '@') address.sun_path[0] = '\0';
  const auto size = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + name.size());
  const int fd = ::socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
  if (fd < 0) return;
  if (::sendto(fd, state.data(), state.size(), MSG_NOSIGNAL, reinterpret_cast<const sockaddr*>(&address), size) < 0) {
    log_warning("the service manager at {} cannot be told {}: {}", name, state, std::strerror(errno));
  }
  ::close(fd);
}

}  // namespace weightcast
