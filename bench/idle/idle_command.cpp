#include "bench/commands.h"

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <memory>

#include "base/json_text.h"
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
  return write_result(arguments.options.flags.json_path, json_text(to_json(result), 2) + "\n");
}

}  // namespace

void add_idle_command(CLI::App& app) {
  const auto arguments = std::make_shared<IdleArguments>();
  CLI::App* command = app.add_subcommand("idle", "What a fleet costs that has nothing to do, and how fast one joins");
  command->add_option("--workers", arguments->options.workers, "Workers, all on loopback")
      ->check(CLI::Range(std::size_t{1}, std::size_t{1000}))
      ->capture_default_str();
  command->add_option("--seconds", arguments->seconds, "How long to look")
      ->check(CLI::Range(0.1, 3600.0))
      ->capture_default_str();
  arguments->options.flags.add_to(*command);
  command->callback([arguments] { run_bench([&] { return run(*arguments); }); });
}

}  // namespace weightcast::bench
