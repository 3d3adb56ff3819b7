#include "bench/publish/sparse_bench.h"

#include <chrono>
#include <cstring>
#include <vector>

#include "bench/fleet/scratch.h"
#include "bench/times.h"

namespace weightcast::bench {
namespace {

using Clock = std::chrono::steady_clock;
using Cost = PublicationCost;

Cost medians(const std::vector<Cost>& costs) {
  return {median(costs, &Cost::copied_s), median(costs, &Cost::encoded_s), median(costs, &Cost::cpu_s), false};
}

double copy_seconds(Bytes from) {
  std::vector<std::byte> to(from.begin(), from.end());
  const auto start = Clock::now();
  std::memcpy(to.data(), from.data(), from.size());
  return seconds_since(start);
}

}  // namespace

Result<SparseBenchResult> run_sparse_bench(const SparseBenchOptions& options) {
  WC_ASSIGN(const Scratch scratch, Scratch::make());
  WC_ASSIGN(BenchTrainer trainer, BenchTrainer::make(options.tensor_bytes, options.tensors, options.changed_share));
  // Each is given every step.
  WC_ASSIGN(const std::unique_ptr<BenchOrigin> by_whole, BenchOrigin::open(scratch.path() / "whole"));
  WC_ASSIGN(const std::unique_ptr<BenchOrigin> by_changes, BenchOrigin::open(scratch.path() / "changes"));
  SparseBenchResult result;
  result.tensor_bytes = options.tensor_bytes;
  result.memory_floor_s = copy_seconds(trainer.whole().bytes());
  // The first steps make the files that all others reuse.
  constexpr std::uint32_t kFirst = 3;
  std::vector<Cost> whole, sparse;
  for (std::uint32_t i = 0; i < kFirst + options.repetitions; ++i) {
    if (i > 0) WC_TRY(trainer.step());
    for (const bool is_sparse : {i % 2 == 0, i % 2 == 1}) {
      BenchOrigin& origin = is_sparse ? *by_changes : *by_whole;
      WC_ASSIGN(const Cost cost,
                origin.publish(trainer, is_sparse && i > 0 ? PublishBy::kListing : PublishBy::kComparing, i > 0,
                               result.patch_bytes));
      WC_TRY(origin.check(trainer));
      if (i >= kFirst) (is_sparse ? sparse : whole).push_back(cost);
    }
  }
  result.changes_bytes = trainer.changes_bytes();
  for (const Cost& cost : sparse) result.in_place += cost.in_place ? 1 : 0;
  result.whole = medians(whole);
  result.sparse = medians(sparse);
  return result;
}

nlohmann::json to_json(const SparseBenchResult& result) {
  const auto costs = [](const Cost& of) {
    return nlohmann::json{{"copied_s", of.copied_s}, {"encoded_s", of.encoded_s}, {"cpu_s", of.cpu_s}};
  };
  return {{"tensor_bytes", result.tensor_bytes},     {"changes_bytes", result.changes_bytes},
          {"patch_bytes", result.patch_bytes},       {"whole", costs(result.whole)},
          {"sparse", costs(result.sparse)},          {"in_place", result.in_place},
          {"memory_floor_s", result.memory_floor_s}, {"ratio", result.ratio()}};
}

}  // namespace weightcast::bench
