#include "transport/http/client.h"

#include <fmt/format.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>

#include <atomic>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <future>
#include <memory>
#include <thread>
#include <utility>

#include "base/files/posix_file_system.h"
#include "base/files/unique_fd.h"
#include "transport/http/parser.h"
#include "transport/http/wire.h"

namespace weightcast {
namespace {

using Clock = std::chrono::steady_clock;

struct Address {
  sockaddr_storage storage{};
  socklen_t size = 0;
  int family = AF_UNSPEC;
};

Result<std::vector<Address>> look_up_now(const std::string& host, std::uint16_t port, int flags) {
  addrinfo hints{};
  hints.ai_socktype = SOCK_STREAM;
  hints.ai_flags = AI_NUMERICSERV | flags;
  addrinfo* found = nullptr;
  const int code = ::getaddrinfo(host.c_str(), std::to_string(port).c_str(), &hints, &found);
  if (code != 0) return fail(Errc::kNotFound, Op::kConnect, fmt::format("{}: {}", host, ::gai_strerror(code)));
  std::vector<Address> addresses;
  for (const addrinfo* one = found; one != nullptr; one = one->ai_next) {
    Address& address = addresses.emplace_back();
    std::memcpy(&address.storage, one->ai_addr, one->ai_addrlen);
    address.size = one->ai_addrlen;
    address.family = one->ai_family;
  }
  ::freeaddrinfo(found);
  return addresses;
}

using Addresses = Result<std::vector<Address>>;

/// Looks one server's name up. getaddrinfo() can neither be bounded nor called off, so it runs on a thread that may
/// outlive the caller's patience, and the client: to join it would let whoever ends a client wait for a name server, by
/// default 10 s for each that is silent. It shares nothing but the answer. Invariant: a client has one such thread at
/// most; whoever asks again meanwhile waits for the same answer.
class NameLookup {
 public:
  [[nodiscard]] bool under_way() const { return answer_ != nullptr; }
  /// Not while one is under way. Errors: those of eventfd().
  Status begin(const std::string& host, std::uint16_t port) {
    auto answer = std::make_shared<Answer>();
    answer->is_there.reset(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
    if (!answer->is_there.valid()) return fail_errno(errno, Op::kOpen, "eventfd");
    std::thread([answer, host, port] {
      answer->promise.set_value(look_up_now(host, port, 0));
      static_cast<void>(::eventfd_write(answer->is_there.get(), 1));
    }).detach();
    answer_ = std::move(answer);
    return {};
  }
  /// Of the one under way; readable when its answer is there.
  [[nodiscard]] int descriptor() const { return answer_->is_there.get(); }
  /// When it is. Errors: kNotFound.
  Addresses take() { return std::exchange(answer_, nullptr)->promise.get_future().get(); }

 private:
  struct Answer {
    std::promise<Addresses> promise;
    UniqueFd is_there;
  };

  std::shared_ptr<Answer> answer_;  // of the only server that there is; null: none is waited for
};

class BlockingClient final : public HttpClient, private HttpWire {
 public:
  explicit BlockingClient(HttpClientOptions options) : options_(std::move(options)) {}

