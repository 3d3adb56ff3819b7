#include <fmt/format.h>

#include "base/units.h"
#include "bench/add_bench.h"
#include "bench/codec/listed_bench.h"
#include "bench/commands.h"

namespace weightcast::bench {
namespace {

struct ListedArguments {
  ListedBenchOptions options;
  std::string size = "1GiB";
};

Status run(ListedArguments& arguments) {
  WC_ASSIGN(arguments.options.size_bytes, parse_bytes(arguments.size));
  fmt::print("{}\n", listed_table_heading());
  WC_TRY(run_listed_bench(arguments.options,
                          [](const ListedCase& listed_case) { print_now(listed_table_line(listed_case)); }));
  return {};
}

}  // namespace

void add_listed_command(CLI::App& app) {
  const auto [command, arguments] =
      add_bench<ListedArguments>(app, "listed",
                                 "Lists of changes beside the modelled form: bits per change, and processor seconds "
                                 "per GiB of encoding and of each step of a receiver",
                                 run);
  ListedBenchOptions& options = arguments->options;
  command->add_option("--size", arguments->size, "Of the snapshot, BF16");
  command->add_option("--changed", options.shares, "Shares of the cells that change")->delimiter(',');
  command->add_option("--repetitions", options.repetitions, "Timed rounds, of which the best counts")
      ->check(CLI::Range(1u, 1000u));
}

}  // namespace weightcast::bench
