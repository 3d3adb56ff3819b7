#include "transport/io/net/listener.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <netdb.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "transport/io/log.h"
#include "transport/io/net/socket.h"

namespace weightcast {
namespace {

constexpr int kBacklog = 512;
// What one turn of the loop accepts, so that a flood of connections does not keep the others waiting.
constexpr int kAcceptsPerTurn = 64;
// How long nobody is accepted when the process has no descriptor left, and how often that is told.
constexpr Duration kAcceptPause = std::chrono::milliseconds(100);
constexpr Duration kTellInterval = std::chrono::seconds(10);

UniqueFd spare_descriptor() { return UniqueFd(::open("/dev/null", O_RDONLY | O_CLOEXEC)); }

Error listen_error(int error_number, const std::string& where) {
  Error error = fail_errno(error_number, Op::kListen, "on " + where);
  if (error_number == EADDRINUSE) {
    error.code = Errc::kBusy;
    error.detail += "; stop what uses it, or choose another port (0 takes a free one)";
  } else if (error_number == EADDRNOTAVAIL) {
    error.detail += "; this host does not have that address";
  } else if (error_number == EACCES || error_number == EPERM) {
    error.code = Errc::kNotAllowed;
    error.detail += "; ports below 1024 are for root";
  }
  return error;
}

/// The supplementary groups of the program at the other end, as they were when it connected.
std::vector<gid_t> groups_of_peer(int fd) {
  std::vector<gid_t> groups;
  socklen_t size = 0;
  // The first call fails with ERANGE, and says how many there are.
  while (::getsockopt(fd, SOL_SOCKET, SO_PEERGROUPS, groups.data(), &size) != 0) {
    if (errno != ERANGE) return {};
    groups.resize(size / sizeof(gid_t));
  }
  groups.resize(size / sizeof(gid_t));
  return groups;
}

/// Whether the program at the other end of a Unix socket is one to serve: of this process's user, or root's, or in
/// `group`. The socket's mode says the same, but a mode can be changed, and a descriptor handed on.
Status check_user(int fd, std::optional<gid_t> group) {
  ucred peer{};
  socklen_t size = sizeof peer;
  if (::getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &peer, &size) != 0) return fail_errno(errno, Op::kReceive, "local");
  if (peer.uid == ::geteuid() || peer.uid == 0) return {};
  if (group && (peer.gid == *group || std::ranges::count(groups_of_peer(fd), *group) > 0)) return {};
  return fail(Errc::kNotAllowed, Op::kReceive,
              fmt::format("process {} is of user {}, and this daemon of user {}; run it as the same user{}", peer.pid,
                          peer.uid, ::geteuid(),
                          group ? fmt::format(", or in group {}", *group) : ", or give the daemon an --api-group"));
}

/// What the mode and the group of a local socket are. Errors: kNotAllowed (this user may not give it to that group).
Status set_access(const std::string& path, std::optional<gid_t> group) {
  if (group && ::chown(path.c_str(), static_cast<uid_t>(-1), *group) != 0) {
    return fail(Errc::kNotAllowed, Op::kConfigure,
                fmt::format("{}: cannot be given to group {} ({}); make this daemon's user a member of it", path,
                            *group, std::strerror(errno)));
  }
  const mode_t mode = S_IRUSR | S_IWUSR | (group ? S_IRGRP | S_IWGRP : 0);
  return ::chmod(path.c_str(), mode) == 0 ? Status() : Status(listen_error(errno, path));
}

class SocketListener final : public Listener {
 public:
  SocketListener(const ConnectionContext& context, UniqueFd fd, Endpoint endpoint, std::string path,
                 OnConnection on_connection)
      : context_(context),
        fd_(std::move(fd)),
        endpoint_(std::move(endpoint)),
        path_(std::move(path)),
        on_connection_(std::make_shared<const OnConnection>(std::move(on_connection))),
        watch_(context.loop, fd_.get(), [this](FdWatch::Ready ready) { handle_ready(ready); }),
        pause_(context.loop, [this] { watch_.watch(true, false); }) {
    watch_.watch(true, false);
  }

  ~SocketListener() override {
    if (!path_.empty()) ::unlink(path_.c_str());
  }

  [[nodiscard]] Endpoint endpoint() const override { return endpoint_; }
  [[nodiscard]] std::uint64_t refused_count() const override { return refused_; }

 private:
  void handle_ready(FdWatch::Ready ready) {
    if (ready.failed) return pause(ENOMEM);
    // The callback may destroy this object.
    const std::weak_ptr<const OnConnection> here = on_connection_;
    for (int i = 0; i < kAcceptsPerTurn && !here.expired(); ++i) {
      UniqueFd fd(::accept4(fd_.get(), nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC));
      if (!fd.valid()) {
        if (errno == EAGAIN) return;
        if (errno == EINTR || errno == ECONNABORTED) continue;
        return pause(errno);
      }
      std::string host = "local";
      if (!path_.empty()) {
        if (const Status allowed = check_user(fd.get(), context_.socket.local_group); !allowed.has_value()) {
          ++refused_;
          tell(fmt::format("refused, local: {}: {}", path_, allowed.error().detail));
          continue;
        }
      } else {
        configure_tcp(fd.get(), context_.socket, context_.uplink.rate());
        host = peer_address(fd.get()).endpoint().host;
      }
      const auto call = on_connection_;
      (*call)(FrameConnection::over(context_, std::move(fd), std::move(host),
                                    context_.tls && path_.empty() ? context_.tls->accept() : nullptr));
    }
  }

