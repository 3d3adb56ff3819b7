#include "worker/loop/paced_model.h"

#include <algorithm>
#include <thread>

#include "base/steady_clock.h"

namespace weightcast {

PacedModel::PacedModel(const ModelConfig& config, std::uint32_t blocks, std::span<const TokenId> end_tokens,
                       const PacedOptions& options)
    : config_(config),
      blocks_(blocks),
      options_(options),
      logits_(static_cast<std::size_t>(config.vocab_size)),
      random_(options.seed) {
  for (const TokenId token : end_tokens) {
    if (token >= 0 && static_cast<std::size_t>(token) < logits_.size()) {
      logits_[static_cast<std::size_t>(token)] = -1e30f;
    }
  }
}

void PacedModel::forward(std::span<const SequenceStep> steps, const LogitsSink& sink) {
  const double step_s = to_seconds(options_.step) * (1 + options_.jitter * (2 * random_.unit() - 1));
  const Instant now = steady_now();
  // A pass that the host delayed is made up for by the next ones. One that nobody asked for is not.
  next_ = std::max(next_, now - options_.step) + from_seconds(step_s);
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

Status PacedModel::set_weights(std::shared_ptr<const EngineWeights>) {
  next_ = std::max(next_, steady_now()) + options_.pause;
  return {};
}

}  // namespace weightcast
