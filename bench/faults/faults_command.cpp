#include "bench/commands.h"

#include <fmt/format.h>

#include "bench/add_bench.h"
#include "bench/faults/faults_bench.h"

namespace weightcast::bench {
namespace {

struct FaultsArguments {
  LinkFlags links;
  FaultsBenchOptions options;
};

Status run(FaultsArguments& arguments) {
  FaultsBenchOptions& options = arguments.options;
  WC_ASSIGN(options.links, arguments.links.parse());
  print_now(faults_heading());
  WC_ASSIGN(const auto results,
            run_faults_bench(options, [](const FaultResult& result) { print_now(faults_line(result)); }));
  WC_TRY(write_json(options.flags.json_path, to_json(results)));
  for (const FaultResult& result : results) {
    if (result.survivors_s) continue;
    return fail(Errc::kTimedOut, Op::kInstall,
                fmt::format("{}: {} of {} survivors did", result.scenario, result.finished, result.survivors));
  }
  return {};
}

}  // namespace

void add_faults_command(CLI::App& app) {
  const auto [command, arguments] =
      add_bench<FaultsArguments>(app, "faults", "Broadcasts with a fault in their middle, against one without", run);
  std::vector<std::string> names;
  std::string footer = "Scenarios (those that need hosts of their own run with --netns):\n";
  for (const auto& [name, description] : fault_scenarios()) {
    names.push_back(name);
    footer += fmt::format("  {:<26} {}\n", name, description);
  }
  command->footer(footer);
  command->add_option("--workers", arguments->options.workers, "Workers")
      ->check(CLI::Range(std::size_t{2}, std::size_t{1000}));
  arguments->links.add_to(*command);
  command->add_option("--scenario", arguments->options.scenarios, "Only these")
      ->delimiter(',')
      ->check(CLI::IsMember(names));
  arguments->options.flags.add_to(*command);
}

}  // namespace weightcast::bench
