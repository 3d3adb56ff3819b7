#include <fmt/format.h>
#include <fmt/ranges.h>

#include <CLI/CLI.hpp>
#include <cstdio>
#include <memory>
#include <nlohmann/json.hpp>

#include "base/json_text.h"
#include "bench/commands.h"
#include "bench/fleet/fleet_flags.h"
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
    fmt::print("{}\n", rollout_heading(suite));
    std::fflush(stdout);
    WC_TRY(run_rollout_suite(suite, [](const RolloutCase& c) {
      fmt::print("{}\n", rollout_line(c));
      std::fflush(stdout);
    }));
    suites.push_back(to_json(suite));
    WC_TRY(write_result(arguments.svg_path, to_svg(rollout_figure(suite))));
  }
  return write_result(arguments.json_path, json_text({{"suites", std::move(suites)}}, 2) + "\n");
}

}  // namespace

void add_rollout_command(CLI::App& app) {
  const auto arguments = std::make_shared<RolloutArguments>();
  CLI::App* command = app.add_subcommand("rollout", "The rollout scheduler in simulated time");
  command->add_option("--suite", arguments->suites, fmt::format("{}", fmt::join(rollout_suite_names(), ", ")))
      ->delimiter(',')
      ->capture_default_str();
  command->add_option("--steps", arguments->base.steps, "Training steps of each case")
      ->check(CLI::Range(std::uint64_t{1}, std::uint64_t{1} << 20))
      ->capture_default_str();
  command->add_option("--warm-up", arguments->base.warm_up_steps, "Steps before those, which do not count")
      ->check(CLI::Range(std::uint64_t{0}, std::uint64_t{1} << 20))
      ->capture_default_str();
  command->add_option("--t-bcast", arguments->base.t_bcast_s, "Seconds from a publication until engines have it")
      ->check(CLI::Range(0.0, 1e6))
      ->capture_default_str();
  command
      ->add_option("--token-slowdown", arguments->base.token_slowdown,
                   "Share by which each further rollout in an engine makes a token longer")
      ->check(CLI::Range(0.0, 10.0))
      ->capture_default_str();
  command->add_option("--seed", arguments->base.seed, "Of responses, environments and faults")->capture_default_str();
  command->add_option("--json", arguments->json_path, "Write the result to this file; - is stdout");
  command->add_option("--svg", arguments->svg_path, "Draw the time of a step over the suite's axis");
  command->callback([arguments] { run_bench([&] { return run(*arguments); }); });
}

}  // namespace weightcast::bench
