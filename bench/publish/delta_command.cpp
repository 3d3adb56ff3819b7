#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <memory>

#include "base/json_text.h"
#include "bench/commands.h"
#include "bench/publish/delta_bench.h"
#include "tools/command.h"

namespace weightcast::bench {
namespace {

struct DeltaArguments {
  std::string size = "1GiB";
  DeltaBenchOptions options;
};

/// Seconds of processor time per step that do not depend on how much changes, and per changed cell.
void print_line_through(const std::vector<DeltaBenchCase>& cases, const char* who, double DeltaBenchCase::*cpu_s) {
  const auto found = std::ranges::minmax_element(cases, {}, &DeltaBenchCase::changed_cells);
  const DeltaBenchCase &least = *found.min, &most = *found.max;
  if (least.changed_cells == most.changed_cells) return;
  const double slope = (most.*cpu_s - least.*cpu_s) / double(most.changed_cells - least.changed_cells);
  fmt::print("{}: {:.3f} CPU s a step, and {:.1f} ns for each changed cell\n", who,
             least.*cpu_s - slope * double(least.changed_cells), 1e9 * slope);
}

Status run(DeltaArguments& arguments) {
  DeltaBenchOptions& options = arguments.options;
  WC_ASSIGN(options.tensor_bytes, parse_bytes(arguments.size));
  WC_ASSIGN(const auto cases, run_delta_bench(options));
  fmt::print(
      "changed  patch      floor ms  call ms  installed ms  ratio  origin CPU s  worker CPU s  origin wrote  worker "
      "wrote  disk wrote\n");
  for (const DeltaBenchCase& one : cases) {
    fmt::print("{:<8} {:<10} {:<9.1f} {:<8.1f} {:<13.1f} {:<6.2f} {:<13.3f} {:<13.3f} {:<13} {:<13} {}\n",
               fmt::format("{:.3g} %", 100 * one.changed_share), format_bytes(one.patch_bytes), 1e3 * one.floor_s,
               1e3 * one.call_s, 1e3 * one.installed_s, one.ratio(), one.origin_cpu_s, one.worker_cpu_s,
               format_bytes(one.origin_written_bytes), format_bytes(one.worker_written_bytes),
               one.device_written_bytes ? format_bytes(*one.device_written_bytes) : "-");
  }
  print_line_through(cases, "origin", &DeltaBenchCase::origin_cpu_s);
  print_line_through(cases, "worker", &DeltaBenchCase::worker_cpu_s);
  return write_result(options.flags.json_path, json_text(to_json(cases), 2) + "\n");
}

}  // namespace

void add_delta_command(CLI::App& app) {
  const auto arguments = std::make_shared<DeltaArguments>();
  DeltaBenchOptions& options = arguments->options;
  CLI::App* command = app.add_subcommand("delta", "What a step costs that is published as changes, at both ends");
  command->add_option("--size", arguments->size, "All tensors together")
      ->check(bytes_validator())
      ->capture_default_str();
  command->add_option("--tensors", options.tensors, "Number of tensors")
      ->check(CLI::Range(std::size_t{1}, std::size_t{100000}))
      ->capture_default_str();
  command->add_option("--changed", options.changed_shares, "Shares of the cells that a step changes")
      ->delimiter(',')
      ->check(CLI::Range(1e-6, 0.4))
      ->capture_default_str();
  command->add_option("--steps", options.steps, "Steps that are measured")
      ->check(CLI::Range(1u, 10000u))
      ->capture_default_str();
  command->add_option("--interval", options.interval_s, "Seconds from step to step, at least")
      ->check(CLI::Range(0.0, 3600.0))
      ->capture_default_str();
  options.flags.add_to(*command);
  command->callback([arguments] { run_bench([&] { return run(*arguments); }); });
}

}  // namespace weightcast::bench
