#include "bench/commands.h"

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <cstdio>
#include <memory>

#include "base/json_text.h"
#include "bench/faults/faults_bench.h"
#include "tools/command.h"

namespace weightcast::bench {
namespace {

struct FaultsArguments {
  LinkFlags links;
  std::string topology = "chain";
  FaultsBenchOptions options;
};

Status run(FaultsArguments& arguments) {
  FaultsBenchOptions& options = arguments.options;
  WC_ASSIGN(options.links, arguments.links.parse());
  WC_ASSIGN(options.topology, parse_topology(arguments.topology));
  fmt::print("{}\n", faults_heading());
  std::fflush(stdout);
  WC_ASSIGN(const auto results, run_faults_bench(options, [](const FaultResult& result) {
              fmt::print("{}\n", faults_line(result));
              std::fflush(stdout);
            }));
  WC_TRY(write_result(options.flags.json_path, json_text(to_json(results), 2) + "\n"));
  for (const FaultResult& result : results) {
    if (result.survivors_s) continue;
    return fail(Errc::kTimedOut, Op::kInstall,
                fmt::format("{}: {} of {} survivors did", result.scenario, result.finished, result.survivors));
  }
  return {};
}

}  // namespace

void add_faults_command(CLI::App& app) {
  const auto arguments = std::make_shared<FaultsArguments>();
  CLI::App* command = app.add_subcommand("faults", "Broadcasts with a fault in their middle, against one without");
  std::vector<std::string> names;
  std::string footer = "Scenarios (those that need hosts of their own run with --netns):\n";
  for (const auto& [name, description] : fault_scenarios()) {
    names.push_back(name);
    footer += fmt::format("  {:<26} {}\n", name, description);
  }
  command->footer(footer);
  command->add_option("--workers", arguments->options.workers, "Workers")
      ->check(CLI::Range(std::size_t{2}, std::size_t{1000}))
      ->capture_default_str();
  arguments->links.add_to(*command);
  command->add_option("--topology", arguments->topology, "chain, tree, striped or auto")
      ->check(topology_validator())
      ->capture_default_str();
  command->add_option("--scenario", arguments->options.scenarios, "Only these")
      ->delimiter(',')
      ->check(CLI::IsMember(names));
  arguments->options.flags.add_to(*command);
  command->callback([arguments] { run_bench([&] { return run(*arguments); }); });
}

}  // namespace weightcast::bench
