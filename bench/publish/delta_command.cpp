#include <fmt/format.h>

#include <string>
#include <vector>

#include "bench/add_bench.h"
#include "bench/commands.h"
#include "bench/publish/delta_bench.h"
#include "tools/command.h"

namespace weightcast::bench {
namespace {

struct DeltaArguments {
  std::vector<std::string> sizes = {"1GiB", "2GiB", "4GiB"};
  std::string single_copy_from = "8GiB";
  std::string link = "unlimited";
  DeltaBenchOptions options;
};

void print_line(const DeltaLines& size, const char* who, const CpuLine& line) {
  fmt::print("{}, {}: {:.4f} CPU s a step ({:.4f} per GiB), and {:.2f} ns for each changed cell\n",
             format_bytes(size.tensor_bytes), who, line.intercept_s,
             line.intercept_s * double(kGiB) / double(size.tensor_bytes), 1e9 * line.slope_s);
}

Status run(DeltaArguments& arguments) {
  DeltaBenchOptions& options = arguments.options;
  options.sizes_bytes.clear();
  for (const std::string& size : arguments.sizes) {
    WC_ASSIGN(options.sizes_bytes.emplace_back(), parse_bytes(size));
  }
  WC_ASSIGN(options.single_copy_bytes_min, parse_bytes(arguments.single_copy_from));
  WC_ASSIGN(options.link, parse_rate(arguments.link));
  print_now(delta_heading());
  WC_ASSIGN(const auto cases, run_delta_bench(options, [](const DeltaBenchCase& one) { print_now(delta_line(one)); }));
  for (const DeltaLines& size : cpu_lines(cases)) {
    print_line(size, "origin", size.origin);
    print_line(size, "worker", size.worker);
  }
  WC_TRY(write_json(options.flags.json_path, to_json(cases)));
  return write_result(options.flags.svg_path, to_svg(delta_figure(cases)));
}

}  // namespace

void add_delta_command(CLI::App& app) {
  const auto [command, arguments] =
      add_bench<DeltaArguments>(app, "delta", "What a step costs that is published as changes, at both ends", run);
  DeltaBenchOptions& options = arguments->options;
  command->add_option("--size", arguments->sizes, "All tensors together")->delimiter(',')->check(bytes_validator());
  command
      ->add_option("--single-copy-from", arguments->single_copy_from,
                   "From this size on the worker has --single-copy, for hosts without room for two")
      ->check(bytes_validator());
  command->add_option("--tensors", options.tensors, "Number of tensors")
      ->check(CLI::Range(std::size_t{1}, std::size_t{100000}));
  command->add_option("--changed", options.changed_shares, "Shares of the cells that a step changes")
      ->delimiter(',')
      ->check(CLI::Range(1e-6, 0.4));
  command->add_option("--steps", options.steps, "Steps that are measured")->check(CLI::Range(1u, 10000u));
  command->add_option("--interval", options.interval_s, "Seconds from step to step, at least")
      ->check(CLI::Range(0.0, 3600.0));
  command->add_option("--link", arguments->link, "What either node may send and receive")->check(rate_validator());
  options.flags.add_to(*command);
  command->add_option("--plot", options.flags.svg_path, "Also draw the seconds of a step over the changed share");
}

}  // namespace weightcast::bench
