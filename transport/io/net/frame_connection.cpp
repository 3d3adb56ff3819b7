#include "transport/io/net/frame_connection.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <deque>
#include <optional>
#include <utility>
#include <vector>

#include "proto/wire.pb.h"
#include "transport/io/net/arrived_frames.h"
#include "transport/io/net/incoming_frame.h"
#include "transport/io/net/stream_port.h"

namespace weightcast {
namespace {

// Frames that one write may have.
constexpr std::size_t kFramesPerWrite = 32;
// Bytes of messages after which a write takes no further one.
constexpr std::size_t kControlBytesPerWrite = kMiB;
// What a peer may still send after our end, before it hears of it.
constexpr std::size_t kDiscardBytesMax = 4 * kMiB;

iovec piece(Bytes bytes) { return {.iov_base = const_cast<std::byte*>(bytes.data()), .iov_len = bytes.size()}; }

/// A frame that waits to be sent, or is being sent.
struct OutgoingFrame {
  FrameHeaderBytes header;
  std::string text;  // a control message's body
  BufferRef buffer;  // a chunk's body
  std::function<void()> on_sent;
  std::size_t sent_bytes = 0;

  [[nodiscard]] Bytes body() const { return buffer ? buffer->bytes() : std::as_bytes(std::span(text)); }
  [[nodiscard]] std::size_t bytes_left() const { return header.size() + body().size() - sent_bytes; }
  /// What it takes, with the allocator's share; a short message costs several times its bytes.
  [[nodiscard]] std::size_t memory_bytes() const { return sizeof(OutgoingFrame) + text.capacity() + kAllocationBytes; }

  static constexpr std::size_t kAllocationBytes = 16;
};

/// What a connection is made of. It outlives its FrameConnection for as long as it flushes or an I/O thread has its
/// stream, and, kept alive by each of its entry points, until a handler that destroyed its FrameConnection has
/// returned.
///
/// It decides; its port moves the bytes. It has the stream itself while it shakes hands and while it flushes.
class Connection final : public std::enable_shared_from_this<Connection>, public StreamPort::Owner {
 public:
  Connection(const ConnectionContext& context, UniqueFd socket, std::string peer_host, std::unique_ptr<TlsSession> tls)
      : context_(context),
        peer_host_(std::move(peer_host)),
        port_(std::make_shared<StreamPort>(
            context.loop, *this, context.buffers,
            context.hashing != nullptr ? ArrivedFrames::kHashedApartBytesMin : std::size_t{SIZE_MAX}, std::move(socket),
            peer_host_, std::move(tls))),
        arrived_(context.hashing, [this] { handle_deliverable(); }),
        control_turn_(context.loop, [this] { handle_control_turn(); }),
        timeout_(context.loop, [this] { handle_timeout(); }),
        receiver_(*this),
        sender_(*this),
        budget_share_([this] { handle_budget(); }) {}
  ~Connection() override { port_->forget_owner(); }
  Connection(const Connection&) = delete;
  Connection& operator=(const Connection&) = delete;

  /// Once, at first.
  void start() {
    last_progress_ = last_moved_ = context_.loop.now();
    if (!port_->stream().is_encrypted()) {
      open();
      return wait_to_read();
    }
    state_ = State::kShakingHands;
    timeout_.arm(last_moved_ + context_.socket.handshake_timeout);
    watch_stream();
    port_->stream().watch(true, false);
    control_turn_.schedule();
  }

  void set_handlers(FrameConnection::Handlers handlers) {
    WC_CHECK(handlers.on_control && handlers.on_chunk && handlers.on_closed);
    handlers_ = std::move(handlers);
  }

  void set_receive_limits(const ReceiveLimits& limits) {
    budget_ = limits.budget;
    budget_holder_ = limits.holder;
    port_->set_limits(limits);
  }

  void set_uplink_share(std::shared_ptr<Pacer::Share> share) {
    if (may_send()) context_.uplink.join(sender_, std::move(share));
  }

  void keep_while_open(std::shared_ptr<void> token) { token_ = std::move(token); }

