#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "base/result.h"

namespace weightcast::bench {

struct DecodeBenchOptions {
  std::uint64_t weight_bytes = std::uint64_t{2} << 30;  ///< about; of a model like Qwen3
  bool bfloat16 = true;
  std::vector<std::size_t> batches{1, 32};
  std::size_t prompt_tokens = 32;
  std::size_t steps = 8;  ///< of each batch, after one that does not count
  unsigned threads = 1;
  std::string kernels;  ///< plain, avx2, avx512, amx; empty: the best
};

/// Decoding steps of one batch size. Medians over the steps; the floors are measured between them.
struct DecodeCase {
  std::size_t batch = 0;
  double step_s = 0;
  double step_cpu_s = 0;  ///< of all threads
  double read_s = 0;      ///< the floor: reading as many bytes of weights as a token takes, once
  double read_cpu_s = 0;
  double products_s = 0;  ///< a plain loop of matrix products over the same shapes, by the machine's BLAS
  double products_cpu_s = 0;

  [[nodiscard]] double tokens_per_s() const { return static_cast<double>(batch) / step_s; }
};

struct DecodeBenchResult {
  std::uint64_t weight_bytes = 0;
  std::uint64_t token_bytes = 0;     ///< of weights that a token takes
  std::uint64_t cache_bytes = 0;     ///< of keys and values in use at the end
  std::uint64_t resident_bytes = 0;  ///< of the process, less what it had before the model was made
  std::string kernels;
  std::vector<DecodeCase> cases;
};

/// Errors: those of Engine::make(); kInvalidArgument (kernels that the processor does not have).
[[nodiscard]] Result<DecodeBenchResult> run_decode_bench(const DecodeBenchOptions& options);
[[nodiscard]] nlohmann::json to_json(const DecodeBenchResult& result);

}  // namespace weightcast::bench
