#pragma once

#include <functional>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "bench/plot/figure.h"
#include "bench/rollout/rollout_world.h"

namespace weightcast::bench {

/// One way of scheduling at one place of a suite's axis.
struct RolloutCase {
  std::string name;  ///< "asynchronous, ratio 2"
  double x = 0;
  std::optional<double> predicted_bubble;  ///< (1) of ECHO-2
  RolloutWorldOptions options;
  RolloutWorldResult result;
};

/// Ways of scheduling over one axis. The settings are those of ROLL Flash (arXiv 2510.11345) where it gives them.
struct RolloutSuite {
  std::string_view name;  ///< of the command line
  std::string_view title;
  std::string_view x_label;
  bool is_of_bubbles = false;      ///< its figure shows the learner's share of waiting, not the time of a step
  std::vector<RolloutCase> cases;  ///< their results are not computed
};

/// scaling, filtering, replication, ratio, environments, redundancy, stragglers, bubble.
[[nodiscard]] std::vector<std::string_view> rollout_suite_names();

/// `base` gives steps, warm-up and seed. Errors: kInvalidArgument, with the nearest name.
[[nodiscard]] Result<RolloutSuite> rollout_suite(std::string_view name, const RolloutWorldOptions& base);

/// Divides the batches of all cases, and their groups of environments, by `divisor`; a group is left of each at least.
void shrink(RolloutSuite& suite, std::uint64_t divisor);

/// Runs all cases. Errors: those of run_rollout_world(); kCorrupt, if a realised sum breaks proposition 1.
[[nodiscard]] Status run_rollout_suite(RolloutSuite& suite, const std::function<void(const RolloutCase&)>& on_case);

[[nodiscard]] nlohmann::json to_json(const RolloutSuite& suite);
[[nodiscard]] std::string rollout_heading(const RolloutSuite& suite);
[[nodiscard]] std::string rollout_line(const RolloutCase& rollout_case);
/// Time per step, or bubbles with their prediction, over the suite's axis.
[[nodiscard]] Figure rollout_figure(const RolloutSuite& suite);

}  // namespace weightcast::bench
