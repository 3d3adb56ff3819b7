#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "trainer/checkpoint/checkpoint.h"
#include "trainer/config/config.h"
#include "trainer/config/generator_lags.h"
#include "trainer/model/decoder.h"
#include "trainer/replay/rollout_source.h"
#include "trainer/rollouts/episodes.h"
#include "trainer/tasks/task.h"
#include "worker/rollout/episode_runner.h"
#include "worker/rollout/prompt_codec.h"
#include "worker/rollout/prompts.h"

namespace weightcast {

/// Rollouts that the learner samples itself, each group with the newest publication that generator_lag lets it have: as
/// a worker would, which is a little behind. What it makes depends on the seed, the weights and how many groups it has
/// made. A rollout whose environment fails or takes too long is sampled again, a few times; then its group is left out.
class Generator final : public RolloutSource {
 public:
  /// All outlive the generator. `decoder` is the one that learns. `check` is called often while it samples; its error
  /// ends fill().
  Generator(const Decoder& decoder, std::shared_ptr<const Task> task, const PromptCodec& codec, RewardPool& rewards,
            const LearnerConfig& config, GeneratorLags lags, RunIdentity identity, std::function<Status()> check = {});

  /// A version was published: with the weights that `decoder` has now.
  void handle_published(Version version);
  /// Versions have other numbers from now on: `shift` is added to each that it knows.
  void handle_renumbered(std::uint64_t shift);

  /// Makes the groups that the buffer lacks for a batch, at most generator_batch_size rollouts. Those whose drawn lag
  /// is beyond max_staleness the buffer refuses, and counts. After an error of the codec, or after an exception, it can
  /// be repeated. Errors: those of the codec and of `check`; kInvalidArgument if no group of all these has a reward,
  /// with the reason.
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

  /// The place in publications_ of the newest one that is `lag` steps old when the learner is at `learner`; of the
  /// oldest one if all are newer.
  [[nodiscard]] std::size_t publication_at(Version learner, std::uint64_t lag) const;
  /// The decoder with the weights of that publication.
  [[nodiscard]] Result<const Decoder*> sampler(const Publication& publication);
  /// Whether each step is published and used at once, so that the decoder that learns is the one that samples.
  [[nodiscard]] bool is_learner() const;
  /// Forgets publications that generator_lag no longer reaches.
  void drop_old();

  /// Plays `requests`, each with the publication that its group has when the learner is at `learner`.
  [[nodiscard]] Result<std::vector<PlayedEpisode>> play(Version learner, std::span<const EpisodeRequest> requests);
  /// Plays `requests` with that publication, and those that fail once more with other seeds, a few times.
  [[nodiscard]] Result<std::vector<PlayedEpisode>> play(const Publication& publication,
                                                        std::span<const EpisodeRequest> requests);

  const Decoder& decoder_;
  const std::shared_ptr<const Task> task_;
  const PromptCodec& codec_;
  RewardPool& rewards_;
  const LearnerConfig& config_;
  const GeneratorLags lags_;
  const RunIdentity identity_;
  const std::function<Status()> check_;
  const PromptOrder prompts_;
  std::deque<Publication> publications_;  // ascending; from the one on that the greatest lag reaches
  std::optional<Decoder> behaviour_;      // absent if each step is published and used at once
  std::optional<Version> behaving_;       // whose weights it has
  std::uint64_t groups_ = 0;
  std::uint64_t unrewarded_ = 0;
};

}  // namespace weightcast