  void send_control(std::string body) {
    if (!may_send()) return;
    if (body.size() > kControlBytesMax) return refuse_to_send("a message", body.size(), kControlBytesMax);
    const FrameHeader header{.type = FrameType::kControl, .body_bytes = static_cast<std::uint32_t>(body.size())};
    control_.push_back({.header = encode_frame_header(header), .text = std::move(body), .buffer = {}, .on_sent = {}});
    control_bytes_ += control_.back().bytes_left();
    control_memory_bytes_ += control_.back().memory_bytes();
    control_turn_.schedule();
  }

  void send_chunk(PayloadId payload, ChunkIndex chunk, BufferRef bytes, std::function<void()> on_sent) {
    if (!may_send()) return;
    if (bytes->size() > kChunkBytesMax) return refuse_to_send("a chunk", bytes->size(), kChunkBytesMax);
    const FrameHeader header{.type = FrameType::kChunk,
                             .body_bytes = static_cast<std::uint32_t>(bytes->size()),
                             .chunk = chunk,
                             .payload = payload};
    chunks_.push_back(
        {.header = encode_frame_header(header), .text = {}, .buffer = std::move(bytes), .on_sent = std::move(on_sent)});
    if (state_ == State::kOpen && !writing_) context_.uplink.request(sender_);
  }

  void close() {
    if (!may_send()) return;
    // Before the handshake is done, nothing can be said.
    if (failure_ || state_ == State::kShakingHands) return shut();
    // The last moment at which the pacers and the budget are certain to be there.
    leave_pacers();
    budget_share_.give_back();
    for (OutgoingFrame& frame : chunks_) frame.on_sent = {};
    const bool chunk_goes_first = !control_.empty() && !chunks_.empty() && (chunk_begun() || chunk_bytes_writing_ > 0);
    const std::size_t chunk_bytes = chunk_goes_first ? chunks_.front().bytes_left() : 0;
    context_.uplink.charge(control_bytes_ + chunk_bytes - std::min(chunk_bytes, chunk_bytes_writing_));
    begin_flush();
  }

  /// The FrameConnection goes away.
  void handle_dropped() {
    if (may_send()) shut();
  }

  void pause_reading() {
    reading_paused_ = true;
    if (reading_ && state_ == State::kOpen) port_->stop_waiting();
  }

  void resume_reading() {
    if (!std::exchange(reading_paused_, false) || state_ != State::kOpen) return;
    last_progress_ = last_moved_ = context_.loop.now();
    watch_timeout();
    if (may_read()) request_read();
    if (arrived_.empty()) return;
    context_.loop.post([kept = weak_from_this()] {
      if (const auto self = kept.lock()) self->handle_deliverable();
    });
  }

  [[nodiscard]] UniqueFd take_descriptor() { return port_->stream().take_descriptor(); }
  [[nodiscard]] const std::string& peer_host() const { return peer_host_; }
  [[nodiscard]] bool awaits_peer() const { return state_ == State::kShakingHands; }
  [[nodiscard]] std::optional<PeerIdentity> peer() const { return port_->stream().peer(); }
  [[nodiscard]] std::uint64_t bytes_received() const { return port_->bytes_received(); }
  [[nodiscard]] std::uint64_t bytes_sent() const { return port_->bytes_sent(); }

 private:
  enum class State { kShakingHands, kOpen, kFlushing, kClosed };

  using Moved = Pacer::Client::Moved;
  using Missing = ArrivedFrames::Missing;

  struct Receiver final : Pacer::Client {
    explicit Receiver(Connection& c) : connection(c) {}
    Moved move_bytes(std::size_t bytes_max) override { return connection.receive(bytes_max); }
    Connection& connection;
  };
  struct Sender final : Pacer::Client {
    explicit Sender(Connection& c) : connection(c) {}
    Moved move_bytes(std::size_t bytes_max) override { return connection.send(bytes_max); }
    Connection& connection;
  };

  // --- entry points: what the loop and the pacers call ---

  /// Of the stream, while it is here.
  void handle_ready() {
    const auto keep = shared_from_this();
    if (state_ == State::kFlushing) flush();
    if (state_ == State::kShakingHands) shake_hands();
  }

