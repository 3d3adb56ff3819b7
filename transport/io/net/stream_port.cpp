#include "transport/io/net/stream_port.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

namespace weightcast {
namespace {

// A wake-up per so many bytes of a chunk: enough that waking is cheap beside copying, and little beside a socket's
// receive buffer, so that the sender never runs into a closed window while the reader sleeps.
constexpr std::size_t kLowWaterBytesMax = 64 * kKiB;
// What an encrypted stream may have read of a record that has not come whole.
constexpr std::size_t kReadAheadBytesMax = TlsSession::kRecordBytesMax + kKiB;

std::size_t total_bytes(std::span<const iovec> pieces) {
  std::size_t bytes = 0;
  for (const iovec& p : pieces) bytes += p.iov_len;
  return bytes;
}

}  // namespace

StreamPort::StreamPort(UvLoop& owner_loop, Owner& owner, BufferPool& buffers, std::size_t hashed_apart_bytes_min,
                       UniqueFd socket, std::string peer, std::unique_ptr<TlsSession> tls)
    : owner_loop_(owner_loop),
      owner_(&owner),
      io_loop_(&owner_loop),
      stream_(std::move(socket), std::move(peer), std::move(tls)),
      incoming_(buffers, hashed_apart_bytes_min) {}

// ---- the owner's thread

template <typename Act>
void StreamPort::tell(Act act) {
  if (!is_apart()) return act();
  io_loop_->post([self = shared_from_this(), act = std::move(act)]() mutable { act(); });
}

void StreamPort::answer(Answer what) {
  owner_loop_.post([self = shared_from_this(), what] {
    if (self->owner_ != nullptr) (self->owner_->*what)();
  });
}

void StreamPort::open(std::shared_ptr<const IoThreads::Seat> seat) {
  if (seat != nullptr) io_loop_ = seat->loop;
  seat_ = std::move(seat);
  out_ = true;
  if (is_apart()) owner_loop_.expect_posts(+1);
  tell([this] {
    here_ = true;
    // Nothing is watched, nor does anything come, unless this object is kept.
    stream_.attach(*io_loop_, [this](FdWatch::Ready ready) {
      const auto keep = shared_from_this();
      handle_ready(ready);
    });
    watch_writes_ = stream_.holds_output();
    watch();
  });
}

void StreamPort::recall() {
  tell([this] {
    here_ = reading_ = read_waits_ = writing_ = write_waits_ = false;
    stream_.detach();
    const auto take_back = [this] {
      if (is_apart()) owner_loop_.expect_posts(-1);
      out_ = false;
      seat_.reset();
      if (owner_ != nullptr) owner_->handle_returned();
    };
    if (!is_apart()) return take_back();
    owner_loop_.post([self = shared_from_this(), take_back] { take_back(); });
  });
}

void StreamPort::order_read(Read order) {
  read_ = std::move(order);
  tell([this] {
    if (!here_) return;
    reading_ = true;
    go_on_reading();
    watch();
  });
}

void StreamPort::order_write(Write order) {
  write_ = std::move(order);
  tell([this] {
    if (!here_) return;
    writing_ = true;
    was_blocked_ = false;
    go_on_writing();
    watch();
  });
}

void StreamPort::set_limits(const ReceiveLimits& limits) {
  const ReceiveLimits of_frames{.control_bytes_max = limits.control_bytes_max,
                                .chunk_bytes_max = limits.chunk_bytes_max};
  tell([this, of_frames, has_budget = limits.budget != nullptr] {
    incoming_.set_limits(of_frames);
    has_budget_ = has_budget;
  });
}

void StreamPort::stop_waiting() {
  tell([this] {
    if (!here_ || !read_waits_) return;
    read_.drained = true;
    end_read();
  });
}

void StreamPort::lower_low_water() {
  tell([this] {
    if (here_) stream_.set_low_water(1);
  });
}

// ---- where the stream is

void StreamPort::handle_ready(FdWatch::Ready ready) {
  if (ready.failed) {
    broke_ = fail(Errc::kIo, Op::kReceive, fmt::format("from {}: the connection broke", stream_.peer_host()));
    if (reading_) go_on_reading();
    if (writing_) go_on_writing();
    return;
  }
  if (ready.readable) {
    // Somebody asks for it later, or reading is paused: stop looking until then.
    read_waits_ ? go_on_reading() : void(watch_reads_ = false);
  }
  if (ready.writable) {
    if (write_waits_) {
      go_on_writing();
    } else if (stream_.holds_output()) {
      flush_held_output();
    } else {
      watch_writes_ = false;
    }
  }
  watch();
}

void StreamPort::go_on_reading() {
  if (broke_) {
    read_.error = broke_;
    return end_read();
  }
  if (read_.bytes_max == 0) return std::exchange(read_waits_, true) ? end_read() : void(watch_reads_ = true);
  read_waits_ = false;
  bool goes_on = left_over_bytes_ == 0 || take(std::exchange(left_over_bytes_, 0));
  while (goes_on && read_.bytes < read_.bytes_max) {
    const std::span<iovec> space = incoming_.space(read_.bytes_max - read_.bytes);
    const std::size_t asked = total_bytes(space);
    const Result<Stream::Moved> got = stream_.read(space);
    if (!got.has_value() || got->ended) {
      read_.ended = got.has_value();
      if (!got.has_value()) read_.error = got.error();
      return end_read();
    }
    read_.wire_bytes += got->wire_bytes;
    if (got->bytes > 0) {
      read_.bytes += got->bytes;
      bytes_received_.fetch_add(got->bytes, std::memory_order_relaxed);
      last_read_ns_.store(io_loop_->now().time_since_epoch().count(), std::memory_order_relaxed);
      goes_on = take(got->bytes);
    }
    if (!goes_on || got->bytes == asked) continue;
    if (read_.waits && read_.frames.empty()) return wait_to_read();
    read_.drained = true;
    break;
  }
  end_read();
}

bool StreamPort::take(std::size_t bytes) {
  do {
    const Result<std::size_t> left = incoming_.take(bytes);
    if (!left.has_value()) {
      read_.malformed = left.error();
      read_.peer_encrypts = incoming_.peer_encrypts();
      return false;
    }
    bytes = *left;
    if (!incoming_.complete()) {
      const bool is_large = incoming_.body_bytes_left() > ReceiveLimits::kFreeFrameBytes;
      if (!has_budget_ || read_.budget_taken || !is_large) continue;
      read_.budget_bytes = incoming_.body_bytes_left();
      return false;
    }
    read_.budget_taken = false;
    if (!incoming_.is_chunk()) {
      read_.frames.push_back({incoming_.take_control()});
      left_over_bytes_ = bytes;
      return false;
    }
    const bool hashed = incoming_.hashes_chunk();
    read_.frames.push_back({incoming_.take_chunk(), hashed});
  } while (bytes > 0);
  return true;
}

void StreamPort::wait_to_read() {
  read_waits_ = watch_reads_ = true;
  frame_begun_.store(incoming_.begun(), std::memory_order_relaxed);
  // Reading may have made answers, of encryption's own.
  if (stream_.holds_output()) watch_writes_ = true;
  set_low_water();
}

void StreamPort::end_read() {
  reading_ = read_waits_ = false;
  frame_begun_.store(incoming_.begun() || left_over_bytes_ > 0, std::memory_order_relaxed);
  if (stream_.holds_output()) watch_writes_ = true;
  answer(&Owner::handle_read);
}

void StreamPort::go_on_writing() {
  if (broke_) {
    write_.error = broke_;
    return end_write();
  }
  if (write_.pieces.empty()) {
    if (!std::exchange(write_waits_, true)) {
      watch_writes_ = true;
      return;
    }
    if (stream_.holds_output()) flush_held_output();
    if (stream_.holds_output()) return;
    return end_write();
  }
  write_waits_ = false;
  const std::vector<std::size_t>& ends = write_.frame_ends;
  // Who was blocked ends the frame that has begun: then others may have something to send that is more urgent.
  const std::size_t end = was_blocked_ ? *std::ranges::upper_bound(ends, write_.bytes) : ends.back();
  const Result<Stream::Moved> put = stream_.write(pieces_until(end));
  if (!put.has_value()) {
    write_.error = put.error();
    return end_write();
  }
  write_.bytes += put->bytes;
  wire_bytes_sent_ += put->wire_bytes;
  bytes_sent_.fetch_add(put->bytes, std::memory_order_relaxed);
  if (put->wire_bytes > 0) {
    last_write_ns_.store(io_loop_->now().time_since_epoch().count(), std::memory_order_relaxed);
  }
  if (stream_.holds_output()) watch_writes_ = true;
  write_.blocked = write_.bytes < end || stream_.holds_output();
  if (write_.bytes == end || !write_.waits) return end_write();
  was_blocked_ = true;
  if (write_.bytes > 0 && std::ranges::binary_search(ends, write_.bytes)) return end_write();
  write_waits_ = watch_writes_ = true;
}

std::span<iovec> StreamPort::pieces_until(std::size_t end) {
  out_pieces_.clear();
  std::size_t at = 0;  // where a piece begins
  for (const iovec& piece : write_.pieces) {
    const std::size_t from = std::max(at, write_.bytes) - at;
    const std::size_t to = std::min(at + piece.iov_len, end);
    at += piece.iov_len;
    if (from >= piece.iov_len) continue;
    if (to <= at - piece.iov_len + from) break;
    out_pieces_.push_back(
        {.iov_base = static_cast<std::byte*>(piece.iov_base) + from, .iov_len = to - (at - piece.iov_len) - from});
  }
  return out_pieces_;
}

void StreamPort::end_write() {
  writing_ = write_waits_ = false;
  write_.wire_bytes = std::exchange(wire_bytes_sent_, 0);
  answer(&Owner::handle_write);
}

void StreamPort::flush_held_output() {
  const Result<Stream::Moved> put = stream_.write({});
  if (!put.has_value()) {
    watch_writes_ = false;  // the next write tells; what the peer said before can still be read
    return;
  }
  wire_bytes_sent_ += put->wire_bytes;
  if (put->wire_bytes > 0) {
    last_write_ns_.store(io_loop_->now().time_since_epoch().count(), std::memory_order_relaxed);
  }
}

void StreamPort::set_low_water() {
  // Of what is left, an encrypted stream may have the beginning of a record already.
  const std::size_t read_ahead = stream_.is_encrypted() ? kReadAheadBytesMax : 0;
  const std::size_t left = incoming_.body_bytes_left() - std::min(incoming_.body_bytes_left(), read_ahead);
  const std::size_t wanted = std::clamp<std::size_t>(left, 1, kLowWaterBytesMax);
  // Lowering is a must, for more may not come; raising is worth a system call if it saves some wake-ups.
  if (wanted < stream_.low_water() || wanted >= 4 * stream_.low_water()) stream_.set_low_water(wanted);
}

void StreamPort::watch() {
  if (here_) stream_.watch(watch_reads_, watch_writes_);
}

}  // namespace weightcast
