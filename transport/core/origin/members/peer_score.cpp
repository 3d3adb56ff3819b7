#include "transport/core/origin/members/peer_score.h"

#include <algorithm>
#include <chrono>
#include <cmath>

namespace weightcast {
namespace {

constexpr double kSpeedWeight = 0.50;
constexpr double kSuccessWeight = 0.35;
constexpr double kStabilityWeight = 0.15;
constexpr std::uint32_t kFailuresInARowMax = 3;
constexpr std::uint32_t kStableAfter = 10;
constexpr Duration kStaleAfter = std::chrono::seconds(600);
constexpr double kStalenessMax = 0.3;

}  // namespace

PeerScore::PeerScore(const PeerScoreRecord& record, Instant now)
    : ok_(record.ok),
      failed_(record.failed),
      ok_in_a_row_(record.ok_in_a_row),
      failed_in_a_row_(record.ok_in_a_row > 0 ? 0 : record.failed_in_a_row),
      last_(now - std::clamp(record.age, Duration::zero(), kStaleAfter)) {
  for (const Rate rate : record.rates) {
    if (std::isfinite(rate.bytes_per_s) && rate.bytes_per_s >= 0) rates_.push_back(rate);
  }
  if (rates_.size() > kRatesMax) rates_.erase(rates_.begin(), rates_.end() - kRatesMax);
}

void PeerScore::handle_ok(Instant now, Rate rate) {
  if (rates_.size() == kRatesMax) rates_.erase(rates_.begin());
  rates_.push_back(rate);
  ++ok_;
  ++ok_in_a_row_;
  failed_in_a_row_ = 0;
  last_ = now;
}

void PeerScore::handle_failed(Instant now) {
  ++failed_;
  ++failed_in_a_row_;
  ok_in_a_row_ = 0;
  last_ = now;
}

double PeerScore::score(Instant now, Rate line_rate) const {
  if (ok_ + failed_ == 0) return kWithoutHistory;
  const Rate mean = rate().value_or(Rate{});
  const double speed =
      line_rate.limited() ? std::min(1.0, mean.bytes_per_s / line_rate.bytes_per_s) : (rates_.empty() ? 0.0 : 1.0);
  const double success = double(ok_) / (double(ok_) + double(failed_));
  const double age = std::max(0.0, to_seconds(now - last_) / to_seconds(kStaleAfter));
  const double freshness = 1 - std::min(age, kStalenessMax);
  return (kSpeedWeight * speed + kSuccessWeight * success + kStabilityWeight * stability()) * freshness;
}

std::optional<Rate> PeerScore::rate() const {
  if (rates_.empty()) return std::nullopt;
  double sum = 0;
  for (const Rate rate : rates_) sum += rate.bytes_per_s;
  return Rate{sum / double(rates_.size())};
}

PeerScoreRecord PeerScore::record(Instant now) const {
  const Duration age = ok_ + failed_ == 0 ? Duration::zero() : std::clamp(now - last_, Duration::zero(), kStaleAfter);
  return {rates_, ok_, failed_, ok_in_a_row_, failed_in_a_row_, age};
}

double PeerScore::stability() const {
  if (failed_in_a_row_ > kFailuresInARowMax) return 0;
  return double(std::min(ok_in_a_row_, kStableAfter)) / kStableAfter;
}

}  // namespace weightcast
