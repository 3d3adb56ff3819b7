#pragma once

#include <deque>

#include "base/rate_limiter.h"
#include "transport/io/event_loop.h"

namespace weightcast {

/// Shares one RateLimiter (a node's uplink, or its downlink) among connections: whoever has bytes to move waits its
/// turn, round-robin by quantum, so that the rate is filled by those who can and shared evenly by those who want.
class Pacer {
 public:
  /// Something that moves bytes when it is allowed to.
  class Client {
   public:
    virtual ~Client() = default;
    /// Moves at most `bytes_max` and returns how many it moved. `wants_more` says whether it wants another turn at
    /// once; a client that is held up elsewhere (socket full) says false and calls request() when it can go on.
    /// It may call request() and forget(), for itself and for others, and go away.
    struct Moved {
      std::size_t bytes = 0;
      bool wants_more = false;
    };
    virtual Moved move_bytes(std::size_t bytes_max) = 0;

   private:
    friend class Pacer;
    bool queued_ = false;
  };

  Pacer(EventLoop& loop, Rate rate);
  /// Every client has been forgotten.
  ~Pacer();
  Pacer(const Pacer&) = delete;
  Pacer& operator=(const Pacer&) = delete;

  [[nodiscard]] Rate rate() const { return limiter_.rate(); }

  /// Queues `client` for a turn; harmless if it is queued already. With no limit the turn comes at the end of the
  /// loop's present turn: never from inside this call.
  void request(Client& client);
  /// Takes `client` out of the queue; to be called before it goes away.
  void forget(Client& client);
  /// Counts bytes that could not wait (control messages); those who wait make up for them.
  void charge(std::size_t bytes);

 private:
  /// At most so many bytes pass before the loop looks at its sockets again.
  static constexpr std::size_t kServeBytesMax = 4 * kMiB;
  /// A turn where no rate sets the quantum.
  static constexpr std::size_t kUnlimitedTurnBytes = 1 * kMiB;

  void serve();
  /// Gives the first in the queue its turn; returns the bytes that it moved.
  std::size_t give_turn(std::size_t bytes_max);

  EventLoop& loop_;
  RateLimiter limiter_;
  Timer timer_;
  Deferred soon_;
  std::deque<Client*> queue_;
  Client* moving_ = nullptr;
  bool serving_ = false;
};

}  // namespace weightcast
