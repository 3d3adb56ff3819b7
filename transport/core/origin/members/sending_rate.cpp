#include "transport/core/origin/members/sending_rate.h"

#include <algorithm>
#include <utility>

namespace weightcast {
namespace {

// A window with less than this share of the mean had a pause in it.
constexpr double kPausedShare = 0.5;

Rate rate_between(std::uint64_t before, std::uint64_t after, Duration took) {
  return Rate{double(after - before) / to_seconds(took)};
}

}  // namespace

std::optional<Rate> SendingRate::handle_sent(Instant now, std::uint64_t bytes_sent) {
  if (last_ && now - last_->at < kWindow) return std::nullopt;
  const std::optional<Count> before = std::exchange(last_, Count{now, bytes_sent});
  if (!before || now - before->at > kGapMax) {
    windows_ = 0;
    return std::nullopt;
  }
  const Rate window = rate_between(before->bytes, bytes_sent, now - before->at);
  windows_ = window.bytes_per_s > 0 ? windows_ + 1 : 0;
  if (windows_ == 2) since_ = last_;
  if (windows_ <= 2) return window;
  const Rate mean = rate_between(since_->bytes, bytes_sent, now - since_->at);
  best_ = std::max(best_, mean);
  if (window.bytes_per_s < kPausedShare * mean.bytes_per_s) windows_ = 0;
  return window;
}

}  // namespace weightcast
