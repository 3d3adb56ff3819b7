#pragma once

#include <cstdint>
#include <deque>
#include <optional>
#include <string>
#include <vector>

#include "model/decoder.h"
#include "tasks/task.h"
#include "trainer/learner/checkpoint.h"
#include "trainer/learner/completion.h"
#include "trainer/learner/config.h"
#include "trainer/learner/prompt_codec.h"
#include "trainer/learner/prompts.h"
#include "trainer/learner/rollout_source.h"

namespace weightcast {

/// What every rollout of a run names.
struct RunIdentity {
  std::string model_digest;  ///< SHA-256 of config.json
  std::string tokenizer_digest;
};

/// Rollouts that the learner samples itself, with weights of the publication that generator_lag says: as a worker
/// would, which is a little behind. Answers of one turn. What it makes depends on the seed, the weights and how many
/// groups it has made.
class Generator final : public RolloutSource {
 public:
  /// All outlive the generator. `decoder` is the one that learns.
  Generator(const Decoder& decoder, const Task& task, const PromptCodec& codec, const LearnerConfig& config,
            RunIdentity identity);

  /// A version was published: with the weights that `decoder` has now.
  [[nodiscard]] Status handle_published(Version version);

  /// Makes the groups that the buffer lacks for a batch, at most generator_batch_size rollouts. After an error of the
  /// task or of the codec, or after an exception, it can be repeated.
  Result<bool> fill(Instant now, ReplayBuffer& buffer) override;
  std::string save() const override;
  Status restore(std::string_view state) override;

  /// The weights of the publications that are still in use, which belong into a checkpoint beside save().
  void save_weights(Checkpoint& checkpoint) const;
  /// After restore(), when the decoder that learns has the checkpoint's weights. publish_interval and generator_lag may
  /// be others than those of the run that wrote it.
  [[nodiscard]] Status restore_weights(const Checkpoint& checkpoint);

 private:
  struct Publication {
    Version version{};
    std::vector<StoredTensor> weights;  // empty if the decoder that learns has them
  };

  [[nodiscard]] Result<Trajectory> rollout(const Prompt& prompt, std::span<const std::int32_t> prompt_ids,
                                           const Completion& completion, std::uint64_t sequence);
  /// The decoder with the weights of the oldest publication.
  [[nodiscard]] const Decoder& sampler() const { return behaviour_ ? *behaviour_ : decoder_; }
  [[nodiscard]] Status set_behaviour();
  /// Whether each step is published and used at once, so that the decoder that learns is the one that samples.
  [[nodiscard]] bool is_learner() const;
  /// Forgets publications that generator_lag no longer reaches.
  void drop_old();

  const Decoder& decoder_;
  const Task& task_;
  const PromptCodec& codec_;
  const LearnerConfig& config_;
  const RunIdentity identity_;
  const PromptOrder prompts_;
  std::deque<Publication> publications_;  // the oldest, which samples, first; generator_lag + 1 at most
  std::optional<Decoder> behaviour_;      // absent if each step is published and used at once
  std::uint64_t groups_ = 0;
  std::uint64_t rollouts_ = 0;
};

}  // namespace weightcast
