#pragma once

#include <memory>
#include <optional>
#include <string>

#include "trainer/learner/checkpoint.h"
#include "trainer/learner/config.h"
#include "trainer/learner/console.h"
#include "trainer/learner/generator.h"
#include "trainer/learner/metrics.h"
#include "trainer/learner/policy.h"
#include "trainer/learner/prompt_codec.h"
#include "trainer/learner/prompts.h"
#include "trainer/learner/publisher.h"
#include "trainer/learner/rollout_source.h"
#include "trainer/replay/replay_buffer.h"

namespace weightcast {

/// Now, on the clock that rollouts and publications are timed by.
[[nodiscard]] Instant steady_now();

/// All that a run consists of, wired up: new, or as the last checkpoint left it. The loop is Learner's. Members refer
/// to each other, so it stays where it is.
class RunState {
 public:
  /// Errors: as Learner::make().
  [[nodiscard]] static Result<std::unique_ptr<RunState>> open(FileSystem& files, const LearnerConfig& config);
  RunState(const RunState&) = delete;
  RunState& operator=(const RunState&) = delete;

  [[nodiscard]] Version version() const { return Version{first_version + step}; }
  /// The weights of now are published: to the generator, and as far as the buffer judges.
  [[nodiscard]] Status handle_published();
  /// Keeps the weights of now as the reference model, if the loss needs one.
  [[nodiscard]] Status set_reference();
  /// A copy of everything that a run needs to go on.
  [[nodiscard]] Checkpoint copy() const;

  FileSystem& files;
  const LearnerConfig config;
  Console console;
  std::unique_ptr<File> lock;
  std::unique_ptr<Task> task;
  std::string config_json, tokenizer_json;
  std::optional<PromptCodec> codec;
  std::optional<PromptOrder> prompts;
  std::optional<Policy> policy;
  std::optional<Decoder> reference;
  std::unique_ptr<RolloutSource> source;
  Generator* generator = nullptr;  // source, if it is one
  std::optional<ReplayBuffer> buffer;
  std::optional<Publisher> publisher;
  std::optional<MetricsFile> metrics;
  std::optional<CheckpointWriter> checkpoints;

  bool resumed = false;
  std::uint64_t step = 0;           ///< training steps that are done
  std::uint64_t first_version = 1;  ///< of the weights before the first step
  double seconds = 0;               ///< that training took so far

 private:
  RunState(FileSystem& file_system, const LearnerConfig& settings) : files(file_system), config(settings) {}

  [[nodiscard]] Status build();
  [[nodiscard]] Status begin();
  [[nodiscard]] Status resume(const Checkpoint& checkpoint);
  [[nodiscard]] TrajectoryRules rules() const;

  RunIdentity identity_;
};

}  // namespace weightcast
