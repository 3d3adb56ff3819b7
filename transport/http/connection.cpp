#include "transport/http/connection.h"

#include <fmt/format.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>

#include <boost/asio/post.hpp>
#include <boost/asio/steady_timer.hpp>
#include <optional>
#include <utility>

#include "transport/http/exchange.h"
#include "transport/http/parser.h"
#include "transport/http/wire.h"

namespace weightcast {
namespace {

namespace asio = boost::asio;
using boost::system::error_code;
using tcp = asio::ip::tcp;
using Clock = std::chrono::steady_clock;

constexpr Duration kOverCapTime = std::chrono::seconds(2);
// How long a client that was refused may go on sending: closed at once, the refusal would be lost on its way.
constexpr Duration kLinger = std::chrono::seconds(1);
// Bytes read ahead of a request that is being answered.
constexpr std::size_t kReadAheadBytesMax = 16 * kKiB;
constexpr std::size_t kReadBytes = 64 * kKiB;
// Bytes that wait in the kernel to be sent for the first time.
constexpr int kNotSentBytesMax = 128 * kKiB;
// Reads and writes of one connection before others have their turn.
constexpr int kTurnsMax = 8;

void append_header(std::string& out, std::string_view name, std::string_view value) {
  const std::size_t begin = out.size();
  fmt::format_to(std::back_inserter(out), "{}: {}", name, value);
  // A value may repeat what a client sent: it must not end the line.
  for (std::size_t i = begin; i < out.size(); ++i) {
    if (out[i] == '\r' || out[i] == '\n' || out[i] == '\0') out[i] = ' ';
  }
  out += "\r\n";
}

class Connection final : public HttpConnection, public std::enable_shared_from_this<Connection>, private HttpWire {
 public:
  Connection(HttpShared& shared, tcp::socket socket, ConnId id, bool is_over_cap)
      : shared_(shared), socket_(std::move(socket)), timer_(shared.io), id_(id), is_over_cap_(is_over_cap) {
    error_code ignored;
    const tcp::endpoint remote = socket_.remote_endpoint(ignored);
    host_ = remote.address().to_string(ignored);
    remote_ = Endpoint{host_, remote.port()}.to_string();
    // Else the kernel takes megabytes of an answer that nobody reads, before that is seen here.
    const int waiting_bytes = kNotSentBytesMax;
    ::setsockopt(socket_.native_handle(), IPPROTO_TCP, TCP_NOTSENT_LOWAT, &waiting_bytes, sizeof waiting_bytes);
    if (shared_.tls) session_ = shared_.tls->accept();
    reset_parser();
    enter(session_ ? State::kHandshake : State::kIdle);
  }

  [[nodiscard]] ConnId id() const override { return id_; }
  [[nodiscard]] bool is_over_cap() const override { return is_over_cap_; }

  [[nodiscard]] const std::string& host() const override { return host_; }
  [[nodiscard]] std::optional<Clock::time_point> idle_since() const override {
    return state_ == State::kIdle && input_.empty() ? std::optional(entered_) : std::nullopt;
  }

  void pump() override {
    int turn = 0;
    bool moved = true;
    while (moved && turn++ < kTurnsMax && state_ != State::kClosed) moved = turn_once();
    if (state_ == State::kClosed) return;
    if (moved) {
      asio::post(shared_.io, [self = shared_from_this()] { self->pump(); });
      return;
    }
    arm();
  }

  void handle_stopping() override {
    close_after_ = true;
    if (state_ == State::kHandshake || state_ == State::kIdle) close();
  }

  void close() override {
    if (state_ == State::kClosed) return;
    state_ = State::kClosed;
    if (exchange_) std::exchange(exchange_, nullptr)->handle_gone(true);
    give_back_body();
    error_code ignored;
    timer_.cancel(ignored);
    socket_.close(ignored);
    shared_.closed(shared_from_this());
  }

 private:
  enum class State {
    kHandshake,
    kIdle,    // before a request
    kHeader,  // in the middle of one
    kBody,
    kAnswering,  // until the answer has left
    kLingering,  // the answer has left, and nothing follows: until the client has seen that
    kClosed,
  };

  int descriptor() override { return socket_.native_handle(); }

  // ---- one turn

