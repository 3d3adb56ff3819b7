#pragma once

#include <sys/uio.h>

#include <atomic>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "base/result.h"
#include "transport/io/net/incoming_frame.h"
#include "transport/io/net/io_threads.h"
#include "transport/io/net/stream.h"
#include "transport/io/uv_loop.h"

namespace weightcast {

/// Where the bytes of one open connection are moved: on an I/O thread if there is one, otherwise on the owner's. It
/// does one read and one write at a time, as its owner orders: decrypts, takes frames apart, hashes small chunks,
/// encrypts. Its owner decides what is read and written, and when; it decides nothing.
///
/// The owner's thread calls all of it and hears each answer in a later turn of its own loop. Between an order and its
/// answer the owner leaves alone what the order names. Invariant: whoever has the stream is one thread: the owner's
/// before open() and after Owner::handle_returned(), and the I/O thread between them.
class StreamPort : public std::enable_shared_from_this<StreamPort> {
 public:
  class Owner {
   public:
    virtual ~Owner() = default;
    /// The read has ended: see read(). Runs after each order_read() but the last, which recall() may cut off.
    virtual void handle_read() = 0;
    /// The same of a write.
    virtual void handle_write() = 0;
    /// The stream is the owner's again. What read and write had done by then is in their results.
    virtual void handle_returned() = 0;
  };

  struct Read {
    // What the owner wants.
    std::size_t bytes_max = 0;  ///< 0: only waits until there is something to read
    bool waits = false;         ///< for the first frame that comes whole; otherwise reads what is there
    bool budget_taken = false;  ///< for the frame that has begun
    // What has happened. A read ends after a message, so that what the owner decides by it counts for the next frame.
    struct Frame {
      std::variant<std::string, ReceivedChunk> frame;
      bool hashed = true;  ///< false: of a chunk whose digest is still to be made
    };
    std::size_t bytes = 0;
    std::size_t wire_bytes = 0;
    std::vector<Frame> frames = {};
    bool drained = false;          ///< there is nothing more to read now
    std::size_t budget_bytes = 0;  ///< that a frame needs before its body is read; 0: none does
    std::optional<Error> malformed = std::nullopt;
    bool peer_encrypts = false;                 ///< with `malformed`
    bool ended = false;                         ///< the peer will send nothing more
    std::optional<Error> error = std::nullopt;  ///< of the stream
  };

  struct Write {
    // What the owner wants. The pieces are the owner's, and stay where they are until the answer.
    std::vector<iovec> pieces = {};            ///< none: only waits until the stream takes more
    std::vector<std::size_t> frame_ends = {};  ///< bytes before the end of each frame
    bool waits = false;  ///< until the stream takes more, in the midst of a frame; otherwise writes what it takes now
    // What has happened.
    std::size_t bytes = 0;
    std::size_t wire_bytes = 0;  ///< since the last write, those of answers of encryption's own included
    bool blocked = false;        ///< the stream takes no more now
    std::optional<Error> error = std::nullopt;
  };

  /// `owner` lives at least until forget_owner(). Chunks of `hashed_apart_bytes_min` and more are not hashed here.
  StreamPort(UvLoop& owner_loop, Owner& owner, BufferPool& buffers, std::size_t hashed_apart_bytes_min, UniqueFd socket,
             std::string peer, std::unique_ptr<TlsSession> tls);

  /// Only while the owner has the stream; but its constant functions that say so at any time.
  [[nodiscard]] Stream& stream() { return stream_; }
  [[nodiscard]] const Stream& stream() const { return stream_; }

  /// Hands the stream over, which nothing watches, to the thread of `seat`, or to this one. Once.
  void open(std::shared_ptr<const IoThreads::Seat> seat);
  /// Demands the stream back. handle_returned() answers, at once where there is no I/O thread; no other answer follows.
  void recall();
  [[nodiscard]] bool is_out() const { return out_; }
  void forget_owner() { owner_ = nullptr; }

  /// One at a time.
  void order_read(Read order);
  void order_write(Write order);
  /// The result of the last one, for its answer.
  [[nodiscard]] Read& read() { return read_; }
  [[nodiscard]] Write& write() { return write_; }

  /// Count from the next frame on, of the next order at the latest.
  void set_limits(const ReceiveLimits& limits);
  /// A read that waits ends with what it has.
  void stop_waiting();
  /// A read that waits looks at every byte that comes.
  void lower_low_water();

  // What has happened so far, an order that is under way included.
  [[nodiscard]] bool frame_begun() const { return frame_begun_.load(std::memory_order_relaxed); }
  [[nodiscard]] std::uint64_t bytes_received() const { return bytes_received_.load(std::memory_order_relaxed); }
  [[nodiscard]] std::uint64_t bytes_sent() const { return bytes_sent_.load(std::memory_order_relaxed); }
  /// When something last came or went; long ago if nothing did.
  [[nodiscard]] Instant last_read() const { return instant(last_read_ns_); }
  [[nodiscard]] Instant last_write() const { return instant(last_write_ns_); }
  /// Of bytes that the owner writes itself.
  void count_sent(std::size_t bytes) { bytes_sent_.fetch_add(bytes, std::memory_order_relaxed); }

 private:
  using Answer = void (Owner::*)();

  [[nodiscard]] static Instant instant(const std::atomic<std::int64_t>& ns) {
    return Instant{Duration{ns.load(std::memory_order_relaxed)}};
  }
  [[nodiscard]] bool is_apart() const { return io_loop_ != &owner_loop_; }
  /// Runs `act` where the stream is.
  template <typename Act>
  void tell(Act act);
  /// From there: calls the owner back.
  void answer(Answer what);

  // Where the stream is:
  void handle_ready(FdWatch::Ready ready);
  void go_on_reading();
  /// Takes bytes that were read. Returns whether reading goes on.
  [[nodiscard]] bool take(std::size_t bytes);
  void end_read();
  void wait_to_read();
  void go_on_writing();
  void end_write();
  /// What remains of the order, up to `end`.
  [[nodiscard]] std::span<iovec> pieces_until(std::size_t end);
  void flush_held_output();
  void set_low_water();
  void watch();

  UvLoop& owner_loop_;
  Owner* owner_;  // the owner's thread's
  std::shared_ptr<const IoThreads::Seat> seat_;
  UvLoop* io_loop_;
  bool out_ = false;   // as the owner knows
  bool here_ = false;  // as the I/O thread knows: it has the stream
  Stream stream_;
  IncomingFrame incoming_;
  bool has_budget_ = false;

  Read read_;    // the owner's, but between order and answer
  Write write_;  // the same
  bool reading_ = false;
  bool read_waits_ = false;
  std::size_t left_over_bytes_ = 0;  // of the next frame's header, not taken yet
  bool writing_ = false;
  bool write_waits_ = false;
  bool was_blocked_ = false;  // in this write
  std::size_t wire_bytes_sent_ = 0;
  std::vector<iovec> out_pieces_;
  bool watch_reads_ = false;
  bool watch_writes_ = false;
  std::optional<Error> broke_;  // the socket cannot be watched

  std::atomic<bool> frame_begun_ = false;
  std::atomic<std::uint64_t> bytes_received_ = 0;
  std::atomic<std::uint64_t> bytes_sent_ = 0;
  std::atomic<std::int64_t> last_read_ns_ = 0;
  std::atomic<std::int64_t> last_write_ns_ = 0;
};

}  // namespace weightcast
