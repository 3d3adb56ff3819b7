#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "model/decoder.h"
#include "tasks/task.h"
#include "trainer/learner/checkpoint.h"
#include "trainer/learner/config.h"
#include "trainer/learner/episodes.h"
#include "trainer/learner/rollout_source.h"
#include "worker/rollout/play.h"
#include "worker/rollout/prompt_codec.h"
#include "worker/rollout/prompts.h"

namespace weightcast {

/// Rollouts that the learner samples itself, with weights of the publication that generator_lag says: as a worker
/// would, which is a little behind. What it makes depends on the seed, the weights and how many groups it has made. A
/// rollout whose environment fails or takes too long is sampled again, a few times; then its group is left out.
class Generator final : public RolloutSource {
 public:
  /// All outlive the generator. `decoder` is the one that learns. `check` is called often while it samples; its error
  /// ends fill().
  Generator(const Decoder& decoder, std::shared_ptr<const Task> task, const PromptCodec& codec, RewardPool& rewards,
            const LearnerConfig& config, RunIdentity identity, std::function<Status()> check = {});

  /// A version was published: with the weights that `decoder` has now.
  [[nodiscard]] Status handle_published(Version version);
  /// Versions have other numbers from now on: `shift` is added to each that it knows.
  void handle_renumbered(std::uint64_t shift);

  /// Makes the groups that the buffer lacks for a batch, at most generator_batch_size rollouts. After an error of the
  /// codec, or after an exception, it can be repeated. Errors: those of the codec and of `check`; kInvalidArgument if
  /// no group of all these has a reward, with the reason.
  Result<bool> fill(Instant now, SharedReplayBuffer& buffer) override;
  /// Rollouts that got no reward.
  std::uint64_t malformed() const override { return unrewarded_; }
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

  /// The decoder with the weights of the oldest publication.
  [[nodiscard]] const Decoder& sampler() const { return behaviour_ ? *behaviour_ : decoder_; }
  [[nodiscard]] Status set_behaviour();
  /// Whether each step is published and used at once, so that the decoder that learns is the one that samples.
  [[nodiscard]] bool is_learner() const;
  /// Forgets publications that generator_lag no longer reaches.
  void drop_old();

  /// Plays `requests`, and those that fail once more with other seeds, a few times.
  [[nodiscard]] Result<std::vector<PlayedEpisode>> play(std::span<const EpisodeRequest> requests);

  const Decoder& decoder_;
  const std::shared_ptr<const Task> task_;
  const PromptCodec& codec_;
  RewardPool& rewards_;
  const LearnerConfig& config_;
  const RunIdentity identity_;
  const std::function<Status()> check_;
  const PromptOrder prompts_;
  std::deque<Publication> publications_;  // the oldest, which samples, first; generator_lag + 1 at most
  std::optional<Decoder> behaviour_;      // absent if each step is published and used at once
  std::uint64_t groups_ = 0;
  std::uint64_t unrewarded_ = 0;
};

}  // namespace weightcast
