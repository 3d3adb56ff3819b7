#pragma once

#include <deque>

#include "base/rate_limiter.h"
#include "transport/io/event_loop.h"

namespace weightcast {

/// Shares one RateLimiter (a node's uplink or downlink) among connections. Clients with bytes to move take turns, one
/// quantum each. So clients that can send fill the rate, and share it evenly.
class Pacer {
 public:
  /// An object that moves bytes in its turn.
  class Client {
   public:
    virtual ~Client() = default;
    /// Moves at most `bytes_max` and returns how many it moved. `wants_more` says whether to queue the client again. A
    /// client that cannot go on (its socket is full) returns false, and calls request() later. The call may request()
    /// or forget() any client, and may destroy this one.
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
  /// All clients have been forgotten by now.
  ~Pacer();
  Pacer(const Pacer&) = delete;
  Pacer& operator=(const Pacer&) = delete;

  [[nodiscard]] Rate rate() const { return limiter_.rate(); }

  /// Queues `client` for a turn. Harmless if it is queued already. Without a limit the turn comes at the end of the
  /// loop's present turn. It never comes from inside this call.
  void request(Client& client);
  /// Takes `client` out of the queue. A client calls it before it is destroyed.
  void forget(Client& client);
  /// Counts bytes that did not wait for a turn (control messages). Waiting clients get that much less.
  void charge(std::size_t bytes);

 private:
  /// The most bytes that pass before the loop polls its sockets again.
  static constexpr std::size_t kServeBytesMax = 4 * kMiB;
  /// The quantum without a limit.
  static constexpr std::size_t kUnlimitedTurnBytes = 1 * kMiB;

  void serve();
  /// Gives the first client in the queue its turn. Returns the bytes that it moved.
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