  void handle_control_turn() {
    const auto keep = shared_from_this();
    if (state_ == State::kFlushing) return flush();
    if (failure_) return fail_now();
    if (state_ == State::kShakingHands) return shake_hands();
    write_more();
    if (control_memory_bytes_ > FrameConnection::kControlQueueBytesMax) {
      failure_ = fail(Errc::kTooLarge, Op::kSend,
                      fmt::format("to {}: {} messages of {} bytes wait and the peer does not read", peer_host_,
                                  control_.size(), control_bytes_));
      fail_now();
    }
  }

  /// Frames that arrived whole may be delivered now.
  void handle_deliverable() {
    const auto keep = shared_from_this();
    const bool was_full = arrived_.full();
    deliver(Missing::kWait);
    if (!was_full || state_ != State::kOpen || !may_read()) return;
    last_progress_ = last_moved_ = context_.loop.now();
    watch_timeout();
    request_read();
  }

  /// There is memory for the frame that has begun. From inside another connection's turn.
  void handle_budget() {
    budget_taken_at_ = last_progress_ = last_moved_ = context_.loop.now();
    if (may_read()) request_read();
  }

  void handle_timeout() {
    const auto keep = shared_from_this();
    if (state_ == State::kFlushing) return shut();
    const Instant now = context_.loop.now();
    if (state_ == State::kShakingHands) {
      failure_ = fail(Errc::kTimedOut, Op::kReceive,
                      fmt::format("from {}: the handshake has not ended after {:.3g} s", peer_host_,
                                  to_seconds(context_.socket.handshake_timeout)));
      return fail_now();
    }
    if (!may_read()) return;  // it is this end that holds the peer up
    const auto fail_timed_out = [&](std::string_view what, Duration bound) {
      failure_ = fail(Errc::kTimedOut, Op::kReceive,
                      fmt::format("from {}: {} for {:.3g} s", peer_host_, what, to_seconds(bound)));
      fail_now();
    };
    if (port_->frame_begun() && port_->stream().bytes_waiting() > 0) {
      // The peer sends; it is the low-water mark or the downlink's turn that these bytes wait for.
      port_->lower_low_water();
      last_progress_ = last_moved_ = now;
    }
    const SocketOptions& bounds = context_.socket;
    if (port_->frame_begun() && now - last_progress() >= bounds.body_timeout) {
      return fail_timed_out("a frame began, but its rest did not come", bounds.body_timeout);
    }
    if (budget_share_.taken() && now - budget_taken_at_ >= ReceiveLimits::kBudgetHoldTimeout) {
      return fail_timed_out("a frame has been coming", ReceiveLimits::kBudgetHoldTimeout);
    }
    if (bounds.idle_timeout > Duration{} && now - last_moved() >= bounds.idle_timeout) {
      return fail_timed_out("nothing came or went", bounds.idle_timeout);
    }
    watch_timeout();
  }

  /// The downlink's turn.
  Moved receive(std::size_t bytes_max) {
    const auto keep = shared_from_this();
    read_requested_ = false;
    if (state_ != State::kOpen || reading_) return {};
    if (broken_ || ended_) deliver(Missing::kHashHere);
    if (state_ != State::kOpen) return {};
    if (broken_ && !may_read()) return fail_in_turn(*broken_);
    if (!may_read()) return {};  // the end is told afterwards
    if (ended_) return fail_in_turn(*ended_);
    const bool is_limited = context_.downlink.rate().limited();
    reading_ = true;
    reads_what_is_left_ = broken_.has_value();
    port_->order_read(
        {.bytes_max = bytes_max, .waits = !is_limited && !broken_, .budget_taken = budget_share_.taken()});
    if (is_limited) return {.bytes = bytes_max, .under_way = true};
    return {};  // it may take for ever, and nobody else waits for it
  }

  Moved fail_in_turn(const Error& error) {
    failure_ = error;
    fail_now();
    return {};
  }