  /// Whether anything has moved. May close the connection.
  bool turn_once() {
    if (state_ == State::kHandshake && !shake()) return false;
    if (state_ == State::kClosed) return false;
    bool moved = take_answer();
    if (state_ != State::kClosed) moved = write_some() || moved;
    if (state_ != State::kClosed) moved = read_some() || moved;
    if (state_ != State::kClosed) moved = parse() || moved;
    return moved;
  }

  bool shake() {
    const Result<bool> done = session_->handshake(*this);
    if (!done.has_value()) {
      ++shared_.counters.peers;
      close();
      return false;
    }
    if (!*done) return false;
    shared_.identified(id_);
    enter(State::kIdle);
    return true;
  }

  /// Moves what there is of the answer to the output.
  bool take_answer() {
    if (!exchange_ || answer_taken_) return false;
    auto answer = exchange_->take();
    if (!answer) return false;
    if (answer->overflowed) {
      ++shared_.counters.timed_out;
      close();
      return false;
    }
    const std::size_t before = output_.size();
    const bool has_waited = has_output();
    if (answer->head) append_head(*answer->head, answer->is_stream);
    if (!answer->bytes.empty() && !is_head_) {
      if (is_chunked_) fmt::format_to(std::back_inserter(output_), "{:x}\r\n", answer->bytes.size());
      output_ += answer->bytes;
      if (is_chunked_) output_ += "\r\n";
    }
    if (answer->ended) {
      if (answer->is_stream && is_chunked_ && !is_head_) output_ += "0\r\n\r\n";
      answer_taken_ = true;
    }
    // A client that takes nothing gets no more time by the bytes that follow.
    if (!has_waited && output_.size() != before) touch();
    return true;
  }

  void append_head(const HttpResponse& head, bool is_stream) {
    head_sent_ = true;
    is_chunked_ = is_stream && !is_1_0_;
    if (shared_.stopping || (is_stream && is_1_0_)) close_after_ = true;
    fmt::format_to(std::back_inserter(output_), "HTTP/1.1 {} {}\r\n", head.status, http_reason(head.status));
    for (const HttpHeader& header : head.headers) append_header(output_, header.name, header.value);
    if (head.status != 204) {
      append_header(output_, "Content-Type", head.content_type);
      if (is_chunked_) append_header(output_, "Transfer-Encoding", "chunked");
      if (!is_stream) append_header(output_, "Content-Length", std::to_string(head.body.size()));
    }
    if (close_after_) {
      append_header(output_, "Connection", "close");
    } else if (is_1_0_) {
      append_header(output_, "Connection", "keep-alive");
    }
    output_ += "\r\n";
    if (!is_head_ && head.status != 204) output_ += head.body;
  }

  /// Answers without the handler, and closes.
  void refuse(unsigned status, std::string_view why) {
    ++shared_.counters.refused_requests;
    if (exchange_) std::exchange(exchange_, nullptr)->handle_gone(true);
    close_after_ = true;
    is_head_ = false;
    HttpResponse refusal = http_error(status, why);
    if (status == 503) refusal.headers.push_back({"Retry-After", "1"});
    append_head(refusal, false);
    answer_taken_ = true;
    input_.clear();
    enter(State::kAnswering);
  }

  bool write_some() {
    bool moved = false;
    while (has_output()) {
      const bool held = holds_output();
      const Result<std::size_t> written = write(std::as_bytes(std::span(output_)).subspan(output_at_));
      if (!written.has_value()) {
        close();
        return false;
      }
      if (*written == 0 && held == holds_output()) break;
      output_at_ += *written;
      moved = true;
      touch();
    }
    if (output_at_ > 0 && (output_at_ == output_.size() || output_at_ >= kMiB)) {
      output_.erase(0, output_at_);
      output_at_ = 0;
      if (output_.empty()) output_.shrink_to_fit();
    }
    if (exchange_) exchange_->handle_sent(output_.size() - output_at_);
    if (state_ == State::kAnswering && answer_taken_ && !has_output()) {
      finish_answer();
      moved = true;
    }
    return moved;
  }

  [[nodiscard]] bool has_output() const { return output_at_ < output_.size() || holds_output(); }

  void finish_answer() {
    if (exchange_) std::exchange(exchange_, nullptr)->handle_answered();
    answer_taken_ = head_sent_ = false;
    give_back_body();
    if (read_ended_) {
      close();
      return;
    }
    if (close_after_ || shared_.stopping) {
      if (session_) session_->end_writing(*this);
      error_code ignored;
      socket_.shutdown(tcp::socket::shutdown_send, ignored);
      enter(State::kLingering);
      return;
    }
    reset_parser();
    enter(State::kIdle);
  }

