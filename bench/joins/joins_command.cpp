#include <fmt/format.h>

#include "bench/add_bench.h"
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
  return write_json(options.flags.json_path, to_json(result));
}

}  // namespace

void add_joins_command(CLI::App& app) {
  const auto [command, options] = add_bench<const JoinsBenchOptions>(
      app, "joins", "Many workers that join at once, and what each takes of the origin", run);
  command->add_option("--workers", options->workers, "Workers, all on loopback")
      ->check(CLI::Range(std::size_t{1}, std::size_t{1000}));
  options->flags.add_to(*command);
}

}  // namespace weightcast::bench
