#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <chrono>
#include <cstring>
#include <vector>

#include "base/json_of.h"
#include "base/parallel.h"
#include "base/random.h"
#include "bench/add_bench.h"
#include "bench/commands.h"
#include "bench/optimiser/stream_loop.h"
#include "bench/times.h"
#include "trainer/optimiser/adamw.h"

namespace weightcast::bench {
namespace {

struct OptimiserBenchOptions {
  std::uint64_t cells = std::uint64_t{64} << 20;  ///< in 16 tensors
  unsigned threads = 1;
  double learning_rate = 1e-6;
  bool bf16_gradients = false;
  std::uint32_t repetitions = 7;
  std::string json_path;
};

/// One update of BF16 weights with their FP32 state, beside a plain loop over the same memory. Medians of wall-clock
/// time over the repetitions, which take turns.
struct OptimiserBenchResult {
  /// What an update cannot avoid: 7 reads and writes of 4 bytes per cell. BF16 weights, their comparison, and the
  /// norm's read of the gradients come on top.
  static constexpr std::uint64_t kFloorBytesPerCell = 28;

  std::uint64_t cells = 0;
  double stream_s = 0;      ///< the floor: a loop that reads four arrays and writes three
  double update_s = 0;      ///< norm, clipping, update, rounding, comparison
  double stream_cpu_s = 0;  ///< of all threads, as update_cpu_s: what other work on the machine distorts less
  double update_cpu_s = 0;
  double take_changes_s = 0;  ///< the changed cells of one update as lists
  double changed_share = 0;   ///< of the cells, in the last update

