#include "worker/rollout/scheduler_options.h"

#include <fmt/format.h>

namespace weightcast {
namespace {

Error refuse(std::string why) { return fail(Errc::kInvalidArgument, Op::kConfigure, std::move(why)); }

Status check_range(const char* name, std::uint64_t value, std::uint64_t least, std::uint64_t most) {
  if (value >= least && value <= most) return {};
  return refuse(fmt::format("{} is {}; it is {} to {}", name, value, least, most));
}

}  // namespace

Status validate(const SchedulerOptions& options) {
  WC_TRY(check_range("engines", options.engines, 1, 100'000));
  WC_TRY(check_range("slots_per_engine", options.slots_per_engine, 1, 1'000'000));
  WC_TRY(check_range("group_size", options.group_size, 1, 1'000'000));
  WC_TRY(check_range("group_size_redundancy", options.group_size_redundancy, 0, 1'000'000));
  WC_TRY(check_range("attempts_max", options.attempts_max, 1, 1'000'000));
  if (options.rollout_time_max <= Duration::zero()) {
    return refuse(fmt::format("rollout_time_max is {} s; it is above 0", to_seconds(options.rollout_time_max)));
  }
  // Written so that NaN is refused, too.
  if (options.async_generation_ratio &&
      !(*options.async_generation_ratio >= 0 && *options.async_generation_ratio <= 1e6)) {
    return refuse(fmt::format("async_generation_ratio is {}; it is 0 to 1e6", *options.async_generation_ratio));
  }
  return {};
}

}  // namespace weightcast
