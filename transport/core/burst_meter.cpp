#include "transport/core/burst_meter.h"

#include <algorithm>

namespace weightcast {
namespace {

// What one turn of a loop reads has one time: a shorter time than this says that the burst was too small.
constexpr Duration kLeast = std::chrono::milliseconds(1);

}  // namespace

std::optional<BurstMeter::Result> BurstMeter::handle(Instant now, std::uint64_t bytes, std::uint64_t bytes_left) {
  if (bytes > kBurstBytesMax || bytes_left > kBurstBytesMax) return std::nullopt;
  if (left_bytes_ == 0 || bytes + bytes_left != left_bytes_) {
    total_bytes_ = bytes + bytes_left;
    half_at_.reset();
  }
  left_bytes_ = bytes_left;
  const std::uint64_t arrived = total_bytes_ - bytes_left;
  if (!half_at_ && 2 * arrived >= total_bytes_) {
    half_at_ = now;
    half_bytes_ = arrived;
  }
  if (bytes_left > 0) return std::nullopt;
  const Duration lasted = now - *half_at_;
  return Result{Rate{double(arrived - half_bytes_) / to_seconds(std::max(lasted, kLeast))}, lasted};
}

}  // namespace weightcast