  [[nodiscard]] bool wants_input() const {
    if (read_ended_ || state_ == State::kHandshake) return false;
    if (state_ == State::kAnswering) return input_.size() < kReadAheadBytesMax;
    return input_.size() < kReadBytes;
  }

  bool read_some() {
    if (!wants_input()) return false;
    const Result<Got> got = read(std::as_writable_bytes(std::span(shared_.buffer)));
    if (!got.has_value()) {
      close();
      return false;
    }
    if (state_ != State::kLingering) input_.append(shared_.buffer, 0, got->bytes);
    if (got->ended) {
      read_ended_ = true;
      handle_read_ended();
    }
    return got->bytes > 0 || got->ended;
  }

  /// Whoever half-closes after a request still gets the answer.
  void handle_read_ended() {
    switch (state_) {
      case State::kAnswering:
        if (exchange_) exchange_->handle_gone(false);
        break;
      case State::kIdle:
        if (input_.empty()) close();
        break;
      case State::kLingering: close(); break;
      default: break;  // parse() sees what is there
    }
  }

  // ---- requests

  void reset_parser() {
    HttpParserLimits limits;
    limits.header_bytes_max = shared_.options.limits.header_bytes_max;
    limits.body_bytes_max = shared_.options.limits.body_bytes_max;
    parser_ = HttpParser::for_request(limits);
    has_continued_ = false;
  }

  bool parse() {
    if (state_ != State::kIdle && state_ != State::kHeader && state_ != State::kBody) return false;
    if (state_ == State::kIdle) {
      // Some clients send a line end behind a body.
      while (input_.starts_with("\r\n")) input_.erase(0, 2);
      if (!input_.empty()) enter(State::kHeader);
    }
    const std::size_t taken = input_.empty() ? 0 : parser_->put(input_);
    input_.erase(0, taken);
    if (input_.empty() && taken == kReadBytes) input_.shrink_to_fit();
    if (parser_->refusal()) {
      const HttpParser::Refusal refusal = *parser_->refusal();
      refuse(refusal.status, refusal.why);
      return true;
    }
    if (parser_->header_done()) {
      if (is_over_cap_) {
        refuse(503, "too many connections; try again later");
        return true;
      }
      if (state_ == State::kHeader) {
        if (!session_) shared_.identified(id_);
        is_1_0_ = parser_->is_http_1_0();
        enter(State::kBody);
      }
      if (!shared_.bodies_shares->take(peer_name(), taken)) {
        refuse(503, "too many requests of this client at once; try again later");
        return true;
      }
      body_bytes_ += taken;
      shared_.bodies_bytes += taken;
      if (shared_.bodies_bytes > shared_.options.limits.bodies_bytes_max) {
        refuse(503, "too many requests at once; try again later");
        return true;
      }
      if (parser_->done()) {
        dispatch();
        return true;
      }
      if (parser_->expects_continue() && !has_continued_) {
        has_continued_ = true;
        output_ += "HTTP/1.1 100 Continue\r\n\r\n";
        return true;
      }
    }
    if (read_ended_) {
      close();  // in the middle of a request
      return false;
    }
    return taken > 0;
  }

  [[nodiscard]] const std::string& peer_name() const {
    static const std::string nobody;
    return session_ ? session_->peer().name : nobody;
  }

  void give_back_body() {
    if (body_bytes_ == 0) return;
    shared_.bodies_shares->give_back(peer_name(), body_bytes_);
    shared_.bodies_bytes -= std::exchange(body_bytes_, 0);
  }

  void dispatch() {
    ++shared_.counters.requests;
    if (!parser_->keep_alive()) close_after_ = true;
    HttpRequest request = parser_->take_request();
    is_head_ = request.method == "HEAD";
    if (is_head_) request.method = "GET";  // the same answer, less its body
    request.remote = remote_;
    if (const std::string_view coding = request.header("Content-Encoding"); !coding.empty() && coding != "identity") {
      refuse(415, "the body has a Content-Encoding; send it as it is");
      return;
    }
    if (session_) {
      if (const Status counts = check_still_counts(session_->peer(), *shared_.tls); !counts.has_value()) {
        ++shared_.counters.peers;
        refuse(403, counts.error().detail);
        return;
      }
      request.peer = session_->peer();
    }
    if (shared_.stopping) {
      refuse(503, "the server is about to stop");
      return;
    }
    auto notify = [weak = weak_from_this(), shared = &shared_, number = ++number_] {
      asio::post(shared->io, [weak, number] {
        const auto self = weak.lock();
        if (self && self->number_ == number) self->pump();
      });
    };
    exchange_ = std::make_shared<HttpExchange>(shared_.options.limits, shared_.streams_unsent, std::move(notify));
    enter(State::kAnswering);
    const std::shared_ptr<HttpExchange> kept = exchange_;
    try {
      shared_.handler(std::move(request), HttpResponder(kept));
    } catch (const std::exception& exception) {
      shared_.warn(fmt::format("a request failed: {}", exception.what()));
      kept->give_up();
    }
    if (read_ended_) kept->handle_gone(false);
  }

