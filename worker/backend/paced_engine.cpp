#include "worker/backend/paced_engine.h"

#include <algorithm>
#include <memory>
#include <span>
#include <thread>
#include <utility>
#include <vector>

#include "base/random.h"
#include "base/steady_clock.h"

namespace weightcast {
namespace {

class PacedModel final : public EngineModel {
 public:
  /// `step`: of one forward pass. `blocks` of a KV cache that takes no memory.
  PacedModel(const ModelConfig& config, std::uint32_t blocks, std::span<const TokenId> end_tokens, Duration step,
             const PacedOptions& options, std::uint64_t seed)
      : config_(config),
        blocks_(blocks),
        step_(step),
        options_(options),
        logits_(static_cast<std::size_t>(config.vocab_size)),
        random_(seed) {
    for (const TokenId token : end_tokens) {
      if (token >= 0 && static_cast<std::size_t>(token) < logits_.size()) {
        logits_[static_cast<std::size_t>(token)] = -1e30f;
      }
    }
  }

  [[nodiscard]] const ModelConfig& config() const override { return config_; }
  [[nodiscard]] std::uint64_t block_bytes() const override { return 0; }
  [[nodiscard]] std::uint32_t blocks() const override { return blocks_; }
  [[nodiscard]] std::uint64_t weight_bytes() const override { return 0; }
  void copy_block(BlockId, BlockId, std::size_t) override {}
  void forward(std::span<const SequenceStep> steps, const LogitsSink& sink) override {
    const double step_s = to_seconds(step_) * (1 + options_.jitter * (2 * random_.unit() - 1));
    const Instant now = steady_now();
    // A pass that the host delayed is made up for by the next ones. One that nobody asked for is not.
    next_ = std::max(next_, now - step_) + from_seconds(step_s);
    std::this_thread::sleep_for(next_ - now);
    for (std::size_t i = 0; i < steps.size(); ++i) {
      const std::size_t tokens = steps[i].ids.size();
      const std::size_t first = steps[i].logits == SequenceStep::Logits::kAll ? 0 : tokens - 1;
      if (steps[i].logits == SequenceStep::Logits::kNone) continue;
      for (std::size_t token = first; token < tokens; ++token) {
        scratch_ = logits_;
        sink(i, token, scratch_);
      }
    }
  }
  [[nodiscard]] Status set_weights(std::shared_ptr<const EngineWeights>) override {
    next_ = std::max(next_, steady_now()) + options_.pause;
    return {};
  }

 private:
  const ModelConfig config_;
  const std::uint32_t blocks_;
  const Duration step_;
  const PacedOptions options_;
  std::vector<float> logits_;
  std::vector<float> scratch_;
  Random random_;
  Instant next_{};  // when the next pass may end at the earliest
};

}  // namespace

EngineMaker paced_engine(const PacedOptions& options, std::uint64_t answer_tokens, std::uint64_t sequence_tokens,
                         std::uint64_t seed) {
  return [=](std::shared_ptr<const EngineWeights> weights, Version version, const EngineOptions& engine) {
    // A step gives each of running_max sequences a token.
    const double tokens_per_s = options.rollouts_per_s * static_cast<double>(answer_tokens);
    const Duration step = from_seconds(static_cast<double>(engine.running_max) / tokens_per_s);
    // Blocks that no sequence ever waits for.
    const std::uint64_t blocks_each = (sequence_tokens + kBlockPositions) / kBlockPositions + 1;
    const auto blocks = static_cast<std::uint32_t>(std::min<std::uint64_t>(engine.running_max * blocks_each, 1 << 24));
    return Engine::make(std::make_unique<PacedModel>(weights->config(), blocks, engine.end_tokens, step, options, seed),
                        version, engine);
  };
}

}  // namespace weightcast