  /// What was ordered of the port has been read.
  void handle_read() override {
    const auto keep = shared_from_this();
    if (!reading_ || state_ != State::kOpen) return;
    reading_ = false;
    StreamPort::Read got = std::move(port_->read());
    context_.downlink.settle(receiver_, got.bytes, false);
    charge_overhead(context_.downlink, overhead_received_, got.wire_bytes, got.bytes);
    for (StreamPort::Read::Frame& frame : got.frames) {
      add_arrived(std::move(frame));
      if (state_ != State::kOpen) return;
    }
    if (got.malformed) return handle_malformed(*got.malformed, got.peer_encrypts);
    if (got.error) ended_ = got.error;
    if (got.ended) ended_ = end_of_stream();
    if (got.budget_bytes > 0) take_budget(got.budget_bytes);
    const bool all_read = !may_read() || (got.drained && reads_what_is_left_);
    if (broken_ && !ended_ && all_read) return void(fail_in_turn(*broken_));
    watch_timeout();
    if (!may_read()) return;
    // A limited downlink gives turns to those who have something to read.
    got.drained && !ended_ && !broken_ && context_.downlink.rate().limited() ? wait_to_read() : request_read();
  }

  /// The uplink's turn.
  Moved send(std::size_t bytes_max) {
    const auto keep = shared_from_this();
    if (state_ != State::kOpen || writing_ || broken_ || chunks_.empty()) return {};
    order_write(bytes_max);
    return {.bytes = chunk_bytes_writing_, .under_way = true};
  }

  /// What was ordered of the port has been written, or as much as the stream took.
  void handle_write() override {
    const auto keep = shared_from_this();
    if (!writing_ || state_ != State::kOpen) return;  // handle_returned() takes it
    writing_ = false;
    const StreamPort::Write put = std::move(port_->write());
    charge_overhead(context_.uplink, overhead_sent_, put.wire_bytes, put.bytes);
    handle_written(put.bytes, !put.blocked && !put.error);
    if (state_ != State::kOpen) return;
    if (put.error) return handle_broken(*put.error);
    if (put.blocked) {
      writing_ = true;
      return port_->order_write({.pieces = {}, .frame_ends = {}, .waits = true});
    }
    write_more();
  }

  /// The stream is here again, and not open any more.
  void handle_returned() override {
    const auto keep = shared_from_this();
    reading_ = false;
    port_->read() = {};
    if (std::exchange(writing_, false)) {
      if (port_->write().error) failure_ = port_->write().error;
      handle_written(port_->write().bytes, false);
    }
    if (state_ == State::kClosed || failure_) return shut();
    if (says_nothing_) {
      control_.clear();
      chunks_.clear();
    }
    chunks_.resize(control_.empty() || !chunk_begun() ? 0 : 1);
    watch_stream();
    control_turn_.schedule();
  }

  // --- the handshake of an encrypted stream ---

  void shake_hands() {
    Stream& stream = port_->stream();
    const Result<bool> done = stream.handshake();
    if (!done.has_value()) {
      failure_ = done.error();
      if (stream.peer_is_plain()) say_plainly("this node encrypts its connections; start yours with --keys");
      return fail_with_last_words();
    }
    if (!*done) return stream.watch(true, stream.holds_output());
    timeout_.disarm();
    stream.detach();
    last_progress_ = last_moved_ = context_.loop.now();
    open();
    // The peer's first frames may have come with the last of the handshake: the socket will not tell of them.
    if (may_read()) request_read();
    // It may set other handlers.
    if (const auto on_peer = std::exchange(handlers_.on_peer, nullptr)) on_peer();
  }

  /// Frames may come and go. The stream goes where they are moved.
  void open() {
    state_ = State::kOpen;
    self_ = shared_from_this();
    port_->open(context_.io != nullptr ? context_.io->take_seat() : nullptr);
    watch_timeout();
    if (!control_.empty() || !chunks_.empty()) control_turn_.schedule();
  }

  /// Until there is something to read.
  void wait_to_read() {
    reading_ = true;
    port_->order_read({.bytes_max = 0, .waits = true});
  }

  void watch_stream() {
    port_->stream().attach(context_.loop, [this](FdWatch::Ready) { handle_ready(); });
  }

  void say_plainly(std::string_view reason) {
    const std::string frame = plain_bye(reason);
    port_->stream().say_plainly(std::as_bytes(std::span(frame)));
  }

