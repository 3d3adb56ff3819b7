#include <cstdio>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "base/files/posix_file_system.h"
#include "base/json_text.h"
#include "base/text.h"
#include "tools/train/train_commands.h"
#include "trainer/capacity/pool_plan.h"

namespace weightcast {
namespace {

constexpr std::uint64_t kPoolBytesMax = std::uint64_t{64} << 20;

struct PlanFlags {
  std::string pool;
  std::string activation = "cost";
  std::uint64_t seed = 0;
  std::vector<std::string> active;
  bool json = false;
};

Status plan(const PlanFlags& flags) {
  WC_ASSIGN(const Activation activation, parse_word<Activation>("order of activation", flags.activation));
  PosixFileSystem files;
  WC_ASSIGN(const std::string text, read_file(files, flags.pool, kPoolBytesMax));
  auto pool = parse_pool(text);
  if (!pool.has_value()) return about(printable(flags.pool), std::move(pool).error());
  auto plan = flags.active.empty() ? plan_pool(*pool, activation, flags.seed) : plan_given_workers(*pool, flags.active);
  if (!plan.has_value()) return about(printable(flags.pool), std::move(plan).error());
  std::printf("%s", flags.json ? (json_text(to_json(*plan)) + "\n").c_str() : describe(*pool, *plan).c_str());
  return {};
}

}  // namespace

void add_train_plan_command(const Commands& commands) {
  const auto [command, flags] =
      add_command<PlanFlags>(commands, "plan", "Which workers a training loop needs, and what they cost", plan);
  command
      ->add_option(
          "--pool", flags->pool,
          "JSON: {T_s, R, t_bcast_s, kappa, S, alpha, learner_price_per_hour, workers: [{name, mu, price_per_hour}]}")
      ->required();
  command->add_option("--activation", flags->activation, "Who is activated first: cost or random")
      ->capture_default_str();
  command->add_option("--seed", flags->seed, "Of random")->capture_default_str();
  command->add_option("--active", flags->active, "Only say what these workers give, separated by commas")
      ->delimiter(',')
      ->excludes("--activation");
  command->add_flag("--json", flags->json,
                    "Print {mu_min, target, active, cost_per_step, wait_s, bubble_ratio, s_max_bound}");
}

}  // namespace weightcast
