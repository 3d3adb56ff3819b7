#include "worker/loop/work_meter.h"

#include <algorithm>

namespace weightcast {
namespace {

constexpr double kKept = 0.999;  // of a step's weight, at each later one
constexpr double kSpreadMin =
    0.1;  // of the tokens' standard deviation over their mean; with less, nothing can be fitted

}  // namespace

void WorkMeter::handle_step(Duration span, std::uint64_t running, std::uint64_t tokens) {
  if (running == 0 || tokens == 0 || span <= Duration::zero()) return;
  const double seconds = to_seconds(span);
  const auto count = static_cast<double>(tokens);
  for (double* sum : {&weight_, &tokens_, &seconds_, &tokens_squared_, &tokens_seconds_}) *sum *= kKept;
  weight_ += 1;
  tokens_ += count;
  seconds_ += seconds;
  tokens_squared_ += count * count;
  tokens_seconds_ += count * seconds;

  const Parts cost = parts();
  const double taken = std::min(1.0, static_cast<double>(running) / slots_);
  const double own_s = cost.per_token_s * count;
  full_s_ += seconds * (cost.fixed_s * taken + own_s) / (cost.fixed_s + own_s);
}

WorkMeter::Parts WorkMeter::parts() const {
  const double mean_tokens = tokens_ / weight_, mean_s = seconds_ / weight_;
  const double variance = tokens_squared_ / weight_ - mean_tokens * mean_tokens;
  const double spread = kSpreadMin * mean_tokens;
  if (variance < spread * spread) return {0, mean_s / mean_tokens};
  const double per_token_s = std::max(0.0, (tokens_seconds_ / weight_ - mean_tokens * mean_s) / variance);
  const double fixed_s = mean_s - per_token_s * mean_tokens;
  return fixed_s > 0 ? Parts{fixed_s, per_token_s} : Parts{0, mean_s / mean_tokens};
}

}  // namespace weightcast
