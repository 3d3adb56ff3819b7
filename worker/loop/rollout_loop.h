#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "base/ids.h"
#include "base/result.h"
#include "base/time.h"
#include "trainer/tasks/reward_pool.h"
#include "trainer/tasks/run_description.h"
#include "trainer/tasks/task.h"
#include "trainer/tasks/trajectory/trajectory.h"
#include "worker/engine/engine.h"
#include "worker/learner/learner_client.h"
#include "worker/rollout/episode_runner.h"
#include "worker/rollout/prompts.h"
#include "worker/rollout/rollout_scheduler.h"

namespace weightcast {

struct RolloutLoopOptions {
  EngineOptions engine;
  RewardPoolOptions rewards;
  /// Of the engine over handle_weights().
  EngineMaker make_engine = [](std::shared_ptr<const EngineWeights> weights, Version version, const EngineOptions& of) {
    return Engine::make(std::move(weights), version, of);
  };
  /// Samples instead of an engine of its own. It takes care of its weights: handle_version() instead of
  /// handle_weights().
  std::shared_ptr<AnswerSource> answers;
  bool has_log_probs = true;  ///< false: `answers` has none, and rollouts go without
};

/// What became of rollouts. Tokens are those of answers.
struct RolloutLoopStats {
  SchedulerStats scheduler;
  std::uint64_t tokens = 0;
  EngineStatus engine = {};    ///< of its own engine; none while it has none
  std::uint64_t failures = 0;  ///< of prompts, answers and rewards; last_failure has the words
  std::string last_failure;
};

/// An answer that is whole: what it took, and how many were sampled meanwhile, on average, this one included.
struct AnswerTime {
  Duration span{};
  double running = 0;
  std::uint64_t tokens = 0;
};

/// Makes rollouts of the groups that a learner gives: an engine samples, environments answer, the scheduler decides. No
/// files, no sockets: weights, groups and the learner's words come in, rollouts go out, and the caller passes the time.
/// Environments run on threads of a RewardPool. One thread uses it.
class RolloutLoop {
 public:
  /// `task` is the one that the run names. Errors: those of PromptCodec::make() and RolloutScheduler::make().
  [[nodiscard]] static Result<std::unique_ptr<RolloutLoop>> make(const RunDescription& run,
                                                                 std::shared_ptr<const Task> task, Tokenizer tokenizer,
                                                                 const RolloutLoopOptions& options);

  /// Weights of a version, which the next step uses. The first ones begin the work.
  /// Errors: those of Engine::make() and Engine::set_weights(); what was there before stays in use.
  [[nodiscard]] Status handle_weights(Instant now, Version version, std::shared_ptr<const EngineWeights> weights);
  /// RolloutLoopOptions::answers samples under this version from now on. The first one begins the work.
  void handle_version(Instant now, Version version);
  /// The version in use; absent before the first.
  [[nodiscard]] std::optional<Version> version() const { return version_; }

  /// How many more groups it has use for, and of how many rollouts each.
  [[nodiscard]] std::uint64_t groups_wanted() const;
  [[nodiscard]] std::uint64_t rollouts_per_group() const { return width_; }
  void handle_groups(Instant now, std::span<const StartedGroup> groups);
  void handle_learner(Instant now, const LearnerState& learner);

  /// One step of the engine, and what follows of it. False if there was nothing to do.
  bool step(Instant now);

  /// A rollout to send. Its worker is the caller's to add.
  [[nodiscard]] std::optional<Trajectory> poll_rollout();
  /// Sequence numbers of rollouts that will not be sent.
  [[nodiscard]] std::vector<std::uint64_t> take_abandoned();

  /// Ends the work: sequence numbers of all that was given and is not finished. Nothing but poll_rollout() follows.
  [[nodiscard]] std::vector<std::uint64_t> end();

  /// Rollouts that have begun and are neither sent nor given up.
  [[nodiscard]] std::uint64_t under_way() const { return rollouts_.size(); }
  [[nodiscard]] RolloutLoopStats stats() const;
  /// Answers that are being sampled.
  [[nodiscard]] std::uint64_t answering() const { return requests_.size(); }
  /// Those of RolloutLoopOptions::answers that have become whole since the last call, and never began anew.
  [[nodiscard]] std::vector<AnswerTime> take_answer_times() { return std::exchange(answer_times_, {}); }

 private:
  struct Group {
    std::uint64_t first_sequence = 0;
    std::set<std::uint32_t> sent;  // members
  };
  struct Rollout {
    std::unique_ptr<EpisodeRunner> runner;
    std::optional<RequestId> request;   // of the turn that is being sampled
    std::optional<Trajectory> rollout;  // when the episode is over
  };
  struct Request {
    RolloutKey key;
    Instant since{};
    double running_s = 0;  // running_s_ then
    std::uint64_t tokens = 0;
    bool has_restarted = false;
  };
  struct Job {
    RolloutKey key;
    bool is_begin = false;  // of the episode; otherwise the answer to a turn
  };

  RolloutLoop(const RunDescription& run, std::shared_ptr<const Task> task, PromptCodec codec,
              RolloutScheduler scheduler, const RolloutLoopOptions& options);

  void use_version(Instant now, Version version);
  void perform(Instant now);
  void perform(Instant now, const RolloutAction& action);
  void generate(Instant now, const RolloutKey& key);
  [[nodiscard]] Status sample_turn(Instant now, const RolloutKey& key, Rollout& rollout);
  /// Adds the time until now to running_s_.
  void count_running(Instant now);
  void handle_event(Instant now, EngineEvent event);
  void handle_jobs(Instant now);
  [[nodiscard]] Status handle_job(Instant now, const Job& job, Rollout& rollout, Status outcome);
  void fail_rollout(Instant now, const RolloutKey& key, std::string why);
  void end_group(std::uint64_t number);

  const RunDescription run_;
  const RolloutLoopOptions options_;
  const std::shared_ptr<const Task> task_;
  const PromptCodec codec_;
  const PromptOrder prompts_;
  const std::uint64_t width_;
  RolloutScheduler scheduler_;
  RewardPool rewards_;
  std::unique_ptr<Engine> engine_;   // unless options_.answers
  AnswerSource* answers_ = nullptr;  // with the first version
  std::optional<Version> version_;
  std::map<std::uint64_t, Group> groups_;
  std::map<RolloutKey, Rollout> rollouts_;
  std::map<std::uint64_t, Request> requests_;  // by the tag that the engine gives back
  std::map<std::uint64_t, Job> jobs_;          // by ticket
  std::uint64_t next_tag_ = 1;
  std::deque<Trajectory> finished_;
  std::vector<std::uint64_t> abandoned_;
  std::vector<AnswerTime> answer_times_;
  double running_s_ = 0;  // of all requests so far, as of counted_at_
  Instant counted_at_{};
  std::uint64_t tokens_ = 0;
  std::uint64_t failures_ = 0;
  std::string last_failure_;
};

}  // namespace weightcast
