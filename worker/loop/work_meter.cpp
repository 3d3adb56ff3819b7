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
  fit(seconds, count);
  add(seconds, static_cast<double>(running), count);
}

void WorkMeter::handle_answer(Duration span, double running, std::uint64_t tokens) {
  if (running <= 0 || tokens == 0 || span <= Duration::zero()) return;
  fit(to_seconds(span) / static_cast<double>(tokens), running);
}

void WorkMeter::handle_work(Duration span, std::uint64_t running) {
  if (running == 0 || span <= Duration::zero()) return;
  add(to_seconds(span), static_cast<double>(running), static_cast<double>(running));
}

void WorkMeter::fit(double seconds, double tokens) {
  for (double* sum : {&weight_, &tokens_, &seconds_, &tokens_squared_, &tokens_seconds_}) *sum *= kKept;
  weight_ += 1;
  tokens_ += tokens;
  seconds_ += seconds;
  tokens_squared_ += tokens * tokens;
  tokens_seconds_ += tokens * seconds;
}

void WorkMeter::add(double seconds, double running, double tokens) {
  if (weight_ <= 0) {
    full_s_ += seconds;
    return;
  }
  const Parts cost = parts();
  const double taken = std::min(1.0, running / slots_);
  const double own_s = cost.per_token_s * tokens;
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
