#include "bench/commands.h"

#include <fmt/format.h>

#include <algorithm>
#include <thread>

#include "bench/add_bench.h"
#include "bench/codec/codec_bench.h"

namespace weightcast::bench {
namespace {

struct CodecArguments {
  CodecBenchOptions options;
  std::string json_path;
  std::string sizes_path;
};

Status run(const CodecArguments& arguments) {
  if (!arguments.sizes_path.empty()) {
    WC_ASSIGN(const std::string table, size_table(arguments.options.threads));
    return write_result(arguments.sizes_path, table);
  }
  fmt::print("{}\n", table_heading());
  WC_ASSIGN(const auto cases,
            run_codec_bench(arguments.options, [](const CodecCase& codec_case) { print_now(table_line(codec_case)); }));
  return write_json(arguments.json_path, to_json(cases));
}

}  // namespace

void add_codec_command(CLI::App& app) {
  const auto [command, arguments] = add_bench<const CodecArguments>(
      app, "codec", "Sizes and speeds of patch codecs on traces of a real optimiser", run);
  CodecBenchOptions& options = arguments->options;
  options.threads = std::max(1u, std::thread::hardware_concurrency());
  command->add_option("--cells", options.cells_min, "Cells of each trace, at least");
  command->add_option("--threads", options.threads, "For making traces, and for codecs that use several");
  command->add_option("--repetitions", options.repetitions, "Timed rounds, of which the best counts")
      ->check(CLI::Range(1u, 1000u));
  command->add_option("--trace", options.traces, "Only these traces")->delimiter(',');
  command->add_option("--codec", options.codecs, "Only these codecs")->delimiter(',');
  command->add_option("--json", arguments->json_path, "Also write the cases to this file");
  command->add_option("--update-sizes", arguments->sizes_path,
                      "Measure nothing; write the table of patch sizes (bench/codec/sizes.csv) to this file");
}

}  // namespace weightcast::bench
