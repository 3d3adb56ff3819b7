#include "bench/commands.h"

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <cstdio>
#include <memory>

#include "base/json_text.h"
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
  fmt::print("One warm-up publication first; it is not shown.\n{}\n", relay_heading());
  std::fflush(stdout);
  WC_ASSIGN(const auto cases, run_relay_bench(arguments.options, [](const RelayCase& c) {
              fmt::print("{}\n", relay_line(c));
              std::fflush(stdout);
            }));
  return write_result(arguments.options.flags.json_path, json_text(to_json(cases), 2) + "\n");
}

}  // namespace

void add_relay_command(CLI::App& app) {
  const auto arguments = std::make_shared<RelayArguments>();
  CLI::App* command = app.add_subcommand("relay", "Throughput of one hop of store and forward, without limits");
  command->add_option("--size", arguments->size, "Payload")->check(bytes_validator())->capture_default_str();
  command->add_option("--repeat", arguments->options.repetitions, "Repetitions, each of the plain way and of ours")
      ->check(CLI::Range(1u, 1000u))
      ->capture_default_str();
  arguments->options.flags.add_to(*command);
  command->callback([arguments] { run_bench([&] { return run(*arguments); }); });
}

}  // namespace weightcast::bench
