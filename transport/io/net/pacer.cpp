#include "transport/io/net/pacer.h"

#include <algorithm>
#include <utility>

#include "base/result.h"

namespace weightcast {

Pacer::Pacer(EventLoop& loop, Rate rate)
    : loop_(loop), limiter_(rate), timer_(loop, [this] { serve(); }), soon_(loop, [this] { serve(); }) {}

Pacer::~Pacer() { WC_CHECK(waiting_.empty() && resting_.empty()); }

void Pacer::request(Client& client) {
  if (client.queued_) return;
  client.queued_ = true;
  Share& share = *client.share_;
  share.queue_.push_back(&client);
  if (&share != served_ && !share.waiting_ && !share.resting_) wait(share);
  // Without a limit the timer is for who rests, and others do not wait for that.
  if (!serving_ && (!timer_.armed() || !limiter_.rate().limited())) soon_.schedule();
}

void Pacer::wait(Share& share) {
  if (has_own_rate(share) && loop_.now() < share.rests_until_) {
    share.resting_ = true;
    resting_.emplace(share.rests_until_, &share);
    return;
  }
  // Who had nothing to move meanwhile has no claim to what others moved.
  share.tag_ = std::max(share.tag_, tag_);
  share.order_ = ++orders_;
  share.waiting_ = true;
  waiting_.emplace(std::pair(share.tag_, share.order_), &share);
}

void Pacer::join(Client& client, std::shared_ptr<Share> share) {
  const bool queued = client.queued_;
  forget(client);
  client.share_ = std::move(share);
  if (queued) request(client);
}

void Pacer::forget(Client& client) {
  if (moving_ == &client) moving_ = nullptr;
  if (!client.queued_) return;
  client.queued_ = false;
  Share& share = *client.share_;
  std::erase(share.queue_, &client);
  if (!share.queue_.empty()) return;
  if (std::exchange(share.waiting_, false)) waiting_.erase({share.tag_, share.order_});
  if (std::exchange(share.resting_, false)) resting_.erase({share.rests_until_, &share});
}

void Pacer::end_rests() {
  while (!resting_.empty() && resting_.begin()->first <= loop_.now()) {
    Share& share = *resting_.begin()->second;
    resting_.erase(resting_.begin());
    share.resting_ = false;
    wait(share);
  }
}

void Pacer::charge(std::size_t bytes) { limiter_.consume(loop_.now(), bytes); }

std::size_t Pacer::give_turn(std::size_t bytes_max) {
  const auto next = waiting_.begin();
  Client& client = *next->second->queue_.front();
  const std::shared_ptr<Share> share = client.share_;  // the client may be destroyed in its turn
  waiting_.erase(next);
  share->waiting_ = false;
  share->queue_.pop_front();
  tag_ = share->tag_;
  served_ = share.get();
  client.queued_ = false;
  moving_ = &client;
  if (has_own_rate(*share)) {
    const auto turn_bytes = static_cast<std::size_t>(share->rate_max_.bytes_per_s * to_seconds(kOwnRateTurn));
    bytes_max = std::min(bytes_max, std::max(turn_bytes, kOwnRateTurnBytesMin));
  }
  const Client::Moved moved = client.move_bytes(bytes_max);
  WC_ASSERT(moved.bytes <= bytes_max);
  WC_ASSERT(moved.bytes > 0 || !moved.wants_more);
  // A client that went away meanwhile has called forget().
  if (moving_ != nullptr && moved.wants_more) request(client);
  moving_ = nullptr;
  served_ = nullptr;
  share->tag_ += std::uint64_t{moved.bytes} * share->cost_;
  if (has_own_rate(*share)) {
    share->rests_until_ =
        std::max(share->rests_until_, loop_.now()) + from_seconds(double(moved.bytes) / share->rate_max_.bytes_per_s);
  }
  if (!share->queue_.empty()) wait(*share);
  return moved.bytes;
}

void Pacer::serve() {
  timer_.disarm();
  serving_ = true;
  end_rests();
  std::size_t served_bytes = 0;
  while (!waiting_.empty() && served_bytes < kServeBytesMax) {
    std::size_t turn_bytes = kUnlimitedTurnBytes;
    if (limiter_.rate().limited()) {
      const Instant now = loop_.now();
      const Instant ready = limiter_.ready_at(now, limiter_.quantum_bytes());
      if (ready > now) {
        timer_.arm(ready);
        break;
      }
      turn_bytes = limiter_.quantum_bytes();
    }
    const std::size_t bytes = give_turn(turn_bytes);
    // Counted when they have passed, which may be later than when they were allowed, never earlier.
    limiter_.consume(loop_.now(), bytes);
    served_bytes += bytes;
  }
  serving_ = false;
  if (timer_.armed()) return;
  if (!waiting_.empty()) return soon_.schedule();
  if (!resting_.empty()) timer_.arm(resting_.begin()->first);
}

}  // namespace weightcast
