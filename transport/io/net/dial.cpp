#include "transport/io/net/dial.h"

#include <fmt/format.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "transport/io/net/name_lookup.h"
#include "transport/io/net/socket.h"

namespace weightcast {

/// One attempt to connect, to the first of some addresses that answers.
class Connector : public std::enable_shared_from_this<Connector> {
 public:
  Connector(const ConnectionContext& context, std::string target, Dial::Done on_done)
      : context_(context),
        target_(std::move(target)),
        on_done_(std::move(on_done)),
        timeout_(context.loop, [this] { handle_timeout(); }),
        soon_(context.loop, [this] { try_next(); }) {
    timeout_.arm(context.loop.now() + context.socket.connect_timeout);
  }

  void start(const Endpoint& to) {
    if (auto address = SocketAddress::numeric(to)) return start(std::vector{*address});
    resolve(to);
  }

  void start(Result<SocketAddress> address) {
    if (address) return start(std::vector{*address});
    last_error_ = address.error();
    soon_.schedule();
  }

  void start(std::vector<SocketAddress> addresses) {
    addresses_ = std::move(addresses);
    soon_.schedule();
  }

  void cancel() {
    done_ = true;
    lookup_.reset();
    watch_.reset();
    fd_.reset();
    shaking_hands_.reset();
    timeout_.disarm();
  }

 private:
  void resolve(const Endpoint& to) {
    lookup_.emplace(context_.loop, context_.socket.name_servers, to,
                    [this](Result<std::vector<SocketAddress>> addresses) {
                      if (!addresses.has_value()) last_error_ = addresses.error();
                      if (addresses.has_value()) addresses_ = std::move(*addresses);
                      try_next();
                    });
  }

  void try_next() {
    const auto keep = shared_from_this();
    while (!done_ && next_ < addresses_.size()) {
      const SocketAddress& address = addresses_[next_++];
      is_tcp_ = address.storage.ss_family != AF_UNIX;
      if (is_tcp_ && context_.socket.loopback_only && !address.endpoint().is_loopback()) {
        last_error_ = fail(Errc::kNotAllowed, Op::kConnect, fmt::format("to {}: {}", target_, kBeyondLoopback));
        continue;
      }
      auto fd = open_socket(address, Op::kConnect);
      if (!fd) {
        last_error_ = fd.error();
        continue;
      }
      fd_ = std::move(*fd);
      if (is_tcp_) configure_tcp(fd_.get(), context_.socket, context_.uplink.rate());
      if (::connect(fd_.get(), address.get(), address.size) == 0) return succeed();
      if (errno == EINPROGRESS) {
        watch_.emplace(context_.loop, fd_.get(), [this](FdWatch::Ready) { handle_ready(); });
        watch_->watch(false, true);
        return;
      }
      note_failure(errno);
    }
    if (!done_) finish(last_error_);
  }

  void handle_ready() {
    const auto keep = shared_from_this();
    int error_number = 0;
    socklen_t size = sizeof error_number;
    ::getsockopt(fd_.get(), SOL_SOCKET, SO_ERROR, &error_number, &size);
    watch_.reset();
    if (error_number == 0) return succeed();
    note_failure(error_number);
    try_next();
  }

  void handle_timeout() {
    const auto keep = shared_from_this();
    finish(fail(
        Errc::kTimedOut, Op::kConnect,
        fmt::format("to {}: timed out; no answer within {:.3g} s: check the address, and that no firewall is between",
                    target_, to_seconds(context_.socket.connect_timeout))));
  }

  void note_failure(int error_number) {
    last_error_ = fail_errno(error_number, Op::kConnect, "to " + target_);
    if (error_number == ECONNREFUSED) last_error_.detail += "; is the daemon running there?";
    fd_.reset();
  }

  void succeed() {
    std::string host = is_tcp_ ? peer_address(fd_.get()).endpoint().host : "local";
    const bool encrypts = is_tcp_ && context_.tls != nullptr;
    auto made = FrameConnection::over(context_, std::move(fd_), std::move(host),
                                      encrypts ? context_.tls->dial(target_) : nullptr);
    if (!encrypts) return finish(std::move(made));
    // The handshake has a bound of its own.
    timeout_.disarm();
    shaking_hands_ = std::move(made);
    shaking_hands_->set_handlers(
        handlers([this](const Error& error) { handle_refused(error); }, [this] { handle_peer(); }));
  }

  void handle_peer() {
    const auto keep = shared_from_this();
    // The connection may outlive this object before its owner sets handlers.
    shaking_hands_->set_handlers(handlers([](const Error&) {}, {}));
    finish(std::move(shaking_hands_));
  }

  static FrameConnection::Handlers handlers(std::function<void(const Error&)> on_closed,
                                            std::function<void()> on_peer) {
    return {.on_control = [](const std::string&) { return Status{}; },
            .on_chunk = [](const ReceivedChunk&) {},
            .on_closed = std::move(on_closed),
            .on_peer = std::move(on_peer)};
  }

  /// Another address of the same name is not tried: a node answered here.
  void handle_refused(const Error& error) {
    const auto keep = shared_from_this();
    const std::string_view what = error.code == Errc::kTimedOut ? "TLS handshake not finished; " : "";
    finish(fail(error.code, Op::kConnect, fmt::format("to {}: {}{}", target_, what, error.detail)));
  }

  void finish(Result<std::unique_ptr<FrameConnection>> result) {
    cancel();
    on_done_(std::move(result));
  }

  ConnectionContext context_;
  std::string target_;
  Dial::Done on_done_;
  std::vector<SocketAddress> addresses_;
  std::size_t next_ = 0;
  std::optional<NameLookup> lookup_;
  UniqueFd fd_;
  bool is_tcp_ = true;
  std::optional<FdWatch> watch_;
  std::unique_ptr<FrameConnection> shaking_hands_;
  Error last_error_ = fail(Errc::kIo, Op::kConnect, "the name has no address");
  bool done_ = false;
  Timer timeout_;
  Deferred soon_;
};

Dial::Dial(const ConnectionContext& context, const Endpoint& to, Done on_done)
    : connector_(std::make_shared<Connector>(context, to.to_string(), std::move(on_done))) {
  connector_->start(to);
}

Dial::~Dial() { connector_->cancel(); }

DialLocal::DialLocal(const ConnectionContext& context, const std::string& path, Dial::Done on_done)
    : connector_(std::make_shared<Connector>(context, path, std::move(on_done))) {
  connector_->start(SocketAddress::local(path));
}

DialLocal::~DialLocal() { connector_->cancel(); }

}  // namespace weightcast
