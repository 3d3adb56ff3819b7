#include <fmt/format.h>

#include "base/units.h"
#include "bench/add_bench.h"
#include "bench/commands.h"
#include "bench/optimiser/optimiser_bench.h"

namespace weightcast::bench {
namespace {

struct OptimiserArguments {
  OptimiserBenchOptions options;
  std::string json_path;
};

Status run(const OptimiserArguments& arguments) {
  WC_ASSIGN(const OptimiserBenchResult result, run_optimiser_bench(arguments.options));
  fmt::print(
      "{} cells, {} threads: an update takes {:.1f} ms, {:.2f} GB/s of 28 bytes a cell; a plain loop over those {:.1f} "
      "ms, {:.2f} GB/s; {:.2f} times that, {:.2f} by processor time; {:.2f} % of the cells changed, listed in {:.1f} "
      "ms\n",
      result.cells, arguments.options.threads, 1e3 * result.update_s, result.gb_per_s(result.update_s),
      1e3 * result.stream_s, result.gb_per_s(result.stream_s), result.ratio(), result.cpu_ratio(),
      100 * result.changed_share, 1e3 * result.take_changes_s);
  return write_json(arguments.json_path, to_json(result));
}

}  // namespace

void add_optimiser_command(CLI::App& app) {
  const auto [command, arguments] =
      add_bench<const OptimiserArguments>(app, "optimiser", "AdamW against a plain loop over the same memory", run);
  OptimiserBenchOptions& options = arguments->options;
  command->add_option("--cells", options.cells, "Weights, in 16 tensors")
      ->check(CLI::Range(std::uint64_t{16}, std::uint64_t{1} << 36));
  command->add_option("--threads", options.threads, "Threads of both")->check(CLI::Range(1u, 256u));
  command->add_option("--learning-rate", options.learning_rate, "It decides how many cells change")
      ->check(CLI::Range(0.0, 1.0));
  command->add_flag("--bf16-gradients", options.bf16_gradients, "Gradients are BF16, not FP32");
  command->add_option("--repeat", options.repetitions, "Repetitions, after one that does not count")
      ->check(CLI::Range(1u, 1000u));
  command->add_option("--json", arguments->json_path, "Write the result to this file; - is stdout");
}

}  // namespace weightcast::bench
