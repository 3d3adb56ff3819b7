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

/// The decoder of model/decoder.h with kernels of our own, for generation on a processor. Activations are FP32,
/// whatever the weights are. The result of a sequence depends on its own tokens, the weights and the kernels alone:
/// neither on what else is in the step, nor on how its tokens are spread over steps, nor on the number of threads.
class CpuModel final : public EngineModel {
 public:
  /// Errors: kTooLarge (the memory for the cache is not to be had).
  [[nodiscard]] static Result<std::unique_ptr<CpuModel>> make(std::shared_ptr<const EngineWeights> weights,
                                                              const CpuModelOptions& options);
  ~CpuModel() override;

  [[nodiscard]] const ModelConfig& config() const override;
  [[nodiscard]] std::uint64_t block_bytes() const override;
  [[nodiscard]] std::uint32_t blocks() const override;
  [[nodiscard]] std::uint64_t weight_bytes() const override;
  void copy_block(BlockId from, BlockId to, std::size_t positions) override;
  void forward(std::span<const SequenceStep> steps, const LogitsSink& sink) override;
  [[nodiscard]] Status set_weights(std::shared_ptr<const EngineWeights> weights) override;

  /// Bytes of a block's keys and values.
  [[nodiscard]] static std::uint64_t block_bytes(const ModelConfig& config, bool bfloat16_cache);

 private:
  class State;
  explicit CpuModel(std::unique_ptr<State> state);

  std::unique_ptr<State> state_;
};

}  // namespace weightcast
