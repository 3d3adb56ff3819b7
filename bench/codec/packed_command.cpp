#include "bench/commands.h"

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <fstream>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <thread>

#include "base/json_text.h"
#include "base/units.h"
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
  const auto print = [](const PackedCase& packed_case) {
    fmt::print("{}\n", packed_table_line(packed_case));
    std::fflush(stdout);
  };
  const auto skipped = [](const Error& why) { fmt::print(stderr, "skipped: {}\n", why.message()); };
  WC_ASSIGN(const auto cases, run_packed_bench(arguments.options, print, skipped));
  if (arguments.json_path.empty()) return {};
  std::ofstream file(arguments.json_path, std::ios::binary);
  file << json_text(to_json(cases), 2) << "\n" << std::flush;
  if (!file.good()) return fail_errno(errno, Op::kWrite, arguments.json_path);
  return {};
}

}  // namespace

void add_packed_command(CLI::App& app) {
  // Shared with the callback, which outlives this call.
  const auto arguments = std::make_shared<PackedArguments>();
  PackedBenchOptions& options = arguments->options;
  options.threads = std::max(1u, std::thread::hardware_concurrency());

  CLI::App* command = app.add_subcommand("packed", "Sizes and speeds of packing full snapshots, beside other codecs");
  command->add_option("--size", arguments->size, "Of each content")->capture_default_str();
  command->add_option("--repetitions", options.repetitions, "Timed rounds, of which the best counts")
      ->capture_default_str()
      ->check(CLI::Range(1u, 1000u));
  command->add_option("--seed", options.seed, "Of the contents")->capture_default_str();
  command->add_option("--content", options.contents, "Only these contents: bf16, f16, f8, moments")->delimiter(',');
  command->add_option("--packer", options.packers, "Only these packers, as weightcast-avx2 or zstd-1")->delimiter(',');
  command->add_option("--json", arguments->json_path, "Also write the cases to this file");
  command->callback([arguments] {
    if (const Status status = run(*arguments); !status.has_value()) {
      fmt::print(stderr, "weightcast-bench: {}\n", status.error().message());
      throw CLI::RuntimeError(1);
    }
  });
}

}  // namespace weightcast::bench