  /// A frame for a peer that cannot read what this end would say otherwise.
  static std::string plain_bye(std::string_view reason) {
    wire::Message message;
    message.mutable_bye()->set_code(static_cast<std::uint32_t>(Errc::kNotAllowed));
    message.mutable_bye()->set_reason(std::string(reason));
    const std::string body = message.SerializeAsString();
    const FrameHeaderBytes header =
        encode_frame_header({.type = FrameType::kControl, .body_bytes = static_cast<std::uint32_t>(body.size())});
    return std::string(reinterpret_cast<const char*>(header.data()), header.size()) + body;
  }

  /// What a record adds counts, too. Of records that have been read ahead it may be counted before their bytes are.
  static void charge_overhead(Pacer& pacer, std::int64_t& owed, std::size_t wire_bytes, std::size_t bytes) {
    owed += static_cast<std::int64_t>(wire_bytes) - static_cast<std::int64_t>(bytes);
    if (owed <= 0) return;
    pacer.charge(static_cast<std::size_t>(owed));
    owed = 0;
  }

  // --- receiving ---

  [[nodiscard]] bool may_send() const { return state_ == State::kOpen || state_ == State::kShakingHands; }

  [[nodiscard]] bool may_read() const { return !reading_paused_ && !budget_share_.waiting() && !arrived_.full(); }

  void request_read() {
    if (reading_ || read_requested_) return;
    read_requested_ = true;
    context_.downlink.request(receiver_);
  }

  void add_arrived(StreamPort::Read::Frame frame) {
    budget_share_.give_back();
    if (auto* chunk = std::get_if<ReceivedChunk>(&frame.frame)) {
      frame.hashed ? arrived_.add_hashed(std::move(*chunk)) : arrived_.add_unhashed(std::move(*chunk));
    } else {
      arrived_.add(std::get<std::string>(std::move(frame.frame)));
    }
    deliver(broken_ ? Missing::kHashHere : Missing::kWait);
  }

  void handle_malformed(const Error& error, bool peer_encrypts) {
    deliver(Missing::kHashHere);
    if (state_ != State::kOpen) return;
    failure_ = fail(error.code, error.op, fmt::format("from {}: {}", peer_host_, error.detail));
    if (!peer_encrypts) return fail_now();
    say_plainly("this node has no keys, and does not encrypt");
    fail_with_last_words();
  }

  /// Hands over what has arrived, in its order, up to a chunk whose digest is missing.
  void deliver(Missing missing) {
    while (state_ == State::kOpen && !reading_paused_) {
      std::optional<ArrivedFrames::Frame> frame = arrived_.take(missing);
      if (!frame) return;
      if (auto* chunk = std::get_if<ReceivedChunk>(&*frame)) {
        handlers_.on_chunk(std::move(*chunk));
      } else if (const Status status = handlers_.on_control(std::get<std::string>(std::move(*frame))); !status) {
        failure_ = status.error();
        return fail_now();
      }
    }
  }

  /// Nothing of a large body is read before there is memory for it. What came with the header has found its place.
  void take_budget(std::size_t bytes) {
    if (budget_ == nullptr || budget_share_.taken() || budget_share_.waiting()) return;
    if (budget_share_.take(*budget_, bytes, budget_holder_)) budget_taken_at_ = context_.loop.now();
  }

  [[nodiscard]] Error end_of_stream() const {
    if (!port_->frame_begun())
      return fail(Errc::kClosed, Op::kReceive, fmt::format("from {}: the peer closed", peer_host_));
    return fail(Errc::kIo, Op::kReceive, fmt::format("from {}: the stream ended inside a frame", peer_host_));
  }

  /// Of the frame that is arriving.
  [[nodiscard]] Instant last_progress() const { return std::max(last_progress_, port_->last_read()); }
  /// Of anything, either way.
  [[nodiscard]] Instant last_moved() const { return std::max({last_moved_, port_->last_read(), port_->last_write()}); }

