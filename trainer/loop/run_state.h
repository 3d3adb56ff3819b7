#pragma once

#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>

#include "base/steady_clock.h"
#include "trainer/checkpoint/checkpoint.h"
#include "trainer/config/config.h"
#include "trainer/intake/intake.h"
#include "trainer/metrics/console.h"
#include "trainer/metrics/metrics.h"
#include "trainer/parallel/process_group.h"
#include "trainer/publish/publisher.h"
#include "trainer/replay/rollout_source.h"
#include "trainer/replay/shared_buffer.h"
#include "trainer/rollouts/generator.h"
#include "trainer/tasks/reward_pool.h"
#include "trainer/update/policy.h"
#include "worker/rollout/prompt_codec.h"
#include "worker/rollout/prompts.h"

namespace weightcast {

/// All that a run consists of, wired up: new, or as the last checkpoint left it. The loop is Learner's. Members refer
/// to each other, so it stays where it is.
class RunState {
 public:
  /// Errors: as Learner::make().
  [[nodiscard]] static Result<std::unique_ptr<RunState>> open(FileSystem& files, const LearnerConfig& config,
                                                              std::shared_ptr<const Task> task = {});
  RunState(const RunState&) = delete;
  RunState& operator=(const RunState&) = delete;

  [[nodiscard]] Version version() const { return Version{first_version + step}; }
  /// Errors: kClosed, which names a rank that is gone.
  [[nodiscard]] Status check_ranks() const;
  /// The weights of now are due to be published. The generator samples with them at once. Other rollouts count from
  /// handle_accepted() on, or from now on where there is no origin.
  void handle_due();
  /// The origin has taken the weights of now, so that workers can have them.
  void handle_accepted();
  /// The version of now has the number `next`, which is greater, and so on.
  void renumber(Version next);
  /// Makes a reference model with these weights.
  [[nodiscard]] Status set_reference(std::span<const StoredTensor> weights);
  /// A copy of everything that a run needs to go on.
  /// Errors: those of the process group.
  [[nodiscard]] Result<Checkpoint> copy();
  /// How a checkpoint that has been written since the last call ended. To be called now and then.
  [[nodiscard]] Status poll_checkpoint();

  FileSystem& files;
  const LearnerConfig config;
  Console console;
  std::unique_ptr<File> lock;
  std::unique_ptr<ProcessGroup> group;  ///< null in a learner of one process
  std::shared_ptr<const Task> task;
  std::optional<RewardPool> rewards;
  std::map<std::string, std::string> model_files;  ///< as in InitialModel
  std::optional<PromptCodec> codec;
  std::optional<PromptOrder> prompts;
  std::optional<Policy> policy;
  std::optional<Decoder> reference;
  SharedReplayBuffer buffer;  // before the source, whose threads use it
  std::unique_ptr<RolloutSource> source;
  Generator* generator = nullptr;   // source, if it is one
  RolloutIntake* intake = nullptr;  // the same
  std::optional<Publisher> publisher;
  std::optional<MetricsFile> metrics;
  std::optional<CheckpointWriter> checkpoints;

  bool resumed = false;
  std::string resumed_source;       ///< where the run had its rollouts from until then
  std::uint64_t step = 0;           ///< training steps that are done
  std::uint64_t first_version = 1;  ///< of the weights before the first step
  Version accepted{};               ///< the last version that the origin took from this run
  double seconds = 0;               ///< that training took so far
  double worker_cost = 0;           ///< of active workers so far

 private:
  RunState(FileSystem& file_system, const LearnerConfig& settings)
      : files(file_system), config(settings), console(LogStyle{settings.operators.log_format, "learner"}) {}

  [[nodiscard]] Status build();
  /// What is published with the weights, so that others load them as they are.
  [[nodiscard]] std::map<std::string, std::string> published_files() const;
  /// How prompts become text: by the model's own chat template, unless the configuration wants none.
  /// Errors: kUnsupported (a template that we do not have); those of chat_style_of().
  [[nodiscard]] Result<std::optional<QwenChat>> chat_style() const;
  [[nodiscard]] Status begin();
  [[nodiscard]] Status resume(const Checkpoint& checkpoint);
  [[nodiscard]] TrajectoryRules rules() const;
  [[nodiscard]] Result<std::unique_ptr<RolloutIntake>> make_intake(std::string task_data);
  [[nodiscard]] RunDescription description() const;

  RunIdentity identity_;
};

}  // namespace weightcast