  Status set_up() {
    WC_TRY(check_trust(options_.trust, options_.server));
    WC_ASSIGN(tls_, make_tls(files_, options_.trust));
    wake_.reset(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
    if (!wake_.valid()) return fail_errno(errno, Op::kOpen, "eventfd");
    return {};
  }

  Result<HttpResponse> call(const HttpCall& call, Duration limit) override {
    deadline_ = Clock::now() + limit;
    const bool was_open = socket_.valid();
    Result<HttpResponse> response = call_once(call);
    // A kept connection may have been closed by the server meanwhile.
    if (!response.has_value() && was_open && !has_answer_ && is_stale(response.error().code)) {
      response = call_once(call);
    }
    if (!response.has_value()) close();
    return response;
  }

  void interrupt() override { static_cast<void>(::eventfd_write(wake_.get(), 1)); }

 private:
  static bool is_stale(Errc code) { return code == Errc::kClosed || code == Errc::kIo; }

  [[nodiscard]] Error about_server(Error error) const { return about(options_.server.to_string(), std::move(error)); }

  Result<HttpResponse> call_once(const HttpCall& call) {
    has_answer_ = false;
    if (socket_.valid() && session_ && !check_still_counts(session_->peer(), *tls_).has_value()) close();
    if (!socket_.valid()) {
      if (Status connected = connect(); !connected.has_value()) {
        close();
        return about_server(std::move(connected).error());
      }
    }
    auto response = exchange(call);
    if (!response.has_value()) {
      close();
      return about_server(std::move(response).error());
    }
    return response;
  }

  void close() {
    session_.reset();
    socket_.reset();
  }

  Status connect() {
    if (tls_) WC_TRY(refresh_revocations(files_, options_.trust, *tls_));
    WC_ASSIGN(const std::vector<Address> addresses, look_up());
    Status last = fail(Errc::kNotFound, Op::kConnect, "the name has no address");
    for (const Address& address : addresses) {
      last = dial(address);
      if (last.has_value() || last.error().code == Errc::kTimedOut || last.error().code == Errc::kCancelled) break;
    }
    WC_TRY(last);
    if (!tls_) return {};
    session_ = tls_->dial(options_.server.to_string());
    for (;;) {
      WC_ASSIGN(const bool done, session_->handshake(*this));
      if (done && !session_->holds_output()) break;
      WC_TRY(wait(static_cast<short>(POLLIN | (session_->holds_output() ? POLLOUT : 0))));
    }
    if (session_->peer().role == options_.server_role) return {};
    return fail(Errc::kNotAllowed, Op::kVerify,
                fmt::format("it is {} {}, and this must be {}", role_name(session_->peer().role), session_->peer().name,
                            options_.server_role == Role::kOrigin ? "the origin" : "a worker"));
  }

  Addresses look_up() {
    const Endpoint& server = options_.server;
    if (auto numeric = look_up_now(server.host, server.port, AI_NUMERICHOST); numeric.has_value()) return numeric;
    if (!names_.under_way()) WC_TRY(names_.begin(server.host, server.port));
    const Status answered = wait(names_.descriptor(), POLLIN);
    if (answered.has_value()) return names_.take();
    if (answered.error().code != Errc::kTimedOut) return answered.error();
    return fail(Errc::kTimedOut, Op::kConnect, fmt::format("{}: the name's lookup takes too long", server.host));
  }

  static std::string_view role_name(Role role) { return role == Role::kOrigin ? "the origin" : "worker"; }

  Status dial(const Address& address) {
    socket_.reset(::socket(address.family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
    if (!socket_.valid()) return fail_errno(errno, Op::kConnect, "socket");
    const int on = 1;
    static_cast<void>(::setsockopt(socket_.get(), IPPROTO_TCP, TCP_NODELAY, &on, sizeof on));
    if (::connect(socket_.get(), reinterpret_cast<const sockaddr*>(&address.storage), address.size) == 0) return {};
    if (errno != EINPROGRESS) return fail_errno(errno, Op::kConnect, "connect");
    WC_TRY(wait(POLLOUT));
    int error = 0;
    socklen_t size = sizeof error;
    static_cast<void>(::getsockopt(socket_.get(), SOL_SOCKET, SO_ERROR, &error, &size));
    return error == 0 ? Status() : Status(fail_errno(error, Op::kConnect, "connect"));
  }

  Status wait(short events) { return wait(socket_.get(), events); }

  /// Until the descriptor is ready. Errors: kTimedOut, kCancelled.
  Status wait(int descriptor, short events) {
    for (;;) {
      const auto left = std::chrono::ceil<std::chrono::milliseconds>(deadline_ - Clock::now());
      if (left.count() <= 0) return fail(Errc::kTimedOut, Op::kReceive, "no answer in time");
      pollfd polled[] = {{descriptor, events, 0}, {wake_.get(), POLLIN, 0}};
      const int ready = ::poll(polled, 2, static_cast<int>(std::min<std::int64_t>(left.count(), 60'000)));
      if (ready < 0 && errno != EINTR) return fail_errno(errno, Op::kReceive, "poll");
      if (ready <= 0) continue;
      if (polled[1].revents != 0) {
        eventfd_t ignored = 0;
        static_cast<void>(::eventfd_read(wake_.get(), &ignored));
        return fail(Errc::kCancelled, Op::kReceive, "the call was called off");
      }
      if (polled[0].revents != 0) return {};
    }
  }

  int descriptor() override { return socket_.get(); }

  std::string head_of(const HttpCall& call) const {
    std::string head =
        fmt::format("{} {} HTTP/1.1\r\nHost: {}\r\n", call.method, call.target, options_.server.to_string());
    for (const HttpHeader& header : call.headers) {
      fmt::format_to(std::back_inserter(head), "{}: {}\r\n", header.name, header.value);
    }
    if (!call.content_type.empty()) head += fmt::format("Content-Type: {}\r\n", call.content_type);
    if (!call.body.empty() || call.method == "POST" || call.method == "PUT") {
      head += fmt::format("Content-Length: {}\r\n", call.body.size());
    }
    return head + "\r\n";
  }

  /// Writes the call and reads the answer, both as they can: a server may answer before it has read everything.
  Result<HttpResponse> exchange(const HttpCall& call) {
    const std::unique_ptr<HttpParser> parser =
        HttpParser::for_response({options_.header_bytes_max, options_.body_bytes_max}, call.method == "HEAD");
    const std::string out = head_of(call) + call.body;
    std::size_t written = 0;
    bool can_write = true;
    std::string input;
    std::vector<std::byte> buffer(64 * kKiB);
    while (!parser->done()) {
      if (can_write && (written < out.size() || holds_output())) {
        const Result<std::size_t> put = write(std::as_bytes(std::span(out)).subspan(written));
        // A server that refuses a request stops to read it. Its answer can still be there.
        if (!put.has_value()) can_write = false;
        written += put.value_or(0);
      }
      Got got;
      bool moved = false;
      do {
        WC_ASSIGN(got, read(buffer));
        moved = moved || got.bytes > 0;
        input.append(reinterpret_cast<const char*>(buffer.data()), got.bytes);
        has_answer_ = has_answer_ || got.bytes > 0;
        input.erase(0, parser->put(input));
        if (got.ended) parser->put_end();
        if (parser->refusal()) {
          if (!has_answer_) return fail(Errc::kClosed, Op::kReceive, "the server ended the connection");
          const bool is_long = parser->refusal()->status == 413 || parser->refusal()->status == 431;
          return fail(is_long ? Errc::kTooLarge : Errc::kCorrupt, Op::kReceive, parser->refusal()->why);
        }
      } while (got.bytes == buffer.size() && !parser->done());
      if (parser->done() || moved) continue;
      const bool more = can_write && (written < out.size() || holds_output());
      WC_TRY(wait(static_cast<short>(POLLIN | (more ? POLLOUT : 0))));
    }
    // A connection in the middle of a request is of no more use.
    const bool keep = parser->keep_alive() && written == out.size() && input.empty();
    HttpResponse response = parser->take_response();
    if (!keep) close();
    return response;
  }

  const HttpClientOptions options_;
  NameLookup names_;
  PosixFileSystem files_;
  std::shared_ptr<TlsContext> tls_;
  UniqueFd socket_, wake_;
  Clock::time_point deadline_;
  bool has_answer_ = false;  // of the present call: a byte
};

}  // namespace

Result<std::unique_ptr<HttpClient>> HttpClient::make(HttpClientOptions options) {
  auto client = std::make_unique<BlockingClient>(std::move(options));
  WC_TRY(client->set_up());
  return std::unique_ptr<HttpClient>(std::move(client));
}

}  // namespace weightcast