  void watch_timeout() {
    // Not armed anew per read: when it is due, handle_timeout() looks at what has come meanwhile.
    if (!may_read()) return;
    const SocketOptions& bounds = context_.socket;
    // While a read is under way, a frame may begin at any time, and nobody tells: then the timer looks.
    const Instant body_begun = port_->frame_begun() ? last_progress() : context_.loop.now();
    Instant due = body_begun + bounds.body_timeout;
    if (bounds.idle_timeout > Duration{}) due = std::min(due, last_moved() + bounds.idle_timeout);
    if (timeout_.armed() && timeout_due_ <= due) return;
    timeout_.arm(due);
    timeout_due_ = due;
  }

  // --- sending ---

  void refuse_to_send(std::string_view what, std::size_t bytes, std::size_t bytes_max) {
    failure_ = fail(Errc::kTooLarge, Op::kSend,
                    fmt::format("to {}: {} of {} bytes, at most {} can be sent", peer_host_, what, bytes, bytes_max));
    control_turn_.schedule();
  }

  [[nodiscard]] bool chunk_begun() const { return !chunks_.empty() && chunks_.front().sent_bytes > 0; }

  /// Goes on with what waits to be sent: messages at once, chunks in their turn.
  void write_more() {
    if (state_ != State::kOpen || writing_ || broken_) return;
    if (!control_.empty() && !chunk_begun()) return order_write(0);
    if (!chunks_.empty()) context_.uplink.request(sender_);
  }

  /// Frames in the order in which they go out: one that has begun, then control messages, then chunks.
  [[nodiscard]] std::vector<OutgoingFrame*>& next_frames(std::size_t chunk_bytes_max) {
    next_.clear();
    auto chunk = chunks_.begin();
    const auto add_chunk = [&] {
      chunk_bytes_max -= std::min(chunk_bytes_max, chunk->bytes_left());
      next_.push_back(&*chunk++);
    };
    if (chunk_begun()) {
      const bool ends = chunk->bytes_left() <= chunk_bytes_max;
      if (chunk_bytes_max > 0) add_chunk();
      if (!ends) return next_;
    }
    std::size_t control_bytes = 0;
    for (OutgoingFrame& frame : control_) {
      if (next_.size() == kFramesPerWrite || control_bytes >= kControlBytesPerWrite) return next_;
      control_bytes += frame.bytes_left();
      next_.push_back(&frame);
    }
    while (chunk != chunks_.end() && next_.size() < kFramesPerWrite && chunk_bytes_max > 0) add_chunk();
    return next_;
  }

  /// Frames to write, with at most `chunk_bytes_max` bytes of chunks. Says how many of those there are.
  StreamPort::Write next_write(std::size_t chunk_bytes_max) {
    StreamPort::Write order;
    std::size_t bytes = 0;
    chunk_bytes_writing_ = 0;
    for (const OutgoingFrame* frame : next_frames(chunk_bytes_max)) {
      const std::size_t header_bytes = frame->header.size();
      const auto add = [&](Bytes part) {
        if (frame->buffer) {
          part = part.first(std::min(part.size(), chunk_bytes_max - chunk_bytes_writing_));
          chunk_bytes_writing_ += part.size();
        }
        if (!part.empty()) order.pieces.push_back(piece(part));
        bytes += part.size();
      };
      if (frame->sent_bytes < header_bytes) add(Bytes(frame->header).subspan(frame->sent_bytes));
      add(frame->body().subspan(std::max(frame->sent_bytes, header_bytes) - header_bytes));
      order.frame_ends.push_back(bytes);
    }
    return order;
  }

  /// Messages wait for the stream, as nothing else can. Chunks do not: a turn is for what moves now.
  void order_write(std::size_t chunk_bytes_max) {
    writing_ = true;
    StreamPort::Write order = next_write(chunk_bytes_max);
    order.waits = chunk_bytes_max == 0;
    port_->order_write(std::move(order));
  }

