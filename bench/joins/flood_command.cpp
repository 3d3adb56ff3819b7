#include <fmt/format.h>

#include <cstdio>

#include "bench/add_bench.h"
#include "bench/commands.h"
#include "bench/joins/flood_bench.h"

namespace weightcast::bench {
namespace {

struct FloodArguments {
  LinkFlags links;
  FloodBenchOptions options;
};

Status run(FloodArguments& arguments) {
  WC_ASSIGN(arguments.options.links, arguments.links.parse());
  WC_ASSIGN(const auto cases, run_flood_bench(arguments.options, [](const FloodCase& c) {
              fmt::print(
                  "quiet {:.3f} s, flooded {:.3f} s: {:.3f}; the origin took {:.2f} and {:.2f} CPU s; {} half-open "
                  "connections at the end and {} made, {} joins refused meanwhile\n",
                  c.quiet_s, c.flooded_s, c.ratio(), c.origin_cpu_quiet_s, c.origin_cpu_flooded_s, c.stranger.open,
                  c.stranger.connections, c.stranger.refused);
              std::fflush(stdout);
            }));
  return write_json(arguments.options.flags.json_path, to_json(cases));
}

}  // namespace

void add_flood_command(CLI::App& app) {
  const auto [command, arguments] =
      add_bench<FloodArguments>(app, "flood", "What strangers at the origin's port cost a publication", run);
  FloodBenchOptions& options = arguments->options;
  arguments->links.add_to(*command);
  command->add_option("--workers", options.workers, "Workers")->check(CLI::Range(std::size_t{1}, std::size_t{100}));
  command->add_option("--half-open", options.stranger.half_open, "Connections that say nothing")
      ->check(CLI::Range(std::size_t{0}, std::size_t{10000}));
  command->add_option("--joins", options.stranger.joins_per_s, "Joins a second with another cluster's keys")
      ->check(CLI::Range(0.0, 10000.0));
  command->add_option("--repeat", options.repetitions, "Pairs of publications")->check(CLI::Range(1u, 1000u));
  options.flags.add_to(*command);
}

}  // namespace weightcast::bench
