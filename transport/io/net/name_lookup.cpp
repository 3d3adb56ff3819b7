#include "transport/io/net/name_lookup.h"

#include <ares.h>
#include <fmt/format.h>
#include <netdb.h>

#include <algorithm>
#include <map>
#include <optional>
#include <utility>

namespace weightcast {
namespace {

constexpr int kTriesPerServer = 2;
// A name with more addresses is dialled at the first ones.
constexpr std::size_t kAddressesMax = 16;

// c-ares wants it once per process, before any thread could use it; it is never undone.
int initialise_library() {
  static const int status = ::ares_library_init(ARES_LIB_INIT_ALL);
  return status;
}

}  // namespace

struct NameLookup::Impl {
  Impl(UvLoop& l, Endpoint e, Done d)
      : loop(l),
        endpoint(std::move(e)),
        done(std::move(d)),
        timer(l, [this] { process(ARES_SOCKET_BAD, ARES_SOCKET_BAD); }),
        // Not from inside c-ares, whose channel the owner is free to destroy then.
        answer(l, [this] {
          const Done tell = std::move(done);  // it may destroy this
          tell(std::move(*result));
        }) {}

  ~Impl() {
    if (channel != nullptr) ::ares_destroy(std::exchange(channel, nullptr));
  }

  void start(const std::vector<Endpoint>& servers) {
    if (const int status = open_channel(servers); status != ARES_SUCCESS) return finish(failure(status));
    ares_addrinfo_hints hints{};
    hints.ai_family = AF_UNSPEC;
    hints.ai_socktype = SOCK_STREAM;
    const auto on_answer = [](void* self, int status, int, ares_addrinfo* found) {
      static_cast<Impl*>(self)->handle_answer(status, found);
    };
    ::ares_getaddrinfo(channel, endpoint.host.c_str(), nullptr, &hints, on_answer, this);
    arm();
  }

  int open_channel(const std::vector<Endpoint>& servers) {
    if (const int status = initialise_library(); status != ARES_SUCCESS) return status;
    ares_options ares{};
    ares.timeout = static_cast<int>(std::chrono::duration_cast<std::chrono::milliseconds>(kTryTimeout).count());
    ares.tries = kTriesPerServer;
    ares.sock_state_cb = [](void* self, ares_socket_t fd, int readable, int writable) {
      static_cast<Impl*>(self)->watch(fd, readable != 0, writable != 0);
    };
    ares.sock_state_cb_data = this;
    const int set = ARES_OPT_TIMEOUTMS | ARES_OPT_TRIES | ARES_OPT_SOCK_STATE_CB;
    if (const int status = ::ares_init_options(&channel, &ares, set); status != ARES_SUCCESS) return status;
    if (servers.empty()) return ARES_SUCCESS;
    std::string list;
    for (const Endpoint& server : servers) list += (list.empty() ? "" : ",") + server.to_string();
    return ::ares_set_servers_ports_csv(channel, list.c_str());
  }

  /// c-ares opened, uses, or is about to close a socket.
  void watch(ares_socket_t fd, bool readable, bool writable) {
    if (!readable && !writable) {
      watches.erase(fd);
      return;
    }
    auto& watch = watches[fd];
    if (!watch) {
      watch = std::make_unique<FdWatch>(loop, fd, [this, fd](FdWatch::Ready ready) {
        // A socket that failed is read, too: so c-ares hears of it.
        const bool read = ready.readable || ready.failed;
        process(read ? fd : ARES_SOCKET_BAD, ready.writable ? fd : ARES_SOCKET_BAD);
      });
    }
    watch->watch(readable, writable);
  }

  void process(ares_socket_t readable, ares_socket_t writable) {
    ::ares_process_fd(channel, readable, writable);
    arm();
  }

  /// Comes back when c-ares has something to give up.
  void arm() {
    timeval wait{};
    if (result || ::ares_timeout(channel, nullptr, &wait) == nullptr) return timer.disarm();
    timer.arm(loop.now() + std::chrono::seconds(wait.tv_sec) + std::chrono::microseconds(wait.tv_usec));
  }

  void handle_answer(int status, ares_addrinfo* found) {
    if (channel == nullptr || status == ARES_EDESTRUCTION) return;  // cancelled
    if (status != ARES_SUCCESS) return finish(failure(status));
    std::vector<SocketAddress> addresses;
    for (const ares_addrinfo_node* node = found->nodes; node != nullptr && addresses.size() < kAddressesMax;
         node = node->ai_next) {
      SocketAddress address;
      if (node->ai_addrlen > sizeof address.storage) continue;
      std::copy_n(reinterpret_cast<const char*>(node->ai_addr), node->ai_addrlen,
                  reinterpret_cast<char*>(&address.storage));
      address.size = static_cast<socklen_t>(node->ai_addrlen);
      address.set_port(endpoint.port);
      addresses.push_back(address);
    }
    ::ares_freeaddrinfo(found);
    if (addresses.empty()) return finish(failure(ARES_ENODATA));
    finish(std::move(addresses));
  }

  [[nodiscard]] Error failure(int status) const {
    return fail(status == ARES_ETIMEOUT ? Errc::kTimedOut : Errc::kIo, Op::kConnect,
                fmt::format("to {}: {}", endpoint.to_string(), ::ares_strerror(status)));
  }

  void finish(Result<std::vector<SocketAddress>> outcome) {
    result.emplace(std::move(outcome));
    answer.schedule();
  }

  UvLoop& loop;
  const Endpoint endpoint;
  Done done;
  ares_channel channel = nullptr;
  std::map<ares_socket_t, std::unique_ptr<FdWatch>> watches;
  std::optional<Result<std::vector<SocketAddress>>> result;
  Timer timer;
  Deferred answer;
};

NameLookup::NameLookup(UvLoop& loop, const std::vector<Endpoint>& servers, const Endpoint& endpoint, Done done)
    : impl_(std::make_unique<Impl>(loop, endpoint, std::move(done))) {
  impl_->start(servers);
}

NameLookup::~NameLookup() = default;

}  // namespace weightcast
