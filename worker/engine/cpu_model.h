#pragma once

#include <cstdint>
#include <memory>

#include "worker/engine/engine_model.h"
#include "worker/engine/kernels/kernels.h"

namespace weightcast {

struct CpuModelOptions {
  std::uint32_t blocks = 1;
  /// Keys and values in BF16 instead of FP32: half the memory and the reads, and rounded to 8 bits.
  bool bfloat16_cache = false;
  unsigned threads = 1;
  const kernels::Kernels* kernels = &kernels::best();
};

/// The decoder of trainer/model/decoder.h with kernels of our own, for generation on a processor. Activations are FP32,
/// whatever the weights are. The result of a sequence depends on its own tokens, the weights and the kernels alone:
/// neither on what else is in the step, nor on how its tokens are spread over steps, nor on the number of threads.
/// Errors: kTooLarge (the memory for the cache is not to be had).
[[nodiscard]] Result<std::unique_ptr<EngineModel>> make_cpu_model(std::shared_ptr<const EngineWeights> weights,
                                                                  const CpuModelOptions& options);

/// Bytes of a block's keys and values.
[[nodiscard]] std::uint64_t cache_block_bytes(const ModelConfig& config, bool bfloat16_cache);

}  // namespace weightcast
