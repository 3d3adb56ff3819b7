#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <memory>

#include "base/json_text.h"
#include "bench/commands.h"
#include "bench/joins/joins_bench.h"

namespace weightcast::bench {
namespace {

Status run(const JoinsBenchOptions& options) {
  WC_ASSIGN(const JoinsResult result, run_joins_bench(options));
  fmt::print(
      "{} workers join at once: all in after {:.3f} s ({:.2f} CPU s of both ends); again, with tickets, after {:.3f} s "
      "({:.2f} CPU s)\n",
      result.workers, result.first_s, result.first_cpu_s, result.again_s, result.again_cpu_s);
  fmt::print("memory of the origin for each idle worker: {:.1f} KiB\n", result.origin_bytes_per_worker / kKiB);
  return write_result(options.flags.json_path, json_text(to_json(result), 2) + "\n");
}

}  // namespace

void add_joins_command(CLI::App& app) {
  const auto options = std::make_shared<JoinsBenchOptions>();
  CLI::App* command = app.add_subcommand("joins", "Many workers that join at once, and what each takes of the origin");
  command->add_option("--workers", options->workers, "Workers, all on loopback")
      ->check(CLI::Range(std::size_t{1}, std::size_t{1000}))
      ->capture_default_str();
  options->flags.add_to(*command);
  command->callback([options] { run_bench([&] { return run(*options); }); });
}

}  // namespace weightcast::bench
