#include "transport/io/net/pacer.h"

#include <algorithm>
#include <utility>

#include "base/result.h"

namespace weightcast {

Pacer::Pacer(EventLoop& loop, Rate rate)
    : loop_(loop), limiter_(rate), timer_(loop, [this] { serve(); }), soon_(loop, [this] { serve(); }) {}

Pacer::~Pacer() { WC_CHECK(waiting_.empty() && resting_.empty()); }

void Pacer::set_rate(Rate rate) {
  if (rate == limiter_.rate()) return;
  limiter_ = RateLimiter(rate);
  // The timer is set by the rate before.
  if (!serving_) soon_.schedule();
}

void Pacer::request(Client& client) {
  if (client.queued_) return;
  client.queued_ = true;
  Share& share = *client.share_;
  share.queue_.push_back(&client);
  if (&share != served_ && !share.waiting_ && !share.resting_) wait(share);
  // Without a limit the timer is for who rests, and others do not wait for that.
  if (!serving_ && (!timer_.armed() || !limiter_.rate().limited())) soon_.schedule();
}

void Pacer::wait(Share& share, bool had_claim) {
  if (has_own_rate(share) && loop_.now() < share.rests_until_) {
    share.resting_ = true;
    resting_.emplace(share.rests_until_, &share);
    return;
  }
  // Who had nothing to move meanwhile has no claim to what others moved.
  if (!had_claim) share.tag_ = std::max(share.tag_, tag_);
  share.order_ = ++orders_;
  share.waiting_ = true;
  waiting_.emplace(std::pair(share.tag_, share.order_), &share);
}

void Pacer::join(Client& client, std::shared_ptr<Share> share) {
  const bool queued = client.queued_;
  leave_queue(client);
  client.share_ = std::move(share);
  if (queued) request(client);
}

void Pacer::forget(Client& client) {
  if (moving_ == &client) moving_ = nullptr;
  end_grant(client);
  leave_queue(client);
}

void Pacer::end_grant(Client& client) {
  if (client.granted_bytes_ == 0) return;
  const bool was_full = under_way_bytes_ >= kUnderWayBytesMax;
  under_way_bytes_ -= std::exchange(client.granted_bytes_, 0);
  client.granted_share_.reset();
  if (was_full && !serving_ && !waiting_.empty()) soon_.schedule();
}

void Pacer::leave_queue(Client& client) {
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

void Pacer::settle(Client& client, std::size_t moved_bytes, bool wants_more) {
  const std::size_t granted_bytes = client.granted_bytes_;
  if (granted_bytes == 0) return;
  const std::shared_ptr<Share> share = client.granted_share_;
  end_grant(client);
  WC_ASSERT(moved_bytes <= granted_bytes);
  limiter_.give_back(client.granted_at_, granted_bytes);
  limiter_.consume(loop_.now(), moved_bytes);
  const std::size_t unused_bytes = granted_bytes - moved_bytes;
  const bool waited = std::exchange(share->waiting_, false);
  const bool rested = std::exchange(share->resting_, false);
  if (waited) waiting_.erase({share->tag_, share->order_});
  if (rested) resting_.erase({share->rests_until_, share.get()});
  share->tag_ -= std::uint64_t{unused_bytes} * client.granted_cost_;
  if (has_own_rate(*share)) {
    share->rests_until_ -= from_seconds(double(unused_bytes) / share->rate_max_.bytes_per_s);
  }
  const bool queues = wants_more && !client.queued_ && share == client.share_;
  if (queues) {
    client.queued_ = true;
    share->queue_.push_back(&client);
  }
  if (waited || rested || (queues && share.get() != served_)) wait(*share, true);
  if (serving_ || (waiting_.empty() && resting_.empty())) return;
  // It may be somebody's turn earlier than the timer is set to.
  if (unused_bytes > 0 || !timer_.armed() || !limiter_.rate().limited()) soon_.schedule();
}

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
  // Counted when they have passed, which may be later than when they were allowed, never earlier.
  const Instant now = loop_.now();
  limiter_.consume(now, moved.bytes);
  if (moved.under_way && moving_ != nullptr) {
    client.granted_share_ = share;
    client.granted_bytes_ = moved.bytes;
    client.granted_cost_ = share->cost_;
    client.granted_at_ = now;
    under_way_bytes_ += moved.bytes;
  }
  // A client that went away meanwhile has called forget().
  if (moving_ != nullptr && moved.wants_more) request(client);
  moving_ = nullptr;
  served_ = nullptr;
  share->tag_ += std::uint64_t{moved.bytes} * share->cost_;
  if (has_own_rate(*share)) {
    share->rests_until_ =
        std::max(share->rests_until_, now) + from_seconds(double(moved.bytes) / share->rate_max_.bytes_per_s);
  }
  if (!share->queue_.empty()) wait(*share);
  return moved.bytes;
}

void Pacer::serve() {
  timer_.disarm();
  serving_ = true;
  end_rests();
  std::size_t served_bytes = 0;
  while (!waiting_.empty() && served_bytes < kServeBytesMax && under_way_bytes_ < kUnderWayBytesMax) {
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
    served_bytes += give_turn(turn_bytes);
  }
  serving_ = false;
  if (timer_.armed()) return;
  if (!waiting_.empty() && under_way_bytes_ < kUnderWayBytesMax) return soon_.schedule();
  if (!resting_.empty()) timer_.arm(resting_.begin()->first);
}

}  // namespace weightcast
