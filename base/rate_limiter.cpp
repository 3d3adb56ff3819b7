#include "base/rate_limiter.h"

#include <algorithm>
#include <cmath>
#include <limits>

namespace weightcast {

RateLimiter::RateLimiter(Rate rate) : rate_(rate) {
  if (!rate_.limited()) {
    quantum_bytes_ = kWindowSlackBytes;
    return;
  }
  const double per_second = rate_.bytes_per_s;
  // A full bucket is what an idle sender may add to its first second: 2.5 % at most, to stay inside 3 %.
  capacity_bytes_ = std::max(1500.0, std::min(0.010 * per_second + 32.0 * kKiB, 0.025 * per_second));
  window_bytes_max_ = per_second * to_seconds(kWindow) + double(kWindowSlackBytes);
  quantum_bytes_ = static_cast<std::size_t>(
      std::clamp(0.002 * per_second, std::min(4.0 * kKiB, capacity_bytes_ / 2), double(kWindowSlackBytes)));
  quantum_bytes_ = std::max<std::size_t>(quantum_bytes_, 1);
}

void RateLimiter::advance(Instant now) {
  const std::int64_t slot = now.time_since_epoch() / kSlot;
  if (!started_) {
    started_ = true;
    tokens_ = capacity_bytes_;
    refilled_at_ = now;
    slot_now_ = slot;
    return;
  }
  tokens_ = std::min(capacity_bytes_, tokens_ + rate_.bytes_per_s * to_seconds(now - refilled_at_));
  refilled_at_ = now;
  const std::int64_t steps = std::min<std::int64_t>(slot - slot_now_, std::int64_t(slots_.size()));
  for (std::int64_t i = 1; i <= steps; ++i) {
    std::uint32_t& oldest = slots_[static_cast<std::size_t>(slot_now_ + i) % slots_.size()];
    window_bytes_ -= oldest;
    oldest = 0;
  }
  if (steps == std::int64_t(slots_.size())) {
    slots_.fill(0);
    window_bytes_ = 0;
  }
  slot_now_ = slot;
}

std::size_t RateLimiter::available(Instant now) {
  if (!rate_.limited()) return std::numeric_limits<std::size_t>::max();
  advance(now);
  const double window_left = window_bytes_max_ - double(window_bytes_);
  const double allowed = std::floor(std::min(tokens_, window_left));
  return allowed > 0 ? static_cast<std::size_t>(allowed) : 0;
}

void RateLimiter::consume(Instant now, std::size_t bytes) {
  if (!rate_.limited()) return;
  advance(now);
  tokens_ -= double(bytes);
  window_bytes_ += bytes;
  slots_[static_cast<std::size_t>(slot_now_) % slots_.size()] += static_cast<std::uint32_t>(bytes);
}

void RateLimiter::give_back(Instant at, std::size_t bytes) {
  if (!rate_.limited()) return;
  tokens_ = std::min(capacity_bytes_, tokens_ + double(bytes));
  const std::int64_t slot = at.time_since_epoch() / kSlot;
  if (slot_now_ - slot >= std::int64_t(slots_.size())) return;  // the window has forgotten it
  std::uint32_t& counted = slots_[static_cast<std::size_t>(slot) % slots_.size()];
  const auto back = static_cast<std::uint32_t>(std::min<std::size_t>(bytes, counted));
  counted -= back;
  window_bytes_ -= back;
}

Instant RateLimiter::ready_at(Instant now, std::size_t bytes) {
  const std::size_t wanted = std::min(bytes, quantum_bytes_);
  if (available(now) >= wanted) return now;
  const double missing = std::max(0.0, double(wanted) - tokens_);
  const Instant by_tokens = now + std::max(kSlot, from_seconds(missing / rate_.bytes_per_s));
  // The window opens when enough of its oldest slots have left it.
  double window_left = window_bytes_max_ - double(window_bytes_);
  std::int64_t slot = slot_now_ + 1;
  for (; window_left < double(wanted) && slot <= slot_now_ + std::int64_t(slots_.size()); ++slot) {
    window_left += slots_[static_cast<std::size_t>(slot) % slots_.size()];
  }
  const Instant by_window{(slot - 1) * kSlot};
  return std::max(by_tokens, by_window);
}

}  // namespace weightcast
