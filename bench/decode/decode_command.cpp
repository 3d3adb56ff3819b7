#include <fmt/format.h>

#include "base/units.h"
#include "bench/add_bench.h"
#include "bench/commands.h"
#include "bench/decode/decode_bench.h"
#include "bench/decode/install_bench.h"
#include "bench/fleet/interrupt.h"

namespace weightcast::bench {
namespace {

struct DecodeArguments {
  DecodeBenchOptions options;
  std::string dtype = "bfloat16";
  std::string json_path;
};

Status run(DecodeArguments& arguments) {
  arguments.options.bfloat16 = arguments.dtype == "bfloat16";
  WC_ASSIGN(const DecodeBenchResult result, run_decode_bench(arguments.options));
  fmt::print("{:.2f} GiB of {} weights, {} threads, kernels {}; {:.2f} GiB resident\n",
             static_cast<double>(result.weight_bytes) / kGiB, arguments.dtype, arguments.options.threads,
             result.kernels, static_cast<double>(result.resident_bytes) / kGiB);
  for (const DecodeCase& one : result.cases) {
    fmt::print(
        "batch {}: a step takes {:.1f} ms ({:.1f} of processor time), {:.1f} tokens/s; reading the weights once {:.1f} "
        "ms ({:.1f}), {:.1f} GB/s, {:.2f} of that bound; LibTorch's products {:.1f} ms ({:.1f}), {:.2f} of their "
        "speed\n",
        one.batch, 1e3 * one.step_s, 1e3 * one.step_cpu_s, one.tokens_per_s(), 1e3 * one.read_s, 1e3 * one.read_cpu_s,
        1e-9 * static_cast<double>(result.token_bytes) / one.read_s, one.read_cpu_s / one.step_cpu_s,
        1e3 * one.products_s, 1e3 * one.products_cpu_s, one.products_cpu_s / one.step_cpu_s);
  }
  return write_json(arguments.json_path, to_json(result));
}

struct InstallArguments {
  InstallBenchOptions options;
  std::string json_path;
};

Status run_install(const InstallArguments& arguments) {
  hold_interrupts();
  WC_ASSIGN(const InstallBenchResult result, run_install_bench(arguments.options));
  fmt::print(
      "{:.1f} MiB of bfloat16 weights, {} cells changed; mapped: prepared in {:.1f} ms, switched in {:.3f} ms; "
      "resident: prepared in {:.1f} ms, or by a list in {:.1f} ms, {:.1f} MiB written in {:.2f} ms, switched in {:.3f} "
      "ms\n",
      static_cast<double>(result.weight_bytes) / kMiB, result.changed_cells, 1e3 * result.open_s, 1e3 * result.switch_s,
      1e3 * result.compare_s, 1e3 * result.list_s, static_cast<double>(result.written_bytes) / kMiB,
      1e3 * result.write_s, 1e3 * result.resident_switch_s);
  return write_json(arguments.json_path, to_json(result));
}

}  // namespace

void add_install_command(CLI::App& app) {
  const auto [command, arguments] =
      add_bench<const InstallArguments>(app, "install", "How long the engine pauses for a version", run_install);
  InstallBenchOptions& options = arguments->options;
  command->add_option("--weights", options.weight_bytes, "About so many bytes of weights")
      ->transform(CLI::AsSizeValue(false));
  command->add_option("--repeat", options.repetitions, "Versions of each kind")->check(CLI::Range(1u, 1000u));
  command->add_option("--json", arguments->json_path, "Write the result to this file; - is stdout");
}

void add_decode_command(CLI::App& app) {
  const auto [command, arguments] = add_bench<DecodeArguments>(
      app, "decode", "Decoding steps of the engine against memory and against products", run);
  DecodeBenchOptions& options = arguments->options;
  command->add_option("--weights", options.weight_bytes, "About so many bytes of weights")
      ->transform(CLI::AsSizeValue(false));
  command->add_option("--dtype", arguments->dtype, "Of the weights")->check(CLI::IsMember({"float32", "bfloat16"}));
  command->add_option("--batch", options.batches, "Sequences of a step: 1,32")
      ->delimiter(',')
      ->check(CLI::Range(std::size_t{1}, std::size_t{256}));
  command->add_option("--prompt", options.prompt_tokens, "Tokens of each prompt")
      ->check(CLI::Range(std::size_t{1}, std::size_t{4096}));
  command->add_option("--steps", options.steps, "Steps of each batch, after one that does not count")
      ->check(CLI::Range(std::size_t{1}, std::size_t{10000}));
  command->add_option("--threads", options.threads, "Of the engine, the reading and the products")
      ->check(CLI::Range(1u, 256u));
  command->add_option("--kernels", options.kernels, "plain, avx2, avx512 or amx; the best by default");
  command->add_option("--json", arguments->json_path, "Write the result to this file; - is stdout");
}

}  // namespace weightcast::bench