  /// Waits for descriptors, or whatever lacks. What is first in the queue hears of it: with the spare descriptor it is
  /// accepted and closed at once.
  void pause(int error_number) {
    if (error_number == EMFILE || error_number == ENFILE) {
      spare_.reset();
      UniqueFd(::accept4(fd_.get(), nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC)).reset();
      spare_ = spare_descriptor();
    }
    tell(fmt::format("cannot accept a connection on {}: {}; trying again every {} ms",
                     path_.empty() ? endpoint_.to_string() : path_, std::strerror(error_number),
                     std::chrono::duration_cast<std::chrono::milliseconds>(kAcceptPause).count()));
    watch_.watch(false, false);
    pause_.arm(context_.loop.now() + kAcceptPause);
  }

  void tell(const std::string& text) {
    const Instant now = context_.loop.now();
    if (told_at_ && now - *told_at_ < kTellInterval) return;
    told_at_ = now;
    log_warning("{}", text);
  }

  ConnectionContext context_;
  UniqueFd fd_;
  Endpoint endpoint_;
  std::string path_;
  std::shared_ptr<const OnConnection> on_connection_;
  UniqueFd spare_ = spare_descriptor();
  std::optional<Instant> told_at_;
  std::uint64_t refused_ = 0;
  FdWatch watch_;
  Timer pause_;
};

Result<SocketAddress> resolve_now(const Endpoint& at) {
  if (auto numeric = SocketAddress::numeric(at)) return numeric;
  addrinfo hints{};
  hints.ai_socktype = SOCK_STREAM;
  addrinfo* found = nullptr;
  const int status = ::getaddrinfo(at.host.c_str(), std::to_string(at.port).c_str(), &hints, &found);
  if (status != 0)
    return fail(Errc::kIo, Op::kListen, fmt::format("on {}: {}", at.to_string(), ::gai_strerror(status)));
  SocketAddress address;
  std::copy_n(reinterpret_cast<const char*>(found->ai_addr), found->ai_addrlen,
              reinterpret_cast<char*>(&address.storage));
  address.size = found->ai_addrlen;
  ::freeaddrinfo(found);
  return address;
}

/// Removes a socket file that a process left behind when it died.
Status remove_stale(const SocketAddress& address, const std::string& path) {
  struct stat info {};
  if (::lstat(path.c_str(), &info) != 0) return {};  // nothing there; anything else is for bind() to tell
  if (!S_ISSOCK(info.st_mode)) {
    return fail(Errc::kAlreadyExists, Op::kListen,
                fmt::format("on {}: a file that is not a socket has this name; move it away", path));
  }
  WC_ASSIGN(const UniqueFd probe, open_socket(address, Op::kListen));
  // Connected, or too busy to be: somebody listens.
  if (::connect(probe.get(), address.get(), address.size) == 0 || errno == EAGAIN) {
    return fail(Errc::kBusy, Op::kListen, fmt::format("on {}: another daemon answers there; stop it first", path));
  }
  if (errno != ECONNREFUSED) return listen_error(errno, path);
  if (::unlink(path.c_str()) != 0 && errno != ENOENT) return listen_error(errno, path);
  return {};
}

}  // namespace

Result<std::unique_ptr<Listener>> Listener::tcp(const ConnectionContext& context, const Endpoint& at,
                                                OnConnection on_connection) {
  WC_ASSIGN(const SocketAddress address, resolve_now(at));
  if (context.socket.loopback_only && !address.endpoint().is_loopback()) {
    return fail(Errc::kNotAllowed, Op::kListen, fmt::format("on {}: {}", at.to_string(), kBeyondLoopback));
  }
  WC_ASSIGN(UniqueFd fd, open_socket(address, Op::kListen));
  // A restarted daemon gets its port back although old connections linger.
  const int yes = 1;
  ::setsockopt(fd.get(), SOL_SOCKET, SO_REUSEADDR, &yes, sizeof yes);
  if (::bind(fd.get(), address.get(), address.size) != 0 || ::listen(fd.get(), kBacklog) != 0) {
    return listen_error(errno, at.to_string());
  }
  SocketAddress taken;
  taken.size = sizeof taken.storage;
  if (::getsockname(fd.get(), taken.get(), &taken.size) != 0) return listen_error(errno, at.to_string());
  return std::make_unique<SocketListener>(context, std::move(fd), taken.endpoint(), "", std::move(on_connection));
}

Result<std::unique_ptr<Listener>> Listener::local(const ConnectionContext& context, const std::string& path,
                                                  OnConnection on_connection) {
  WC_ASSIGN(const SocketAddress address, SocketAddress::local(path));
  WC_TRY(remove_stale(address, path));
  WC_ASSIGN(UniqueFd fd, open_socket(address, Op::kListen));
  // Nobody can connect before listen(), so the mode is right when the first one tries.
  if (::bind(fd.get(), address.get(), address.size) != 0) return listen_error(errno, path);
  WC_TRY(set_access(path, context.socket.local_group));
  if (::listen(fd.get(), kBacklog) != 0) return listen_error(errno, path);
  return std::make_unique<SocketListener>(context, std::move(fd), Endpoint{"local", 0}, path, std::move(on_connection));
}

}  // namespace weightcast