  /// So many bytes of next_write() have left.
  void handle_written(std::size_t bytes, bool may_go_on) {
    std::size_t chunk_bytes = 0;
    std::size_t control_bytes = 0;
    std::vector<std::function<void()>> sent;
    for (OutgoingFrame* frame : next_) {
      const std::size_t of_frame = std::min(bytes, frame->bytes_left());
      frame->sent_bytes += of_frame;
      bytes -= of_frame;
      const bool done = frame->bytes_left() == 0;
      if (frame->buffer) {
        chunk_bytes += of_frame;
        if (done) sent.push_back(std::move(frame->on_sent));
      } else {
        control_bytes += of_frame;
      }
      if (!done) break;
    }
    while (!control_.empty() && control_.front().bytes_left() == 0) {
      control_memory_bytes_ -= control_.front().memory_bytes();
      control_.pop_front();
    }
    while (!chunks_.empty() && chunks_.front().bytes_left() == 0) chunks_.pop_front();
    control_bytes_ -= control_bytes;
    next_.clear();
    chunk_bytes_writing_ = 0;
    if (state_ != State::kOpen) return;
    context_.uplink.settle(sender_, chunk_bytes, may_go_on && !chunks_.empty());
    if (control_bytes > 0) context_.uplink.charge(control_bytes);
    if (control_bytes > 0 && control_.empty() && handlers_.on_control_sent) handlers_.on_control_sent();
    for (const auto& on_sent : sent) {
      if (on_sent && state_ == State::kOpen) on_sent();
    }
  }

  // --- the end ---

  /// Nothing more can be written, or watched. What the peer said before it went is read first, and why it went.
  void handle_broken(const Error& error) {
    if (reading_paused_) {
      failure_ = error;
      control_turn_.schedule();
      return;
    }
    broken_ = error;
    if (reading_) return port_->stop_waiting();
    request_read();
  }

  void begin_flush() {
    state_ = State::kFlushing;
    arrived_.clear();
    self_ = shared_from_this();
    timeout_.arm(context_.loop.now() + FrameConnection::kFlushTimeout);
    if (port_->is_out()) return recall();
    control_turn_.schedule();
  }

  /// As fail_now(), but what has just been said still arrives: an end that closes while bytes wait to be read takes it
  /// back.
  void fail_with_last_words() {
    if (!may_send()) return;
    const Error error = *failure_;
    failure_.reset();
    leave_pacers();
    budget_share_.give_back();
    says_nothing_ = true;
    if (!port_->is_out()) {
      control_.clear();
      chunks_.clear();
    }
    begin_flush();
    handlers_.on_closed(error);
  }

  void flush() {
    if (port_->is_out()) return;  // it comes back
    Stream& stream = port_->stream();
    while (!(control_.empty() && chunks_.empty() && !stream.holds_output())) {
      StreamPort::Write order = next_write(chunks_.empty() ? 0 : chunks_.front().bytes_left());
      const std::size_t asked = order.frame_ends.empty() ? 0 : order.frame_ends.back();
      const Result<Stream::Moved> put = stream.write(order.pieces);
      if (!put.has_value()) return shut();
      port_->count_sent(put->bytes);
      handle_written(put->bytes, false);
      if (put->bytes < asked || stream.holds_output()) return stream.watch(false, true);
    }
    // The peer's own bytes are read until it ends, too: closing before that would make the kernel throw away what we
    // have just sent.
    if (!std::exchange(writing_ended_, true)) {
      stream.end_writing();
      stream.set_low_water(1);
    }
    stream.watch(true, false);
    std::array<std::byte, 16 * kKiB> scratch;
    for (;;) {
      std::size_t got = 0;
      if (!stream.discard(scratch, got) || discarded_bytes_ > kDiscardBytesMax) return shut();
      if (got == 0) return;
      discarded_bytes_ += got;
    }
  }

  void fail_now() {
    if (!may_send()) return;
    const Error error = *failure_;
    shut();
    handlers_.on_closed(error);
  }

  void leave_pacers() {
    context_.uplink.forget(sender_);
    context_.downlink.forget(receiver_);
  }

  void shut() {
    if (may_send()) leave_pacers();
    state_ = State::kClosed;
    budget_share_.give_back();
    arrived_.clear();
    timeout_.disarm();
    if (port_->is_out()) return recall();
    port_->stream().close();
    token_.reset();
    self_.reset();
  }

  void recall() {
    if (!std::exchange(recalled_, true)) port_->recall();
  }

  ConnectionContext context_;
  std::string peer_host_;
  FrameConnection::Handlers handlers_;
  State state_ = State::kOpen;
  std::optional<Error> failure_;
  const std::shared_ptr<StreamPort> port_;
  std::optional<Error> broken_;  // of writing; told if the read has nothing better to tell
  std::optional<Error> ended_;   // of reading; told when all that came before has been delivered

