#include "transport/http/server.h"

#include <fmt/format.h>

#include <algorithm>
#include <boost/asio/post.hpp>
#include <boost/asio/steady_timer.hpp>
#include <condition_variable>
#include <map>
#include <mutex>
#include <optional>
#include <thread>
#include <utility>

#include "base/admission.h"
#include "base/files/posix_file_system.h"
#include "transport/http/connection.h"

namespace weightcast {
namespace {

namespace asio = boost::asio;
using boost::system::error_code;
using tcp = asio::ip::tcp;

// Connections above the cap that still get a 503, and a quarter of the cap at most. Whoever comes beyond them is closed
// at once.
constexpr std::size_t kOverCapMax = 64;
constexpr Duration kAcceptRetry = std::chrono::milliseconds(100);
constexpr Duration kRevocationInterval = std::chrono::milliseconds(500);
constexpr int kBacklog = 4096;

}  // namespace

class HttpServer::Core {
 public:
  explicit Core(HttpServerOptions options) {
    shared_.options = std::move(options);
    shared_.bodies_shares.emplace(shared_.options.limits.bodies_bytes_per_peer_max);
    shared_.identified = [this](ConnId id) { admission_->identify(id); };
    shared_.closed = [this](const std::shared_ptr<HttpConnection>& connection) { remove(connection); };
  }
  ~Core() { WC_CHECK(!thread_.joinable()); }

  Status listen();
  void serve(HttpHandler handler);
  void read_keys_again();
  void stop(Duration grace);

  [[nodiscard]] const Endpoint& endpoint() const { return endpoint_; }
  [[nodiscard]] HttpServerStats stats() const {
    const auto& counters = shared_.counters;
    return {counters.connections, counters.accepted, counters.requests,         counters.over_cap,
            counters.crowded_out, counters.peers,    counters.refused_requests, counters.timed_out};
  }

 private:
  void accept();
  void add(tcp::socket socket);
  void remove(const std::shared_ptr<HttpConnection>& connection);
  bool make_room(const std::string& host);
  void look_at_revocations();

