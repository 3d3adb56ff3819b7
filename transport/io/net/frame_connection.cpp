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
#include "transport/io/net/stream.h"

namespace weightcast {
namespace {

// A wake-up per so many bytes of a chunk: enough that waking is cheap beside copying, and little beside a socket's
// receive buffer, so that the sender never runs into a closed window while the reader sleeps.
constexpr std::size_t kLowWaterBytesMax = 64 * kKiB;
// Frames that one system call may send.
constexpr std::size_t kFramesPerWrite = 8;
// What an encrypted stream may have read of a record that has not come whole.
constexpr std::size_t kReadAheadBytesMax = TlsSession::kRecordBytesMax + kKiB;
// What a peer may still send after our end, before it hears of it.
constexpr std::size_t kDiscardBytesMax = 4 * kMiB;

iovec piece(Bytes bytes) { return {.iov_base = const_cast<std::byte*>(bytes.data()), .iov_len = bytes.size()}; }

std::size_t total_bytes(std::span<const iovec> pieces) {
  std::size_t bytes = 0;
  for (const iovec& p : pieces) bytes += p.iov_len;
  return bytes;
}

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

/// What a connection is made of. It outlives its FrameConnection for as long as it flushes, and, kept alive by each of
/// its entry points, until a handler that destroyed its FrameConnection has returned.
class Connection : public std::enable_shared_from_this<Connection> {
 public:
  Connection(const ConnectionContext& context, UniqueFd socket, std::string peer_host, std::unique_ptr<TlsSession> tls)
      : context_(context),
        peer_host_(std::move(peer_host)),
        stream_(context.loop, std::move(socket), peer_host_, std::move(tls),
                [this](FdWatch::Ready ready) { handle_ready(ready); }),
        incoming_(context.buffers,
                  context.hashing != nullptr ? ArrivedFrames::kHashedApartBytesMin : std::size_t{SIZE_MAX}),
        arrived_(context.hashing, [this] { handle_deliverable(); }),
        control_turn_(context.loop, [this] { handle_control_turn(); }),
        timeout_(context.loop, [this] { handle_timeout(); }),
        receiver_(*this),
        sender_(*this),
        budget_share_([this] { handle_budget(); }) {
    stream_.watch(true, false);
    last_progress_ = last_moved_ = context_.loop.now();
    if (!stream_.is_encrypted()) {
      watch_timeout();
    } else {
      state_ = State::kShakingHands;
      timeout_.arm(last_moved_ + context_.socket.handshake_timeout);
      control_turn_.schedule();
    }
  }

  void set_handlers(FrameConnection::Handlers handlers) {
    WC_CHECK(handlers.on_control && handlers.on_chunk && handlers.on_closed);
    handlers_ = std::move(handlers);
  }

  void set_receive_limits(const ReceiveLimits& limits) {
    budget_ = limits.budget;
    budget_holder_ = limits.holder;
    incoming_.set_limits(limits);
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
    if (state_ == State::kOpen && !write_blocked_) context_.uplink.request(sender_);
  }

  void close() {
    if (!may_send()) return;
    // Before the handshake is done, nothing can be said.
    if (failure_ || state_ == State::kShakingHands) return shut();
    // The last moment at which the pacers and the budget are certain to be there.
    leave_pacers();
    budget_share_.give_back();
    chunks_.resize(control_.empty() || !chunk_begun() ? 0 : 1);
    for (OutgoingFrame& frame : chunks_) frame.on_sent = {};
    context_.uplink.charge(control_bytes_ + (chunks_.empty() ? 0 : chunks_.front().bytes_left()));
    begin_flush();
  }

  /// The FrameConnection goes away.
  void handle_dropped() {
    if (may_send()) shut();
  }

  void pause_reading() { reading_paused_ = true; }

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

