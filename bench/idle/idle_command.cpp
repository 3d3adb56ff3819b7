#include "bench/commands.h"

#include <fmt/format.h>

#include "bench/add_bench.h"
#include "bench/idle/idle_bench.h"

namespace weightcast::bench {
namespace {

struct IdleArguments {
  double seconds = 10;
  IdleBenchOptions options;
};

Status run(IdleArguments& arguments) {
  arguments.options.duration = from_seconds(arguments.seconds);
  WC_ASSIGN(const IdleResult result, run_idle_bench(arguments.options));
  fmt::print("{} idle workers for {:.1f} s: the origin used {:.2f} % of a core, each worker {:.3f} %\n", result.workers,
             result.seconds, 100 * result.origin_cpu_share, 100 * result.worker_cpu_share);
  fmt::print("one more worker: from its start until it had installed 64 KiB, {:.1f} ms\n",
             1e3 * result.join_to_installed_s);
  return write_json(arguments.options.flags.json_path, to_json(result));
}

}  // namespace

void add_idle_command(CLI::App& app) {
  const auto [command, arguments] =
      add_bench<IdleArguments>(app, "idle", "What a fleet costs that has nothing to do, and how fast one joins", run);
  command->add_option("--workers", arguments->options.workers, "Workers, all on loopback")
      ->check(CLI::Range(std::size_t{1}, std::size_t{1000}));
  command->add_option("--seconds", arguments->seconds, "How long to look")->check(CLI::Range(0.1, 3600.0));
  arguments->options.flags.add_to(*command);
}

}  // namespace weightcast::bench