  [[nodiscard]] double gb_per_s(double seconds) const {
    return 1e-9 * static_cast<double>(cells * kFloorBytesPerCell) / seconds;
  }
  [[nodiscard]] double ratio() const { return update_s / stream_s; }
  [[nodiscard]] double cpu_ratio() const { return update_cpu_s / stream_cpu_s; }
};

constexpr std::size_t kTensors = 16;
constexpr std::size_t kStreamBlock = std::size_t{1} << 16;

Bf16Bits cut(float value) { return static_cast<Bf16Bits>(std::bit_cast<std::uint32_t>(value) >> 16); }

/// Roughly as weights are spread.
float draw(Random& random, double scale) {
  return static_cast<float>(scale * (random.unit() + random.unit() + random.unit() - 1.5));
}

/// Errors: kInvalidArgument (no cells); kCorrupt (the weights are not the last ones with the changed cells put in).
Result<OptimiserBenchResult> measure(const OptimiserBenchOptions& options) {
  const std::size_t cells = options.cells / kTensors;
  if (cells == 0) return fail(Errc::kInvalidArgument, Op::kConfigure, "the optimiser needs 16 cells or more");
  OptimiserBenchResult result;
  result.cells = cells * kTensors;

  Random random(1);
  std::vector<std::vector<Bf16Bits>> weights(kTensors), bf16_gradients(kTensors);
  std::vector<std::vector<float>> gradients(kTensors);
  std::vector<AdamWParameter> parameters;
  for (std::size_t t = 0; t < kTensors; ++t) {
    for (std::size_t i = 0; i < cells; ++i) {
      weights[t].push_back(cut(draw(random, 0.03)));
      const float gradient = draw(random, 1e-3);
      if (options.bf16_gradients) {
        bf16_gradients[t].push_back(cut(gradient));
      } else {
        gradients[t].push_back(gradient);
      }
    }
    parameters.push_back({std::span(weights[t]), 0.01});
  }
  WC_ASSIGN(weightcast::AdamW optimiser,
            weightcast::AdamW::make({.threads_max = options.threads}, std::move(parameters)));
  std::vector<GradientCells> views;
  for (std::size_t t = 0; t < kTensors; ++t) {
    if (options.bf16_gradients) {
      views.emplace_back(std::span<const Bf16Bits>(bf16_gradients[t]));
    } else {
      views.emplace_back(std::span<const float>(gradients[t]));
    }
  }

  HugePageVector<float> stream_weights(result.cells, 1), stream_1(result.cells, 1), stream_2(result.cells, 1);
  const HugePageVector<float> stream_gradient(result.cells, 1e-3f);
  const std::size_t blocks = (result.cells + kStreamBlock - 1) / kStreamBlock;
  std::vector<Times> streams, updates, takes;
  for (std::uint32_t repetition = 0; repetition <= options.repetitions; ++repetition) {
    streams.push_back(times_of([&] {
      for_each_index(blocks, options.threads, [&](std::size_t block) {
        const std::size_t first = block * kStreamBlock;
        stream_loop(stream_weights.data() + first, stream_1.data() + first, stream_2.data() + first,
                    stream_gradient.data() + first, std::min(kStreamBlock, result.cells - first));
      });
    }));
    const auto before = weights;
    WC_TRY(timed(updates, [&] { return optimiser.update(options.learning_rate, views); }));
    std::vector<ChangedCells> changes(kTensors);
    takes.push_back(times_of([&] {
      for (std::size_t t = 0; t < kTensors; ++t) changes[t] = optimiser.take_changes(t);
    }));
    std::size_t changed = 0;
    for (std::size_t t = 0; t < kTensors; ++t) {
      auto rebuilt = before[t];
      for (std::size_t i = 0; i < changes[t].indices.size(); ++i) {
        std::memcpy(&rebuilt[changes[t].indices[i]], changes[t].values.data() + 2 * i, 2);
      }
      if (rebuilt != weights[t])
        return fail(Errc::kCorrupt, Op::kVerify, "the changed cells do not lead to the weights");
      changed += changes[t].indices.size();
    }
    result.changed_share = static_cast<double>(changed) / static_cast<double>(result.cells);
    if (repetition > 0) continue;
    for (auto* times : {&streams, &updates, &takes}) times->clear();  // it touched all memory for the first time
  }
  result.stream_s = median(streams, &Times::wall_s);
  result.stream_cpu_s = median(streams, &Times::cpu_s);
  result.update_s = median(updates, &Times::wall_s);
  result.update_cpu_s = median(updates, &Times::cpu_s);
  result.take_changes_s = median(takes, &Times::wall_s);
  return result;
}

nlohmann::json to_json(const OptimiserBenchResult& result) {
  return merged(
      WC_JSON_OF(result.cells, result.stream_s, result.update_s, result.take_changes_s, result.changed_share,
                 result.ratio(), result.stream_cpu_s, result.update_cpu_s, result.cpu_ratio()),
      {{"stream_gb_per_s", result.gb_per_s(result.stream_s)}, {"update_gb_per_s", result.gb_per_s(result.update_s)}});
}

Status run(const OptimiserBenchOptions& options) {
  WC_ASSIGN(const OptimiserBenchResult result, measure(options));
  fmt::print(
      "{} cells, {} threads: an update takes {:.1f} ms, {:.2f} GB/s of 28 bytes a cell; a plain loop over those {:.1f} "
      "ms, {:.2f} GB/s; {:.2f} times that, {:.2f} by processor time; {:.2f} % of the cells changed, listed in {:.1f} "
      "ms\n",
      result.cells, options.threads, 1e3 * result.update_s, result.gb_per_s(result.update_s), 1e3 * result.stream_s,
      result.gb_per_s(result.stream_s), result.ratio(), result.cpu_ratio(), 100 * result.changed_share,
      1e3 * result.take_changes_s);
  return write_json(options.json_path, to_json(result));
}

}  // namespace

void add_optimiser_command(CLI::App& app) {
  const auto [command, options] =
      add_bench<const OptimiserBenchOptions>(app, "optimiser", "AdamW against a plain loop over the same memory", run);
  command->add_option("--cells", options->cells, "Weights, in 16 tensors")
      ->check(CLI::Range(std::uint64_t{16}, std::uint64_t{1} << 36));
  command->add_option("--threads", options->threads, "Threads of both")->check(CLI::Range(1u, 256u));
  command->add_option("--learning-rate", options->learning_rate, "It decides how many cells change")
      ->check(CLI::Range(0.0, 1.0));
  command->add_flag("--bf16-gradients", options->bf16_gradients, "Gradients are BF16, not FP32");
  command->add_option("--repeat", options->repetitions, "Repetitions, after one that does not count")
      ->check(CLI::Range(1u, 1000u));
  command->add_option("--json", options->json_path, "Write the result to this file; - is stdout");
}

}  // namespace weightcast::bench
