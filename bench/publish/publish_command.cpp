#include "bench/commands.h"

#include <fmt/format.h>

#include "bench/add_bench.h"
#include "bench/publish/publish_bench.h"
#include "bench/publish/sparse_bench.h"
#include "tools/command.h"

namespace weightcast::bench {
namespace {

struct PublishArguments {
  std::string size = "1GiB";
  PublishBenchOptions options;
  double changed_share = 0;
};

Status run_sparse(const PublishArguments& arguments) {
  SparseBenchOptions options;
  options.tensor_bytes = arguments.options.tensor_bytes;
  options.tensors = arguments.options.tensors;
  options.changed_share = arguments.changed_share;
  options.repetitions = arguments.options.repetitions;
  WC_ASSIGN(const SparseBenchResult result, run_sparse_bench(options));
  const auto show = [](const PublicationCost& cost) {
    return fmt::format("own copy after {:.3f} s, patch after {:.3f} s ({:.2f} CPU s)", cost.copied_s, cost.encoded_s,
                       cost.cpu_s);
  };
  fmt::print(
      "{} with {} of changes, a patch of {}: whole: {}; as changes: {}, {} of {} in place; {:.3f} of the time; one "
      "copy in memory takes {:.3f} s\n",
      format_bytes(result.tensor_bytes), format_bytes(result.changes_bytes), format_bytes(result.patch_bytes),
      show(result.whole), show(result.sparse), result.in_place, options.repetitions, result.ratio(),
      result.memory_floor_s);
  return write_json(arguments.options.flags.json_path, to_json(result));
}

Status run(PublishArguments& arguments) {
  WC_ASSIGN(arguments.options.tensor_bytes, parse_bytes(arguments.size));
  if (arguments.changed_share > 0) return run_sparse(arguments);
  WC_ASSIGN(const PublishBenchResult result, run_publish_bench(arguments.options));
  fmt::print(
      "{} in {} tensors: begin {:.3f} ms, fill {:.3f} s, commit {:.3f} ms (begin and commit at most {:.3f} ms); {:.2f} "
      "times one copy in memory ({:.3f} s); {} of memory beside the tensors; the origin has its own copy after {:.3f} "
      "s\n",
      format_bytes(result.tensor_bytes), result.tensors, 1e3 * result.begin_s, result.fill_s, 1e3 * result.commit_s,
      1e3 * result.calls_s_max, result.ratio(), result.copy_s, format_bytes(result.extra_bytes), result.taken_s);
  return write_json(arguments.options.flags.json_path, to_json(result));
}

}  // namespace

void add_publish_command(CLI::App& app) {
  const auto [command, arguments] =
      add_bench<PublishArguments>(app, "publish", "What publishing from memory costs the trainer", run);
  command->add_option("--size", arguments->size, "All tensors together")->check(bytes_validator());
  command->add_option("--tensors", arguments->options.tensors, "Number of tensors")
      ->check(CLI::Range(std::size_t{1}, std::size_t{100000}));
  command->add_option("--repeat", arguments->options.repetitions, "Repetitions, after one that is shown apart")
      ->check(CLI::Range(1u, 1000u));
  command
      ->add_option("--changed", arguments->changed_share,
                   "Compare publishing a step that changes this share of the cells, whole and as a list of changes")
      ->check(CLI::Range(1e-6, 0.5))
      ->default_str("");
  arguments->options.flags.add_to(*command);
}

}  // namespace weightcast::bench
