#include "transport/io/net/pacer.h"

#include <algorithm>

#include "base/result.h"

namespace weightcast {

Pacer::Pacer(EventLoop& loop, Rate rate)
    : loop_(loop), limiter_(rate), timer_(loop, [this] { serve(); }), soon_(loop, [this] { serve(); }) {}

Pacer::~Pacer() { WC_CHECK(queue_.empty()); }

void Pacer::request(Client& client) {
  if (client.queued_) return;
  client.queued_ = true;
  queue_.push_back(&client);
  if (!serving_ && !timer_.armed()) soon_.schedule();
}

void Pacer::forget(Client& client) {
  if (moving_ == &client) moving_ = nullptr;
  if (!client.queued_) return;
  client.queued_ = false;
  std::erase(queue_, &client);
}

void Pacer::charge(std::size_t bytes) { limiter_.consume(loop_.now(), bytes); }

std::size_t Pacer::give_turn(std::size_t bytes_max) {
  Client& client = *queue_.front();
  queue_.pop_front();
  client.queued_ = false;
  moving_ = &client;
  const Client::Moved moved = client.move_bytes(bytes_max);
  WC_ASSERT(moved.bytes <= bytes_max);
  WC_ASSERT(moved.bytes > 0 || !moved.wants_more);
  // A client that went away meanwhile has called forget().
  if (moving_ != nullptr && moved.wants_more) request(client);
  moving_ = nullptr;
  return moved.bytes;
}

void Pacer::serve() {
  timer_.disarm();
  serving_ = true;
  std::size_t served_bytes = 0;
  while (!queue_.empty() && served_bytes < kServeBytesMax) {
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
  if (!queue_.empty() && !timer_.armed()) soon_.schedule();
}

}  // namespace weightcast