  [[nodiscard]] UniqueFd take_descriptor() { return stream_.take_descriptor(); }
  [[nodiscard]] const std::string& peer_host() const { return peer_host_; }
  [[nodiscard]] bool awaits_peer() const { return state_ == State::kShakingHands; }
  [[nodiscard]] std::optional<PeerIdentity> peer() const { return stream_.peer(); }
  [[nodiscard]] std::uint64_t bytes_received() const { return bytes_received_; }
  [[nodiscard]] std::uint64_t bytes_sent() const { return bytes_sent_; }

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

  void handle_ready(FdWatch::Ready ready) {
    const auto keep = shared_from_this();
    if (state_ == State::kFlushing) return flush();
    if (state_ == State::kShakingHands) return shake_hands();
    if (ready.failed) {
      return handle_broken(fail(Errc::kIo, Op::kReceive, fmt::format("from {}: the connection broke", peer_host_)));
    }
    if (ready.readable) {
      // Ready again although a turn has been asked for, or reading is paused: stop looking until then.
      if (read_requested_ || !may_read()) {
        watch_reads_ = false;
      } else {
        request_read();
      }
    }
    if (ready.writable && (!stream_.holds_output() || write_held_output())) {
      if (std::exchange(write_blocked_, false)) {
        control_turn_.schedule();
        if (!chunks_.empty()) context_.uplink.request(sender_);
      } else {
        watch_writes_ = false;
      }
    }
    watch();
  }

  void handle_control_turn() {
    const auto keep = shared_from_this();
    if (state_ == State::kFlushing) return flush();
    if (failure_) return fail_now();
    if (state_ == State::kShakingHands) return shake_hands();
    write_control();
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
    if (!reading_paused_) request_read();
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
    if (incoming_.begun() && stream_.bytes_waiting() > 0) {
      // The peer sends; it is the low-water mark or the downlink's turn that these bytes wait for.
      stream_.set_low_water(1);
      last_progress_ = last_moved_ = now;
    }
    const SocketOptions& bounds = context_.socket;
    if (incoming_.begun() && now - last_progress_ >= bounds.body_timeout) {
      return fail_timed_out("a frame began, but its rest did not come", bounds.body_timeout);
    }
    if (budget_share_.taken() && now - budget_taken_at_ >= ReceiveLimits::kBudgetHoldTimeout) {
      return fail_timed_out("a frame has been coming", ReceiveLimits::kBudgetHoldTimeout);
    }
    if (bounds.idle_timeout > Duration{} && now - last_moved_ >= bounds.idle_timeout) {
      return fail_timed_out("nothing came or went", bounds.idle_timeout);
    }
    watch_timeout();
  }

  /// The downlink's turn.
  Moved receive(std::size_t bytes_max) {
    const auto keep = shared_from_this();
    Moved moved;
    if (broken_) deliver(Missing::kHashHere);
    while (state_ == State::kOpen && may_read() && moved.bytes < bytes_max) {
      const std::span<iovec> space = incoming_.space(bytes_max - moved.bytes);
      const std::size_t asked = total_bytes(space);
      const Result<Stream::Moved> got = stream_.read(space);
      if (!got || got->ended) {
        deliver(Missing::kHashHere);
        if (!may_read()) break;  // a handler has paused reading: the end is read again afterwards
        if (state_ != State::kOpen) return moved;
        failure_ = got ? end_of_stream() : got.error();
        fail_now();
        return moved;
      }
      charge_overhead(context_.downlink, overhead_received_, got->wire_bytes, got->bytes);
      if (got->bytes == 0) break;
      moved.bytes += got->bytes;
      bytes_received_ += got->bytes;
      handle_bytes(got->bytes);
      if (got->bytes < asked) break;
    }
    if (state_ != State::kOpen) return moved;
    if (moved.bytes > 0) last_progress_ = last_moved_ = context_.loop.now();
    if (moved.bytes == bytes_max && may_read()) return {moved.bytes, true};
    read_requested_ = false;
    if (broken_) {
      failure_ = broken_;
      fail_now();
      return moved;
    }
    // Reading may have made answers, of encryption's own.
    if (stream_.holds_output()) write_blocked_ = watch_writes_ = true;
    set_low_water();
    watch_timeout();
    watch_reads_ = may_read();
    watch();
    return moved;
  }

