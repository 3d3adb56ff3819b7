#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>

#include "base/result.h"
#include "trainer/model/config.h"
#include "trainer/model/tokenizer/byte_pair_encoder.h"
#include "worker/engine/weights.h"

namespace weightcast {

using BlockId = std::uint32_t;

/// Positions of a block of the KV cache.
inline constexpr std::size_t kBlockPositions = 16;

/// New tokens of one sequence in a step.
struct SequenceStep {
  enum class Logits : std::uint8_t { kNone, kLast, kAll };

  std::span<const TokenId> ids;  ///< not empty, below vocab_size
  std::size_t first_position = 0;
  /// Block i holds the positions from i * kBlockPositions on; there are enough for the new tokens. Blocks that new
  /// tokens fall into belong to this sequence alone.
  std::span<const BlockId> blocks;
  Logits logits = Logits::kLast;
};

/// Takes the logits after new token `token` of sequence `sequence` of the step. May change them.
using LogitsSink = std::function<void(std::size_t sequence, std::size_t token, std::span<float> logits)>;

/// What the engine asks of a model: keys and values in blocks, and logits. The seam for devices and for tests.
class EngineModel {
 public:
  virtual ~EngineModel() = default;

  [[nodiscard]] virtual const ModelConfig& config() const = 0;
  /// Of the KV cache.
  [[nodiscard]] virtual std::uint64_t block_bytes() const = 0;
  [[nodiscard]] virtual std::uint32_t blocks() const = 0;
  /// Of the weights in use.
  [[nodiscard]] virtual std::uint64_t weight_bytes() const = 0;
  /// Copies the first `positions` positions of a block to another one.
  virtual void copy_block(BlockId from, BlockId to, std::size_t positions) = 0;
  /// Computes the new tokens, keeps their keys and values, and hands out logits, those of a sequence in order.
  virtual void forward(std::span<const SequenceStep> steps, const LogitsSink& sink) = 0;
  /// From the next forward() on. Keys and values stay what they are.
  /// Errors: those of check_same_model().
  [[nodiscard]] virtual Status set_weights(std::shared_ptr<const EngineWeights> weights) = 0;
};

}  // namespace weightcast
