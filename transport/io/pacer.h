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
    struct Moved {
      std::size_t bytes = 0;
      bool wants_more = false;
    };
    virtual Moved move_bytes(std::size_t bytes_max) = 0;
  };

  Pacer(EventLoop& loop, Rate rate);

  [[nodiscard]] Rate rate() const { return limiter_.rate(); }

  /// Queues `client` for a turn; harmless if it is queued already. With no limit the turn comes at once.
  void request(Client& client);
  /// Takes `client` out of the queue; to be called before it goes away.
  void forget(Client& client);
  /// Counts bytes that could not wait (control messages).
  void charge(std::size_t bytes);

 private:
  void serve();

  EventLoop& loop_;
  RateLimiter limiter_;
  Timer timer_;
  std::deque<Client*> queue_;
  bool serving_ = false;
};

}  // namespace weightcast