  /// The uplink's turn.
  Moved send(std::size_t bytes_max) {
    const auto keep = shared_from_this();
    Moved moved;
    while (state_ == State::kOpen && !write_blocked_ && !chunks_.empty() && moved.bytes < bytes_max) {
      moved.bytes += write(bytes_max - moved.bytes);
    }
    moved.wants_more = state_ == State::kOpen && !write_blocked_ && !chunks_.empty() && moved.bytes > 0;
    return moved;
  }

  // --- the handshake of an encrypted stream ---

  void shake_hands() {
    const Result<bool> done = stream_.handshake();
    if (!done.has_value()) {
      failure_ = done.error();
      if (stream_.peer_is_plain()) say_plainly("this node encrypts its connections; start yours with --keys");
      return fail_with_last_words();
    }
    watch_reads_ = true;
    watch_writes_ = write_blocked_ = stream_.holds_output();
    if (!*done) return stream_.watch(watch_reads_, watch_writes_);
    state_ = State::kOpen;
    timeout_.disarm();
    last_progress_ = last_moved_ = context_.loop.now();
    watch_timeout();
    watch();
    // It may set other handlers.
    if (const auto on_peer = std::exchange(handlers_.on_peer, nullptr)) on_peer();
    if (state_ != State::kOpen) return;
    if (!control_.empty()) control_turn_.schedule();
    if (!chunks_.empty() && !write_blocked_) context_.uplink.request(sender_);
    // The peer's first frames may have come with the last of the handshake: the socket will not tell of them.
    if (may_read()) request_read();
  }

  void say_plainly(std::string_view reason) {
    const std::string frame = plain_bye(reason);
    stream_.say_plainly(std::as_bytes(std::span(frame)));
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
    read_requested_ = true;
    context_.downlink.request(receiver_);
  }

