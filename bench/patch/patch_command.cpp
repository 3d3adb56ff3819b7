#include "bench/commands.h"

#include <fmt/format.h>

#include "bench/add_bench.h"
#include "bench/patch/patch_bench.h"

namespace weightcast::bench {
namespace {

struct PatchArguments {
  LinkFlags links{.size = "1GiB"};
  PatchBenchOptions options;
};

Status run(PatchArguments& arguments) {
  PatchBenchOptions& options = arguments.options;
  WC_ASSIGN(options.links, arguments.links.parse());
  WC_ASSIGN(const PatchBenchResult result, run_patch_bench(options));
  fmt::print(
      "version  kind   payload     line s   take s   encode s   first s  t50 s    t100 s   transfer s  finish s   "
      "switch ms  CPU s  stolen s\n");
  for (const PatchBenchCase& c : result.cases) {
    fmt::print(
        "{:<8} {:<6} {:<11} {:<8.3f} {:<8.3f} {:<10.3f} {:<8.3f} {:<8} {:<8} {:<11.3f} {:<10.3f} {:<10.3f} {:<6.2f} "
        "{:.2f}\n",
        c.version, c.kind, format_bytes(c.payload_bytes), c.line_s, c.take_s, c.encode_s, c.first_sent_s,
        seconds_or_dash(c.t50_s), seconds_or_dash(c.t100_s), c.transfer_s, c.finish_s, 1e3 * c.switch_s, c.cpu_s,
        c.stolen_s);
  }
  fmt::print("ten steps: {} as ten patches, {} as one fold ({:.2f})\n", format_bytes(result.steps_bytes),
             format_bytes(result.fold_bytes), double(result.fold_bytes) / double(result.steps_bytes));
  return write_json(options.flags.json_path, to_json(result));
}

}  // namespace

void add_patch_command(CLI::App& app) {
  const auto [command, arguments] =
      add_bench<PatchArguments>(app, "patch", "Versions of an optimiser's steps through a fleet, as patches", run);
  PatchBenchOptions& options = arguments->options;
  arguments->links.add_to(*command);
  command->add_option("--workers", options.workers, "How many")->check(CLI::Range(1, 1000));
  command->add_option("--steps", options.steps, "Versions after the first")->check(CLI::Range(1u, 100u));
  options.flags.add_to(*command);
}

}  // namespace weightcast::bench
