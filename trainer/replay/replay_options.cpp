#include "trainer/replay/replay_options.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "base/units.h"

namespace weightcast {
namespace {

constexpr double kRatioMax = 1000;
constexpr std::uint64_t kRolloutsMax = 100'000'000;

template <typename Value>
Error out_of_range(std::string_view name, Value value, std::string_view range) {
  return fail(Errc::kInvalidArgument, Op::kConfigure, fmt::format("{} is {}; it is {}", name, value, range));
}

}  // namespace

Status validate(const ReplayOptions& o, const TrajectoryRules& rules) {
  if (o.group_size == 0 || o.group_size > kRolloutsMax) {
    return out_of_range("group_size", o.group_size, fmt::format("1 to {}", kRolloutsMax));
  }
  if (o.rollout_batch_size == 0 || o.rollout_batch_size > kRolloutsMax || o.rollout_batch_size % o.group_size != 0) {
    return out_of_range("rollout_batch_size", o.rollout_batch_size,
                        fmt::format("a multiple of group_size ({}), up to {}", o.group_size, kRolloutsMax));
  }
  if (o.async_generation_ratio && !(*o.async_generation_ratio >= 0 && *o.async_generation_ratio <= kRatioMax)) {
    return out_of_range("async_generation_ratio", *o.async_generation_ratio, fmt::format("0 to {}", kRatioMax));
  }
  if (o.rollouts_max < o.rollout_batch_size) {
    return out_of_range("rollouts_max", o.rollouts_max,
                        fmt::format("at least rollout_batch_size ({})", o.rollout_batch_size));
  }
  // A token takes its id, its mask, its log-probability, and at worst a version run and a turn of its own.
  const std::uint64_t rollout_bytes =
      sizeof(Trajectory) + 2 * rules.metadata_bytes_max + rules.tokens_max * (9 + sizeof(VersionRun) + sizeof(Turn));
  if (o.bytes_max / o.rollout_batch_size < rollout_bytes) {
    return out_of_range("bytes_max", format_bytes(o.bytes_max),
                        fmt::format("at least a batch of the largest rollouts, {} times {}", o.rollout_batch_size,
                                    format_bytes(rollout_bytes)));
  }
  if (o.group_time_max <= Duration::zero()) return out_of_range("group_time_max", 0, "more than 0");
  if (o.lease_time_max <= Duration::zero()) return out_of_range("lease_time_max", 0, "more than 0");
  if (o.group_size_redundancy > kRolloutsMax) {
    return out_of_range("group_size_redundancy", o.group_size_redundancy, fmt::format("0 to {}", kRolloutsMax));
  }
  if (o.num_env_groups > kRolloutsMax) {
    return out_of_range("num_env_groups", o.num_env_groups, fmt::format("0 to {}", kRolloutsMax));
  }
  if (o.max_additional_running_prompts > kRolloutsMax) {
    return out_of_range("max_additional_running_prompts", o.max_additional_running_prompts,
                        fmt::format("0 to {}", kRolloutsMax));
  }
  if (o.workers_max == 0) return out_of_range("workers_max", 0, "at least 1");
  if (o.gaps_per_worker_max == 0) return out_of_range("gaps_per_worker_max", 0, "at least 1");
  if (o.closed_groups_max == 0) return out_of_range("closed_groups_max", 0, "at least 1");
  return {};
}

}  // namespace weightcast
