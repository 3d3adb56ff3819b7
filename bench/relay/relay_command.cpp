#include "bench/commands.h"

#include <fmt/format.h>

#include <cstdio>

#include "bench/add_bench.h"
#include "bench/relay/relay_bench.h"
#include "tools/command.h"

namespace weightcast::bench {
namespace {

struct RelayArguments {
  std::string size = "512MiB";
  RelayBenchOptions options;
};

Status run(RelayArguments& arguments) {
  WC_ASSIGN(arguments.options.payload_bytes, parse_bytes(arguments.size));
  fmt::print("Three publications first, to warm up; they are not shown.\n{}\n", relay_heading());
  std::fflush(stdout);
  WC_ASSIGN(const auto cases, run_relay_bench(arguments.options, [](const RelayCase& c) { print_now(relay_line(c)); }));
  return write_json(arguments.options.flags.json_path, to_json(cases));
}

}  // namespace

void add_relay_command(CLI::App& app) {
  const auto [command, arguments] =
      add_bench<RelayArguments>(app, "relay", "Throughput of one hop of store and forward, without limits", run);
  command->add_option("--size", arguments->size, "Payload")->check(bytes_validator());
  command->add_option("--repeat", arguments->options.repetitions, "Repetitions, each of the plain way and of ours")
      ->check(CLI::Range(1u, 1000u));
  arguments->options.flags.add_to(*command);
}

}  // namespace weightcast::bench
