#include "bench/commands.h"

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <memory>

#include "base/json_text.h"
#include "bench/publish/publish_bench.h"
#include "tools/command.h"

namespace weightcast::bench {
namespace {

struct PublishArguments {
  std::string size = "1GiB";
  PublishBenchOptions options;
};

Status run(PublishArguments& arguments) {
  WC_ASSIGN(arguments.options.tensor_bytes, parse_bytes(arguments.size));
  WC_ASSIGN(const PublishBenchResult result, run_publish_bench(arguments.options));
  fmt::print(
      "{} in {} tensors: begin {:.3f} ms, fill {:.3f} s, commit {:.3f} ms (begin and commit at most {:.3f} ms); {:.2f} "
      "times one copy in memory ({:.3f} s); {} of memory beside the tensors; the origin has its own copy after {:.3f} "
      "s\n",
      format_bytes(result.tensor_bytes), result.tensors, 1e3 * result.begin_s, result.fill_s, 1e3 * result.commit_s,
      1e3 * result.calls_s_max, result.ratio(), result.copy_s, format_bytes(result.extra_bytes), result.taken_s);
  return write_result(arguments.options.flags.json_path, json_text(to_json(result), 2) + "\n");
}

}  // namespace

void add_publish_command(CLI::App& app) {
  const auto arguments = std::make_shared<PublishArguments>();
  CLI::App* command = app.add_subcommand("publish", "What publishing from memory costs the trainer");
  command->add_option("--size", arguments->size, "All tensors together")
      ->check(bytes_validator())
      ->capture_default_str();
  command->add_option("--tensors", arguments->options.tensors, "Number of tensors")
      ->check(CLI::Range(std::size_t{1}, std::size_t{100000}))
      ->capture_default_str();
  command->add_option("--repeat", arguments->options.repetitions, "Repetitions, after one that is shown apart")
      ->check(CLI::Range(1u, 1000u))
      ->capture_default_str();
  arguments->options.flags.add_to(*command);
  command->callback([arguments] { run_bench([&] { return run(*arguments); }); });
}

}  // namespace weightcast::bench