  ArrivedFrames arrived_;
  bool read_requested_ = false;
  bool reading_ = false;             // the port has an order
  bool reads_what_is_left_ = false;  // ... since writing failed
  bool reading_paused_ = false;
  Instant last_progress_{};  // of the frame that is arriving
  Instant last_moved_{};     // anything, either way
  ReceiveBudget* budget_ = nullptr;
  std::shared_ptr<ReceiveBudget::Holder> budget_holder_;
  Instant budget_taken_at_{};
  std::int64_t overhead_received_ = 0;  // on the wire beyond the bytes of frames, not charged yet

  std::deque<OutgoingFrame> control_;
  std::deque<OutgoingFrame> chunks_;
  std::vector<OutgoingFrame*> next_;
  std::size_t control_bytes_ = 0;
  std::size_t control_memory_bytes_ = 0;
  bool writing_ = false;                 // the port has an order
  std::size_t chunk_bytes_writing_ = 0;  // of next_write()
  std::int64_t overhead_sent_ = 0;

  bool says_nothing_ = false;  // while flushing: nothing but what has been said
  bool recalled_ = false;
  bool writing_ended_ = false;
  std::size_t discarded_bytes_ = 0;

  Deferred control_turn_;
  Instant timeout_due_{};  // while it is armed
  Timer timeout_;          // of a frame that has begun, or of idleness; while flushing, of the flush
  Receiver receiver_;
  Sender sender_;
  ReceiveBudget::Share budget_share_;
  std::shared_ptr<void> token_;
  std::shared_ptr<Connection> self_;  // while the stream is open, and while flushing
};

/// The owner's end of a Connection.
class OwnedConnection final : public FrameConnection {
 public:
  explicit OwnedConnection(std::shared_ptr<Connection> connection) : connection_(std::move(connection)) {}
  ~OwnedConnection() override { connection_->handle_dropped(); }
  OwnedConnection(const OwnedConnection&) = delete;
  OwnedConnection& operator=(const OwnedConnection&) = delete;

  void set_handlers(Handlers handlers) override { connection_->set_handlers(std::move(handlers)); }
  void set_receive_limits(const ReceiveLimits& limits) override { connection_->set_receive_limits(limits); }
  void set_uplink_share(std::shared_ptr<Pacer::Share> share) override {
    connection_->set_uplink_share(std::move(share));
  }
  void keep_while_open(std::shared_ptr<void> token) override { connection_->keep_while_open(std::move(token)); }
  void send_control(std::string body) override { connection_->send_control(std::move(body)); }
  void send_chunk(PayloadId payload, ChunkIndex chunk, BufferRef bytes, std::function<void()> on_sent) override {
    connection_->send_chunk(payload, chunk, std::move(bytes), std::move(on_sent));
  }
  void close() override { connection_->close(); }
  void pause_reading() override { connection_->pause_reading(); }
  void resume_reading() override { connection_->resume_reading(); }
  [[nodiscard]] UniqueFd take_descriptor() override { return connection_->take_descriptor(); }
  [[nodiscard]] bool awaits_peer() const override { return connection_->awaits_peer(); }
  [[nodiscard]] std::optional<PeerIdentity> peer() const override { return connection_->peer(); }
  [[nodiscard]] std::string peer_host() const override { return connection_->peer_host(); }
  [[nodiscard]] std::uint64_t bytes_received() const override { return connection_->bytes_received(); }
  [[nodiscard]] std::uint64_t bytes_sent() const override { return connection_->bytes_sent(); }

 private:
  std::shared_ptr<Connection> connection_;
};

}  // namespace

std::unique_ptr<FrameConnection> FrameConnection::over(const ConnectionContext& context, UniqueFd socket,
                                                       std::string peer_host, std::unique_ptr<TlsSession> tls) {
  const auto made = std::make_shared<Connection>(context, std::move(socket), std::move(peer_host), std::move(tls));
  made->start();
  return std::make_unique<OwnedConnection>(made);
}

}  // namespace weightcast