  // ---- waiting

  void enter(State state) {
    state_ = state;
    entered_ = Clock::now();
    touch();
  }
  void touch() { moved_ = Clock::now(); }

  [[nodiscard]] Clock::time_point deadline() const {
    const HttpLimits& limits = shared_.options.limits;
    switch (state_) {
      case State::kHandshake: return entered_ + (is_over_cap_ ? kOverCapTime : limits.handshake_time_max);
      case State::kIdle: return entered_ + (is_over_cap_ ? kOverCapTime : limits.idle_time_max);
      case State::kHeader: return entered_ + (is_over_cap_ ? kOverCapTime : limits.header_time_max);
      case State::kBody: return entered_ + limits.body_time_max;
      case State::kAnswering: return moved_ + (has_output() ? limits.stall_time_max : limits.answer_time_max);
      case State::kLingering:
      case State::kClosed: break;
    }
    return entered_ + kLinger;
  }

  void handle_deadline() {
    if (state_ == State::kClosed) return;
    if (Clock::now() < deadline()) {
      arm();
      return;
    }
    if (state_ != State::kIdle && state_ != State::kLingering) ++shared_.counters.timed_out;
    const bool may_answer = state_ == State::kHeader || state_ == State::kBody;
    const bool is_late = state_ == State::kAnswering && !head_sent_;
    if (may_answer || is_late) {
      refuse(may_answer ? 408 : 504, may_answer ? "the request did not arrive in time" : "no answer in time");
      pump();
      return;
    }
    close();
  }

  void arm() {
    if (wants_input() || state_ == State::kHandshake || state_ == State::kLingering) arm_wait(tcp::socket::wait_read);
    if (has_output()) arm_wait(tcp::socket::wait_write);
    const Clock::time_point at = deadline();
    if (timer_armed_ && timer_.expiry() <= at) return;
    timer_armed_ = true;
    timer_.expires_at(at);
    timer_.async_wait([self = shared_from_this()](const error_code& error) {
      if (error == asio::error::operation_aborted) return;
      self->timer_armed_ = false;
      self->handle_deadline();
    });
  }

  void arm_wait(tcp::socket::wait_type what) {
    bool& armed = what == tcp::socket::wait_read ? read_armed_ : write_armed_;
    if (std::exchange(armed, true)) return;
    socket_.async_wait(what, [self = shared_from_this(), &armed](const error_code& error) {
      armed = false;
      if (error == asio::error::operation_aborted) return;
      self->pump();
    });
  }

  HttpShared& shared_;
  tcp::socket socket_;
  asio::steady_timer timer_;
  const ConnId id_;
  const bool is_over_cap_;
  std::string host_, remote_;
  State state_ = State::kIdle;
  Clock::time_point entered_, moved_;
  std::unique_ptr<HttpParser> parser_;
  std::string input_;
  std::string output_;
  std::size_t output_at_ = 0;
  std::shared_ptr<HttpExchange> exchange_;
  std::uint64_t number_ = 0;  // of requests on this connection
  std::uint64_t body_bytes_ = 0;
  bool answer_taken_ = false, head_sent_ = false;
  bool is_head_ = false, is_1_0_ = false, is_chunked_ = false, close_after_ = false;
  bool has_continued_ = false;
  bool read_ended_ = false;
  bool read_armed_ = false, write_armed_ = false, timer_armed_ = false;
};

}  // namespace

std::shared_ptr<HttpConnection> make_http_connection(HttpShared& shared, tcp::socket socket, ConnId id,
                                                     bool is_over_cap) {
  return std::make_shared<Connection>(shared, std::move(socket), id, is_over_cap);
}

}  // namespace weightcast
