#include <fmt/format.h>

#include "bench/add_bench.h"
#include "bench/commands.h"
#include "bench/fleet/interrupt.h"
#include "bench/publish/threads_bench.h"
#include "tools/command.h"
#include "transport/io/log.h"

namespace weightcast::bench {
namespace {

struct ThreadsArguments {
  std::string size = "1GiB";
  std::string json_path;
  ThreadsBenchOptions options;
};

Status run(ThreadsArguments& arguments) {
  WC_ASSIGN(arguments.options.tensor_bytes, parse_bytes(arguments.size));
  set_up_log("warning", {});
  hold_interrupts();
  WC_ASSIGN(const auto cases, run_threads_bench(arguments.options));
  fmt::print("{} of BF16; seconds, and how many times as fast as by {} of them\n", arguments.size, cases[0].threads);
  fmt::print("threads  copy            take over       scan            compare         pack            unpack\n");
  for (const ThreadsBenchCase& one : cases) {
    fmt::print("{:<8}", one.threads);
    for (const auto which : {&ThreadsBenchCase::copy_s, &ThreadsBenchCase::take_over_s, &ThreadsBenchCase::scan_s,
                             &ThreadsBenchCase::compare_s, &ThreadsBenchCase::pack_s, &ThreadsBenchCase::unpack_s}) {
      fmt::print(" {:<15}", fmt::format("{:.3f} ({:.2f})", one.*which, cases[0].*which / (one.*which)));
    }
    fmt::print("\n");
  }
  return write_json(arguments.json_path, to_json(cases));
}

}  // namespace

void add_threads_command(CLI::App& app) {
  const auto [command, arguments] =
      add_bench<ThreadsArguments>(app, "threads", "What is proportional to the model, by how many threads", run);
  ThreadsBenchOptions& options = arguments->options;
  command->add_option("--size", arguments->size, "All tensors together")->check(bytes_validator());
  command->add_option("--threads", options.threads, "Numbers of threads; the first is compared with")
      ->delimiter(',')
      ->check(CLI::Range(1, 64));
  command->add_option("--repeat", options.repetitions, "Repetitions")->check(CLI::Range(1u, 1000u));
  command->add_option("--json", arguments->json_path, "Also write the result to this file");
}

}  // namespace weightcast::bench
