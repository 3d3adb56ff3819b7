#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <set>
#include <utility>

#include "base/rate_limiter.h"
#include "transport/io/event_loop.h"

namespace weightcast {

/// Shares one RateLimiter (a node's uplink or downlink) among members, and the part of each among its connections.
/// Those with bytes to move take turns, one quantum each. So they fill the rate, and a member with many connections
/// gets no more of it than one with a single connection. Turns go by start-time fair queueing (Goyal, Vin and Cheng,
/// SIGCOMM 1996).
class Pacer {
 public:
  class Client;

  /// What one member gets. Its clients take turns among themselves. The owner of each client holds it.
  class Share {
   public:
    /// From now on its bytes count `cost` times: beside a member whose bytes count once it gets one part in `cost` + 1.
    /// With nobody beside it, it still gets all. At least 1.
    void set_cost(std::uint32_t cost) { cost_ = cost; }
    /// From now on it gets no more than this, if the pacer's own rate is not limited: then nothing else keeps it from
    /// taking what others need.
    void set_rate_max(Rate rate_max) { rate_max_ = rate_max; }

   private:
    friend class Pacer;
    std::deque<Client*> queue_;
    std::uint32_t cost_ = 1;
    std::uint64_t tag_ = 0;    // the bytes that counted so far
    std::uint64_t order_ = 0;  // among those with the same tag
    Rate rate_max_{};
    Instant rests_until_{};  // by rate_max_
    bool waiting_ = false;
    bool resting_ = false;
  };

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
      /// Another thread moves them, or fewer: they count as moved until settle() says how many it were.
      bool under_way = false;
    };
    virtual Moved move_bytes(std::size_t bytes_max) = 0;

   private:
    friend class Pacer;
    std::shared_ptr<Share> share_ = std::make_shared<Share>();  // its own, until it joins another
    bool queued_ = false;
    // Of a turn whose bytes are under way.
    std::shared_ptr<Share> granted_share_;
    std::size_t granted_bytes_ = 0;
    std::uint32_t granted_cost_ = 1;
    Instant granted_at_{};
  };

  Pacer(EventLoop& loop, Rate rate);
  /// All clients have been forgotten by now.
  ~Pacer();
  Pacer(const Pacer&) = delete;
  Pacer& operator=(const Pacer&) = delete;

  [[nodiscard]] Rate rate() const { return limiter_.rate(); }
  /// What passes from now on goes by `rate`.
  void set_rate(Rate rate);

  /// Queues `client` for a turn. Harmless if it is queued already. Without a limit the turn comes at the end of the
  /// loop's present turn. It never comes from inside this call.
  void request(Client& client);
  /// `client` takes its turns as one of `share` from now on, with others of the same pacer.
  void join(Client& client, std::shared_ptr<Share> share);
  /// Of the bytes that were under way since the client's turn, `moved_bytes` have moved. They count from now on, and
  /// the others do not. With `wants_more` the client is queued again, and keeps its claim: meanwhile it had something
  /// to move. Harmless if none were under way.
  void settle(Client& client, std::size_t moved_bytes, bool wants_more);
  /// Takes `client` out of the queue. What is under way counts as moved. A client calls it before it is destroyed.
  void forget(Client& client);
  /// Counts bytes that did not wait for a turn (control messages). Waiting clients get that much less.
  void charge(std::size_t bytes);

 private:
  /// The most bytes that pass before the loop polls its sockets again.
  static constexpr std::size_t kServeBytesMax = 4 * kMiB;
  /// Under way at a time: enough for each I/O thread to have its next piece, and so little that turns, which go by
  /// member, and not those threads decide who is next.
  static constexpr std::size_t kUnderWayBytesMax = 8 * kMiB;
  /// The quantum without a limit.
  static constexpr std::size_t kUnlimitedTurnBytes = 1 * kMiB;
  /// The quantum of a share with a rate of its own.
  static constexpr Duration kOwnRateTurn = std::chrono::milliseconds(10);
  static constexpr std::size_t kOwnRateTurnBytesMin = 16 * kKiB;

  void serve();
  /// Gives the next client its turn. Returns the bytes that it moved.
  std::size_t give_turn(std::size_t bytes_max);
  void leave_queue(Client& client);
  /// What the client was granted is not under way any more.
  void end_grant(Client& client);
  /// The share has clients in its queue, and may have its turn, once it has rested. `had_claim`: as it had before.
  void wait(Share& share, bool had_claim = false);
  /// Whether that share has a rate that counts.
  [[nodiscard]] bool has_own_rate(const Share& share) const {
    return share.rate_max_.limited() && !limiter_.rate().limited();
  }
  /// Those that have rested may have their turn.
  void end_rests();

  EventLoop& loop_;
  RateLimiter limiter_;
  Timer timer_;
  Deferred soon_;
  std::map<std::pair<std::uint64_t, std::uint64_t>, Share*> waiting_;  // by tag and order: the next one first
  std::set<std::pair<Instant, Share*>> resting_;                       // who has had its rate's part: until when
  std::size_t under_way_bytes_ = 0;
  std::uint64_t orders_ = 0;
  std::uint64_t tag_ = 0;     // of the share that was served last
  Share* served_ = nullptr;   // during its turn
  Client* moving_ = nullptr;  // during its turn, until it forgets itself
  bool serving_ = false;
};

}  // namespace weightcast
