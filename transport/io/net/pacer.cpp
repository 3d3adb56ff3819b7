#include "transport/io/net/pacer.h"

#include <algorithm>
#include <utility>

#include "base/result.h"

namespace weightcast {

Pacer::Pacer(EventLoop& loop, Rate rate)
    : loop_(loop), limiter_(rate), timer_(loop, [this] { serve(); }), soon_(loop, [this] { serve(); }) {}

Pacer::~Pacer() { WC_CHECK(waiting_.empty()); }

void Pacer::request(Client& client) {
  if (client.queued_) return;
  client.queued_ = true;
  Share& share = *client.share_;
  share.queue_.push_back(&client);
  if (&share != served_ && !share.waiting_) wait(share);
  if (!serving_ && !timer_.armed()) soon_.schedule();
}

void Pacer::wait(Share& share) {
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
  if (!share.queue_.empty() || !std::exchange(share.waiting_, false)) return;
  waiting_.erase({share.tag_, share.order_});
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
  const Client::Moved moved = client.move_bytes(bytes_max);
  WC_ASSERT(moved.bytes <= bytes_max);
  WC_ASSERT(moved.bytes > 0 || !moved.wants_more);
  // A client that went away meanwhile has called forget().
  if (moving_ != nullptr && moved.wants_more) request(client);
  moving_ = nullptr;
  served_ = nullptr;
  share->tag_ += std::uint64_t{moved.bytes} * share->cost_;
  if (!share->queue_.empty()) wait(*share);
  return moved.bytes;
}

void Pacer::serve() {
  timer_.disarm();
  serving_ = true;
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
  if (!waiting_.empty() && !timer_.armed()) soon_.schedule();
}

}  // namespace weightcast