  HttpShared shared_;
  PosixFileSystem files_;
  std::optional<asio::executor_work_guard<asio::io_context::executor_type>> work_;
  tcp::acceptor acceptor_{shared_.io};
  asio::steady_timer accept_timer_{shared_.io}, revocation_timer_{shared_.io};
  Endpoint endpoint_;
  std::optional<Admission> admission_;  // of all connections but those above the cap
  std::map<ConnId, std::shared_ptr<HttpConnection>> connections_;
  ConnId last_id_{};
  std::size_t over_cap_ = 0, over_cap_max_ = 0;
  bool revocations_failed_ = false;
  std::mutex mutex_;
  std::condition_variable emptied_;
  bool empty_ = true;  // of connections; guarded
  std::thread thread_;
};

Status HttpServer::Core::listen() {
  const Endpoint& wanted = shared_.options.listen;
  WC_TRY(check_trust(shared_.options.trust, wanted));
  WC_ASSIGN(shared_.tls, make_tls(files_, shared_.options.trust));
  error_code error;
  tcp::endpoint address(asio::ip::make_address(wanted.host, error), wanted.port);
  if (error) {
    tcp::resolver resolver(shared_.io);
    const auto found = resolver.resolve(wanted.host, std::to_string(wanted.port), tcp::resolver::passive, error);
    if (error || found.empty()) {
      return fail(Errc::kInvalidArgument, Op::kListen,
                  fmt::format("{}: no such host: {}", wanted.to_string(), error.message()));
    }
    address = found.begin()->endpoint();
  }
  const auto failed = [&] { return fail_errno(error.value(), Op::kListen, wanted.to_string()); };
  if (acceptor_.open(address.protocol(), error); error) return failed();
  if (acceptor_.set_option(tcp::acceptor::reuse_address(true), error); error) return failed();
  if (acceptor_.bind(address, error); error) return failed();
  if (acceptor_.listen(kBacklog, error); error) return failed();
  const std::size_t connections_max =
      std::min<std::size_t>(shared_.options.limits.connections_max, AdmissionLimits::of_this_process().connections_max);
  admission_.emplace(AdmissionLimits::for_connections(connections_max));
  over_cap_max_ = std::clamp<std::size_t>(connections_max / 4, 1, kOverCapMax);
  endpoint_ = {wanted.host, acceptor_.local_endpoint(error).port()};
  work_.emplace(shared_.io.get_executor());
  return {};
}

void HttpServer::Core::serve(HttpHandler handler) {
  WC_CHECK(!thread_.joinable());
  shared_.handler = std::move(handler);
  accept();
  if (shared_.tls) look_at_revocations();
  thread_ = std::thread([this] { shared_.io.run(); });
}

void HttpServer::Core::accept() {
  acceptor_.async_accept([this](const error_code& error, tcp::socket socket) {
    if (shared_.stopping || error == asio::error::operation_aborted) return;
    if (error) {
      // No descriptor is left, or the client has gone already.
      accept_timer_.expires_after(kAcceptRetry);
      accept_timer_.async_wait([this](const error_code& cancelled) {
        if (!cancelled && !shared_.stopping) accept();
      });
      return;
    }
    add(std::move(socket));
    accept();
  });
}

void HttpServer::Core::add(tcp::socket socket) {
  ++shared_.counters.accepted;
  error_code ignored;
  const std::string host = socket.remote_endpoint(ignored).address().to_string(ignored);
  const ConnId id = ++last_id_;
  bool is_over_cap = !admission_->admit(id, host).has_value();
  if (is_over_cap && make_room(host)) is_over_cap = !admission_->admit(id, host).has_value();
  if (is_over_cap) ++shared_.counters.over_cap;
  if (is_over_cap && over_cap_ >= over_cap_max_) return;
  socket.non_blocking(true, ignored);
  socket.set_option(tcp::no_delay(true), ignored);
  const auto connection = make_http_connection(shared_, std::move(socket), id, is_over_cap);
  connections_.emplace(id, connection);
  if (is_over_cap) ++over_cap_;
  shared_.counters.connections = connections_.size();
  {
    const std::scoped_lock lock(mutex_);
    empty_ = false;
  }
  if (const auto crowded_out = is_over_cap ? std::nullopt : admission_->crowded_out()) {
    ++shared_.counters.crowded_out;
    const auto silent = connections_.at(*crowded_out);
    silent->close();
  }
  connection->pump();
}

/// Closes the connection without a request that has waited longest for one, if there is one: of `host`, whose share may
/// be full, or else of any. Its client connects again when it has something to ask.
bool HttpServer::Core::make_room(const std::string& host) {
  std::shared_ptr<HttpConnection> longest;
  const auto rank = [&](const HttpConnection& one) { return std::pair(one.host() != host, *one.idle_since()); };
  for (const auto& [id, connection] : connections_) {
    if (connection->is_over_cap() || !connection->idle_since()) continue;
    if (!longest || rank(*connection) < rank(*longest)) longest = connection;
  }
  if (!longest) return false;
  ++shared_.counters.crowded_out;
  longest->close();
  return true;
}

void HttpServer::Core::remove(const std::shared_ptr<HttpConnection>& connection) {
  if (connections_.erase(connection->id()) == 0) return;
  admission_->erase(connection->id());
  if (connection->is_over_cap()) --over_cap_;
  shared_.counters.connections = connections_.size();
  if (!connections_.empty()) return;
  const std::scoped_lock lock(mutex_);
  empty_ = true;
  emptied_.notify_all();
}

void HttpServer::Core::look_at_revocations() {
  const Status status = refresh_revocations(files_, shared_.options.trust, *shared_.tls);
  if (!status.has_value() && !revocations_failed_) shared_.warn("revoked keys: " + status.error().message());
  revocations_failed_ = !status.has_value();
  revocation_timer_.expires_after(kRevocationInterval);
  revocation_timer_.async_wait([this](const error_code& error) {
    if (!error && !shared_.stopping) look_at_revocations();
  });
}

void HttpServer::Core::read_keys_again() {
  if (!shared_.tls) return;
  asio::post(shared_.io, [this] {
    const Status status = refresh_keys(shared_.options.trust, *shared_.tls);
    if (!status.has_value()) shared_.warn("keys: " + status.error().message() + "; those before count");
  });
}

void HttpServer::Core::stop(Duration grace) {
  if (!thread_.joinable()) return;
  asio::post(shared_.io, [this] {
    shared_.stopping = true;
    error_code ignored;
    acceptor_.close(ignored);
    accept_timer_.cancel(ignored);
    revocation_timer_.cancel(ignored);
    for (const auto& [id, connection] : std::map(connections_)) connection->handle_stopping();
  });
  {
    std::unique_lock lock(mutex_);
    emptied_.wait_for(lock, grace, [this] { return empty_; });
  }
  asio::post(shared_.io, [this] {
    for (const auto& [id, connection] : std::map(connections_)) connection->close();
    work_.reset();
    // Cancelled handlers run first.
    asio::post(shared_.io, [this] { shared_.io.stop(); });
  });
  thread_.join();
}

HttpServer::HttpServer(std::unique_ptr<Core> core) : core_(std::move(core)) {}
HttpServer::~HttpServer() { stop(Duration::zero()); }

Result<std::unique_ptr<HttpServer>> HttpServer::listen(HttpServerOptions options) {
  auto core = std::make_unique<Core>(std::move(options));
  WC_TRY(core->listen());
  return std::unique_ptr<HttpServer>(new HttpServer(std::move(core)));
}

void HttpServer::serve(HttpHandler handler) { core_->serve(std::move(handler)); }

Result<std::unique_ptr<HttpServer>> HttpServer::start(HttpServerOptions options, HttpHandler handler) {
  WC_ASSIGN(std::unique_ptr<HttpServer> server, listen(std::move(options)));
  server->serve(std::move(handler));
  return server;
}

void HttpServer::read_keys_again() { core_->read_keys_again(); }
const Endpoint& HttpServer::endpoint() const { return core_->endpoint(); }
HttpServerStats HttpServer::stats() const { return core_->stats(); }
void HttpServer::stop(Duration grace) { core_->stop(grace); }

}  // namespace weightcast