  void handle_bytes(std::size_t bytes) {
    do {
      const Result<std::size_t> left = incoming_.take(bytes);
      if (!left) {
        deliver(Missing::kHashHere);
        if (state_ != State::kOpen) return;
        failure_ =
            fail(left.error().code, left.error().op, fmt::format("from {}: {}", peer_host_, left.error().detail));
        if (!incoming_.peer_encrypts()) return fail_now();
        say_plainly("this node has no keys, and does not encrypt");
        return fail_with_last_words();
      }
      bytes = *left;
      if (!incoming_.complete()) {
        take_budget();
        continue;
      }
      budget_share_.give_back();
      if (!incoming_.is_chunk()) {
        arrived_.add(incoming_.take_control());
      } else if (incoming_.hashes_chunk()) {
        arrived_.add_hashed(incoming_.take_chunk());
      } else {
        arrived_.add_unhashed(incoming_.take_chunk());
      }
      deliver(broken_ ? Missing::kHashHere : Missing::kWait);
    } while (bytes > 0 && state_ == State::kOpen);
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
  void take_budget() {
    if (budget_ == nullptr || budget_share_.taken() || budget_share_.waiting()) return;
    const std::size_t bytes = incoming_.body_bytes_left();
    if (bytes > ReceiveLimits::kFreeFrameBytes && budget_share_.take(*budget_, bytes, budget_holder_)) {
      budget_taken_at_ = context_.loop.now();
    }
  }

  [[nodiscard]] Error end_of_stream() const {
    if (!incoming_.begun())
      return fail(Errc::kClosed, Op::kReceive, fmt::format("from {}: the peer closed", peer_host_));
    return fail(Errc::kIo, Op::kReceive, fmt::format("from {}: the stream ended inside a frame", peer_host_));
  }

  void set_low_water() {
    // With a limit the reader sleeps for its turns, not for packets.
    if (context_.downlink.rate().limited()) return;
    // Of what is left, an encrypted stream may have the beginning of a record already.
    const std::size_t read_ahead = stream_.is_encrypted() ? kReadAheadBytesMax : 0;
    const std::size_t left = incoming_.body_bytes_left() - std::min(incoming_.body_bytes_left(), read_ahead);
    const std::size_t wanted = std::clamp<std::size_t>(left, 1, kLowWaterBytesMax);
    // Lowering is a must, for more may not come; raising is worth a system call if it saves some wake-ups.
    if (wanted < stream_.low_water() || wanted >= 4 * stream_.low_water()) stream_.set_low_water(wanted);
  }

  void watch_timeout() {
    // Not armed anew per read: when it is due, handle_timeout() looks at what has come meanwhile.
    if (!may_read()) return;
    const SocketOptions& bounds = context_.socket;
    std::optional<Instant> due;
    if (bounds.idle_timeout > Duration{}) due = last_moved_ + bounds.idle_timeout;
    if (incoming_.begun()) due = std::min(due.value_or(Instant::max()), last_progress_ + bounds.body_timeout);
    if (!due || (timeout_.armed() && timeout_due_ <= *due)) return;
    timeout_.arm(*due);
    timeout_due_ = *due;
  }

  // --- sending ---

  void refuse_to_send(std::string_view what, std::size_t bytes, std::size_t bytes_max) {
    failure_ = fail(Errc::kTooLarge, Op::kSend,
                    fmt::format("to {}: {} of {} bytes, at most {} can be sent", peer_host_, what, bytes, bytes_max));
    control_turn_.schedule();
  }

  [[nodiscard]] bool chunk_begun() const { return !chunks_.empty() && chunks_.front().sent_bytes > 0; }

  void write_control() {
    while (state_ == State::kOpen && !write_blocked_ && !control_.empty() && !chunk_begun()) write(0);
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
    for (OutgoingFrame& frame : control_) {
      if (next_.size() == kFramesPerWrite) return next_;
      next_.push_back(&frame);
    }
    while (chunk != chunks_.end() && next_.size() < kFramesPerWrite && chunk_bytes_max > 0) add_chunk();
    return next_;
  }

  /// Writes frames, at most `chunk_bytes_max` bytes of chunks; returns how many of those it wrote. Control bytes are
  /// charged here.
  std::size_t write(std::size_t chunk_bytes_max) {
    std::array<iovec, 2 * kFramesPerWrite> pieces;
    std::size_t count = 0;
    std::size_t allowed = chunk_bytes_max;
    for (const OutgoingFrame* frame : next_frames(chunk_bytes_max)) {
      const std::size_t header_bytes = frame->header.size();
      const bool free = !frame->buffer;
      const auto add = [&](Bytes bytes) {
        if (!free) {
          bytes = bytes.first(std::min(bytes.size(), allowed));
          allowed -= bytes.size();
        }
        if (!bytes.empty()) pieces[count++] = piece(bytes);
      };
      if (frame->sent_bytes < header_bytes) add(Bytes(frame->header).subspan(frame->sent_bytes));
      add(frame->body().subspan(std::max(frame->sent_bytes, header_bytes) - header_bytes));
    }
    const std::span<iovec> out = std::span(pieces).first(count);
    const Result<Stream::Moved> put = stream_.write(out);
    if (!put) {
      write_blocked_ = true;
      if (state_ == State::kFlushing) failure_ = put.error();
      if (state_ == State::kOpen) handle_broken(put.error());
      return 0;
    }
    bytes_sent_ += put->bytes;
    // A connection that flushes has left the pacers, and paid before.
    if (state_ == State::kOpen) charge_overhead(context_.uplink, overhead_sent_, put->wire_bytes, put->bytes);
    if (put->bytes < total_bytes(out) || stream_.holds_output()) {
      write_blocked_ = true;
      watch_writes_ = true;
      watch();
    }
    return handle_written(put->bytes);
  }

  /// Hands the socket what an encrypted stream holds. Returns whether it took all of it.
  bool write_held_output() {
    const Result<Stream::Moved> put = stream_.write({});
    if (!put.has_value()) {
      handle_broken(put.error());
      return false;
    }
    charge_overhead(context_.uplink, overhead_sent_, put->wire_bytes, 0);
    if (stream_.holds_output()) return false;
    last_moved_ = context_.loop.now();
    return true;
  }

  std::size_t handle_written(std::size_t bytes) {
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
    if (state_ != State::kOpen) return chunk_bytes;
    if (control_bytes + chunk_bytes > 0) last_moved_ = context_.loop.now();
    if (control_bytes > 0) context_.uplink.charge(control_bytes);
    if (control_bytes > 0 && control_.empty() && handlers_.on_control_sent) handlers_.on_control_sent();
    for (const auto& on_sent : sent) {
      if (on_sent && state_ == State::kOpen) on_sent();
    }
    return chunk_bytes;
  }

  // --- the end ---

  /// Nothing more can be written, or watched. What the peer said before it went is read first, and why it went.
  void handle_broken(const Error& error) {
    write_blocked_ = true;
    watch_writes_ = false;
    if (reading_paused_) {
      failure_ = error;
      control_turn_.schedule();
      return;
    }
    broken_ = error;
    request_read();
  }

  void begin_flush() {
    state_ = State::kFlushing;
    arrived_.clear();
    self_ = shared_from_this();
    timeout_.arm(context_.loop.now() + FrameConnection::kFlushTimeout);
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
    control_.clear();
    chunks_.clear();
    begin_flush();
    handlers_.on_closed(error);
  }

  void flush() {
    while (state_ == State::kFlushing && !(control_.empty() && chunks_.empty() && !stream_.holds_output())) {
      write_blocked_ = false;
      write(chunks_.empty() ? 0 : chunks_.front().bytes_left());
      if (failure_) return shut();
      if (write_blocked_) return stream_.watch(false, true);
    }
    // The peer's own bytes are read until it ends, too: closing before that would make the kernel throw away what we
    // have just sent.
    if (!std::exchange(writing_ended_, true)) {
      stream_.end_writing();
      stream_.set_low_water(1);
    }
    stream_.watch(true, false);
    std::array<std::byte, 16 * kKiB> scratch;
    for (;;) {
      std::size_t got = 0;
      if (!stream_.discard(scratch, got) || discarded_bytes_ > kDiscardBytesMax) return shut();
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
    stream_.close();
    token_.reset();
    self_.reset();
  }

  void watch() {
    if (state_ == State::kOpen) stream_.watch(watch_reads_, watch_writes_);
  }

  ConnectionContext context_;
  std::string peer_host_;
  FrameConnection::Handlers handlers_;
  State state_ = State::kOpen;
  std::optional<Error> failure_;
  Stream stream_;
  bool watch_reads_ = true;
  bool watch_writes_ = false;
  std::optional<Error> broken_;  // told if the read has nothing better to tell

  IncomingFrame incoming_;
  ArrivedFrames arrived_;
  bool read_requested_ = false;
  bool reading_paused_ = false;
  std::uint64_t bytes_received_ = 0;
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
  bool write_blocked_ = false;
  std::uint64_t bytes_sent_ = 0;
  std::int64_t overhead_sent_ = 0;

  bool writing_ended_ = false;
  std::size_t discarded_bytes_ = 0;

  Deferred control_turn_;
  Instant timeout_due_{};  // while it is armed
  Timer timeout_;          // of a frame that has begun, or of idleness; while flushing, of the flush
  Receiver receiver_;
  Sender sender_;
  ReceiveBudget::Share budget_share_;
  std::shared_ptr<void> token_;
  std::shared_ptr<Connection> self_;  // while flushing
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
  return std::make_unique<OwnedConnection>(
      std::make_shared<Connection>(context, std::move(socket), std::move(peer_host), std::move(tls)));
}

}  // namespace weightcast
