#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "base/random.h"
#include "base/time.h"
#include "worker/engine/engine_model.h"

namespace weightcast {

/// The pace of a model that computes nothing.
struct PacedOptions {
  Duration step{};         ///< of one forward pass, however many sequences take part
  double jitter = 0;       ///< each pass takes up to this share more or less, evenly distributed
  Duration pause{};        ///< for which it stands still when a version comes
  std::uint64_t seed = 0;  ///< of the jitter
};

/// Takes the place of a model where a fleet is measured and not trained: real processes, buffers and links, at a stated
/// rate, for next to no processor time. forward() sleeps; all tokens but the end tokens are equally probable, so that
/// each answer has as many tokens as it may.
class PacedModel final : public EngineModel {
 public:
  /// `blocks` of a KV cache that takes no memory.
  PacedModel(const ModelConfig& config, std::uint32_t blocks, std::span<const TokenId> end_tokens,
             const PacedOptions& options);

  [[nodiscard]] const ModelConfig& config() const override { return config_; }
  [[nodiscard]] std::uint64_t block_bytes() const override { return 0; }
  [[nodiscard]] std::uint32_t blocks() const override { return blocks_; }
  [[nodiscard]] std::uint64_t weight_bytes() const override { return 0; }
  void copy_block(BlockId, BlockId, std::size_t) override {}
  void forward(std::span<const SequenceStep> steps, const LogitsSink& sink) override;
  [[nodiscard]] Status set_weights(std::shared_ptr<const EngineWeights> weights) override;

 private:
  const ModelConfig config_;
  const std::uint32_t blocks_;
  const PacedOptions options_;
  std::vector<float> logits_;
  std::vector<float> scratch_;
  Random random_;
  Instant next_{};  // when the next pass may end at the earliest
};

}  // namespace weightcast
