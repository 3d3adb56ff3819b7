#include "bench/commands.h"

#include <fmt/format.h>

#include <cmath>

#include "bench/add_bench.h"
#include "bench/predict/predict_bench.h"
#include "tools/command.h"

namespace weightcast::bench {
namespace {

struct PredictArguments {
  LinkFlags links;
  std::vector<std::string> topologies{"star", "chain", "tree", "striped"};
  double delay_ms = 0.1;
  double overestimate_max = 0;
  PredictBenchOptions options;
};

Status run(PredictArguments& arguments) {
  PredictBenchOptions& options = arguments.options;
  WC_ASSIGN(options.links, arguments.links.parse());
  options.one_way_delay = from_seconds(arguments.delay_ms / 1e3);
  for (const std::string& name : arguments.topologies) {
    WC_ASSIGN(const Topology topology, parse_topology(name));
    options.topologies.push_back(topology);
  }
  print_now(predict_heading());
  WC_ASSIGN(const auto cases, run_predict_bench(options, [](const PredictCase& c) { print_now(predict_line(c)); }));
  WC_TRY(write_json(options.flags.json_path, to_json(cases)));
  WC_TRY(write_result(options.flags.svg_path, to_svg(predict_figure(cases))));
  for (const PredictCase& c : cases) {
    const auto error = c.error();
    if (arguments.overestimate_max <= 0 || !error || *error <= arguments.overestimate_max) continue;
    return fail(
        Errc::kCorrupt, Op::kVerify,
        fmt::format(
            "{} to {} workers: the simulation predicts a t100 that is {:.1f} % too long, more than --overestimate-max",
            to_string(c.real.topology), c.real.peers.size(), 100 * *error));
  }
  return {};
}

}  // namespace

void add_predict_command(CLI::App& app) {
  const auto [command, arguments] =
      add_bench<PredictArguments>(app, "predict", "The simulation's prediction beside what real processes do", run);
  PredictBenchOptions& options = arguments->options;
  options.measured_workers = {3, 6, 12, 24};
  command->add_option("--workers", options.measured_workers, "Numbers of workers to measure and simulate")
      ->delimiter(',')
      ->check(CLI::Range(std::size_t{1}, std::size_t{1000}));
  command->add_option("--simulate", options.further_workers, "Further numbers of workers, only to simulate")
      ->delimiter(',')
      ->check(CLI::Range(std::size_t{1}, std::size_t{10000}));
  arguments->links.add_to(*command);
  command->add_option("--topology", arguments->topologies, "star, chain, tree, striped or auto")
      ->delimiter(',')
      ->check(topology_validator());
  command->add_option("--delay-ms", arguments->delay_ms, "One-way delay of the simulated network")
      ->check(CLI::Range(0.0, 60'000.0));
  command
      ->add_option("--overestimate-max", arguments->overestimate_max,
                   "Fail if a simulated t100 is longer than the real one by more than this share")
      ->check(CLI::Range(0.0, 10.0))
      ->default_str("");
  options.flags.add_to(*command);
  command->add_option("--svg", options.flags.svg_path, "Also draw time against the number of workers");
}

}  // namespace weightcast::bench
