#include "bench/commands.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdio>
#include <thread>

#include "base/units.h"
#include "bench/add_bench.h"
#include "bench/codec/packed_bench.h"

namespace weightcast::bench {
namespace {

struct PackedArguments {
  PackedBenchOptions options;
  std::string size = "1GiB";
  std::string json_path;
};

Status run(PackedArguments& arguments) {
  WC_ASSIGN(arguments.options.size_bytes, parse_bytes(arguments.size));
  fmt::print("{}\n", packed_table_heading());
  const auto print = [](const PackedCase& packed_case) { print_now(packed_table_line(packed_case)); };
  const auto skipped = [](const Error& why) { fmt::print(stderr, "skipped: {}\n", why.message()); };
  WC_ASSIGN(const auto cases, run_packed_bench(arguments.options, print, skipped));
  return write_json(arguments.json_path, to_json(cases));
}

}  // namespace

void add_packed_command(CLI::App& app) {
  const auto [command, arguments] =
      add_bench<PackedArguments>(app, "packed", "Sizes and speeds of packing full snapshots, beside other codecs", run);
  PackedBenchOptions& options = arguments->options;
  options.threads = std::max(1u, std::thread::hardware_concurrency());
  command->add_option("--size", arguments->size, "Of each content");
  command->add_option("--repetitions", options.repetitions, "Timed rounds, of which the best counts")
      ->check(CLI::Range(1u, 1000u));
  command->add_option("--content", options.contents, "Only these contents: bf16, f16, f8, moments")->delimiter(',');
  command->add_option("--packer", options.packers, "Only these packers, as weightcast-avx2 or zstd-1")->delimiter(',');
  command->add_option("--json", arguments->json_path, "Also write the cases to this file");
}

}  // namespace weightcast::bench
