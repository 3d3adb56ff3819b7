#include <fmt/ranges.h>

#include "bench/add_bench.h"
#include "bench/commands.h"
#include "bench/rollout/rollout_bench.h"

namespace weightcast::bench {
namespace {

struct RolloutArguments {
  std::vector<std::string> suites{"scaling"};
  RolloutWorldOptions base;
  std::string json_path, svg_path;
};

Status run(const RolloutArguments& arguments) {
  if (arguments.suites.size() > 1 && !arguments.svg_path.empty()) {
    return fail(Errc::kInvalidArgument, Op::kConfigure, "--svg draws one suite; give one to --suite");
  }
  nlohmann::json suites = nlohmann::json::array();
  for (const std::string& name : arguments.suites) {
    WC_ASSIGN(RolloutSuite suite, rollout_suite(name, arguments.base));
    print_now(rollout_heading(suite));
    WC_TRY(run_rollout_suite(suite, [](const RolloutCase& c) { print_now(rollout_line(c)); }));
    suites.push_back(to_json(suite));
    WC_TRY(write_result(arguments.svg_path, to_svg(rollout_figure(suite))));
  }
  return write_json(arguments.json_path, {{"suites", std::move(suites)}});
}

}  // namespace

void add_rollout_command(CLI::App& app) {
  const auto [command, arguments] =
      add_bench<const RolloutArguments>(app, "rollout", "The rollout scheduler in simulated time", run);
  RolloutWorldOptions& base = arguments->base;
  command->add_option("--suite", arguments->suites, fmt::format("{}", fmt::join(rollout_suite_names(), ", ")))
      ->delimiter(',');
  command->add_option("--steps", base.steps, "Training steps of each case")
      ->check(CLI::Range(std::uint64_t{1}, std::uint64_t{1} << 20));
  command->add_option("--t-bcast", base.t_bcast_s, "Seconds from a publication until engines have it")
      ->check(CLI::Range(0.0, 1e6));
  command->add_option("--seed", base.seed, "Of responses, environments and faults");
  command->add_option("--json", arguments->json_path, "Write the result to this file; - is stdout");
  command->add_option("--svg", arguments->svg_path, "Draw the time of a step over the suite's axis");
}

}  // namespace weightcast::bench
