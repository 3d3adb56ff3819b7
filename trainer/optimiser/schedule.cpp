#include "trainer/optimiser/schedule.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <numbers>

namespace weightcast {
namespace {

Error refuse_schedule(std::string why) {
  return fail(Errc::kInvalidArgument, Op::kConfigure, "learning rate: " + std::move(why));
}

}  // namespace

Status validate(const LearningRateSchedule& schedule) {
  if (!(schedule.peak >= 0 && std::isfinite(schedule.peak))) {
    return refuse_schedule(fmt::format("the peak is {}", schedule.peak));
  }
  if (schedule.decay != LearningRateDecay::kConstant && schedule.updates_total <= schedule.warmup_updates) {
    return refuse_schedule(fmt::format("{} updates in all do not suffice for {} of warm-up and a {} decay",
                                       schedule.updates_total, schedule.warmup_updates, to_string(schedule.decay)));
  }
  return {};
}

double learning_rate(const LearningRateSchedule& schedule, std::uint64_t update) {
  const auto warmup = static_cast<double>(schedule.warmup_updates);
  if (update < schedule.warmup_updates) return schedule.peak * (static_cast<double>(update) + 1) / warmup;
  if (schedule.decay == LearningRateDecay::kConstant) return schedule.peak;
  const double span = static_cast<double>(schedule.updates_total) - warmup;
  const double done = std::min(1.0, (static_cast<double>(update) - warmup) / span);
  return schedule.peak *
         (schedule.decay == LearningRateDecay::kLinear ? 1 - done : (1 + std::cos(std::numbers::pi * done)) / 2);
}

}  // namespace weightcast
