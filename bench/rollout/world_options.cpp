#include "bench/rollout/world_options.h"

#include <fmt/format.h>

#include <cmath>
#include <limits>
#include <optional>
#include <utility>

namespace weightcast::bench {
namespace {

constexpr std::uint64_t kRolloutsMax = 100'000'000;

Error refuse(std::string why) { return fail(Errc::kInvalidArgument, Op::kConfigure, std::move(why)); }

}  // namespace

Status validate(const RolloutWorldOptions& o) {
  const auto check = [](const char* name, double value, double least, double most) -> Status {
    // Written so that NaN is refused, too.
    if (value >= least && value <= most) return {};
    return refuse(fmt::format("{} is {}; it is {} to {}", name, value, least, most));
  };
  WC_TRY(check("gpus", o.gpus, 1, 10'000));
  WC_TRY(check("train_share", o.train_share, 0, 0.999));
  WC_TRY(check("token_s", o.token_s, 1e-6, 1e6));
  WC_TRY(check("tokens_mean", o.tokens_mean, 1e-3, 1e9));
  WC_TRY(check("tokens_sd", o.tokens_sd, 0, 1e9));
  WC_TRY(check("turns", o.turns, 1, 10'000));
  WC_TRY(check("environment_s_mean", o.environment_s_mean, 0, 1e6));
  WC_TRY(check("environment_s_sd", o.environment_s_sd, 0, 1e6));
  WC_TRY(check("slow_environment_share", o.slow_environment_share, 0, 1));
  WC_TRY(check("slow_group_share", o.slow_group_share, 0, 1));
  WC_TRY(check("slow_environment_s", o.slow_environment_s, 0, 1e6));
  WC_TRY(check("dead_environment_share", o.dead_environment_share, 0, 0.9));
  WC_TRY(check("no_signal_share", o.no_signal_share, 0, 0.99));
  WC_TRY(check("publish_interval", static_cast<double>(o.publish_interval), 1, 1e6));
  WC_TRY(check("steps", static_cast<double>(o.steps), 1, 1e6));
  WC_TRY(check("workers", o.workers, 1, 10'000));
  WC_TRY(check("train_jitter", o.train_jitter, 0, 0.99));
  WC_TRY(check("group_size", o.scheduler.group_size, 1, 1e6));
  WC_TRY(check("rollout_batch_size", static_cast<double>(o.rollout_batch_size), 1, kRolloutsMax));
  WC_TRY(
      check("max_additional_running_prompts", static_cast<double>(o.max_additional_running_prompts), 0, kRolloutsMax));
  WC_TRY(check("num_env_groups", static_cast<double>(o.num_env_groups), 0, kRolloutsMax));
  WC_TRY(check("async_generation_ratio", o.scheduler.async_generation_ratio.value_or(0), 0, 1000));
  if (o.train_share == 0 && o.publish_interval != 1) {
    return refuse(fmt::format("publish_interval is {}; a synchronous learner, train_share 0, publishes each step",
                              o.publish_interval));
  }
  if (o.rollout_batch_size % o.scheduler.group_size != 0) {
    return refuse(fmt::format("rollout_batch_size is {}; it is a multiple of group_size, {}", o.rollout_batch_size,
                              o.scheduler.group_size));
  }
  const double trains = std::round(o.train_share * o.gpus);
  if (o.train_share > 0 && (trains < 1 || trains >= o.gpus)) {
    return refuse(
        fmt::format("train_share {} of {} GPUs leaves none to train, or none to generate", o.train_share, o.gpus));
  }
  const auto generates = static_cast<std::uint32_t>(o.gpus - std::round(o.train_share * o.gpus));
  if (generates % o.workers != 0) {
    return refuse(fmt::format("{} GPUs that generate are not divisible among {} workers", generates, o.workers));
  }
  if (o.turns > 1 && (o.scheduling == Scheduling::kWholeGroup || o.scheduling == Scheduling::kBatch)) {
    return refuse(fmt::format("turns is {}; groups that an engine decodes as one have 1", o.turns));
  }
  for (const WorkerChange& change : o.changes) {
    if (change.worker >= o.workers) {
      return refuse(fmt::format("worker {} changes, and there are {}", change.worker, o.workers));
    }
  }
  return {};
}

ReplayOptions replay_options(const RolloutWorldOptions& o) {
  ReplayOptions options;
  options.rollout_batch_size = o.rollout_batch_size;
  options.group_size = o.scheduler.group_size;
  options.group_size_redundancy = o.scheduler.group_size_redundancy;
  options.max_staleness = o.scheduler.max_staleness;
  options.async_generation_ratio = o.train_share == 0 ? std::optional(0.0) : o.scheduler.async_generation_ratio;
  options.max_additional_running_prompts = o.max_additional_running_prompts;
  options.num_env_groups = o.num_env_groups;
  options.filter_equal_rewards = o.scheduler.filter_equal_rewards;
  options.leased_only = true;
  options.rollouts_max = kRolloutsMax;
  options.bytes_max = std::numeric_limits<std::uint64_t>::max() / 2;
  options.lease_time_max = options.group_time_max = kWorldTimeMax;
  return options;
}

TrajectoryRules trajectory_rules() {
  TrajectoryRules rules;
  rules.vocab_size = 4;
  rules.tokens_max = 2;
  return rules;
}

}  // namespace weightcast::bench
