#include "trainer/rollouts/episodes.h"

#include <chrono>
#include <optional>

#include "base/draws.h"
#include "tasks/trajectory/trajectory_builder.h"

namespace weightcast {
namespace {

class EpisodeRunners {
 public:
  EpisodeRunners(Completer& completer, const PromptCodec& codec, RewardPool& rewards,
                 std::span<const EpisodeRequest> requests, const EpisodeOptions& options)
      : completer_(completer), codec_(codec), rewards_(rewards), requests_(requests), options_(options) {}

  Status begin(const std::shared_ptr<const Task>& task) {
    const EpisodeRunnerOptions runner_options{options_.limits, completer_.options().tokens_max, options_.tokens_max};
    std::vector<RewardPool::Job> jobs;
    for (const EpisodeRequest& request : requests_) {
      entries_.push_back({std::make_unique<EpisodeRunner>(task, codec_, runner_options), {}, false});
      jobs.push_back(entries_.back().runner->begin_job(request.index));
    }
    const std::vector<Status> begun = rewards_.run_all(std::move(jobs));
    for (std::size_t i = 0; i < entries_.size(); ++i) {
      if (begun[i].has_value()) {
        WC_TRY(entries_[i].runner->handle_begun({}));
      } else {
        entries_[i].fail_with(begun[i].error());
      }
    }
    return {};
  }

  /// Plays a turn of each episode that is not over. False if all are. Errors: those of Completer::complete().
  Result<bool> turn() {
    std::vector<std::size_t> active;
    std::vector<CompletionRequest> asked;
    for (std::size_t i = 0; i < entries_.size(); ++i) {
      if (entries_[i].is_over) continue;
      active.push_back(i);
      asked.push_back({entries_[i].runner->tokens(), entries_[i].runner->turn_seed(requests_[i].seed)});
    }
    if (active.empty()) return false;
    WC_ASSIGN(const std::vector<Completion> completions, completer_.complete(asked));
    std::vector<RewardPool::Job> jobs;
    for (std::size_t a = 0; a < active.size(); ++a) {
      EpisodeRunner& runner = *entries_[active[a]].runner;
      runner.add_sampled(completions[a].tokens, completions[a].log_probs, options_.version);
      jobs.push_back(runner.answer_job());
    }
    std::vector<Status> answered = rewards_.run_all(std::move(jobs));
    for (std::size_t a = 0; a < active.size(); ++a) {
      Entry& entry = entries_[active[a]];
      const Result<bool> goes_on = entry.runner->handle_answered(std::move(answered[a]));
      if (!goes_on.has_value()) {
        entry.fail_with(goes_on.error());
      } else {
        entry.is_over = !*goes_on;
      }
    }
    return true;
  }

  std::vector<PlayedEpisode> finish() {
    std::vector<PlayedEpisode> played;
    for (std::size_t i = 0; i < entries_.size(); ++i) {
      PlayedEpisode& episode = played.emplace_back();
      episode.failure = std::move(entries_[i].failure);
      if (!episode.failure.empty()) continue;
      episode.answer = entries_[i].runner->answer();
      episode.rollout = entries_[i].runner->finish(options_.identity, requests_[i].group);
    }
    return played;
  }

 private:
  struct Entry {
    std::unique_ptr<EpisodeRunner> runner;
    std::string failure;
    bool is_over = false;

    void fail_with(const Error& error) {
      failure = error.message();
      is_over = true;
    }
  };

  Completer& completer_;
  const PromptCodec& codec_;
  RewardPool& rewards_;
  const std::span<const EpisodeRequest> requests_;
  const EpisodeOptions& options_;
  std::vector<Entry> entries_;
};

}  // namespace

CompletionOptions completion_options(const LearnerConfig& config, const PromptCodec& codec, double temperature,
                                     double top_p) {
  CompletionOptions options;
  options.temperature = temperature;
  options.top_p = top_p;
  options.tokens_max = config.max_new_tokens;
  options.end_token = codec.end_token();
  options.context_max = rollout_tokens_max(config);
  options.sequences_max = config.generator_batch_size;
  options.threads = static_cast<unsigned>(config.threads);
  return options;
}

EpisodeOptions episode_options(const LearnerConfig& config) {
  EpisodeOptions options;
  options.limits.turns_max = static_cast<std::uint32_t>(config.turns_max);
  options.limits.tokens_max = config.turns_max * config.max_new_tokens;
  options.limits.time_max = from_seconds(config.episode_time_max);
  options.tokens_max = rollout_tokens_max(config);
  return options;
}

Result<std::vector<PlayedEpisode>> play_episodes(Completer& completer, const std::shared_ptr<const Task>& task,
                                                 const PromptCodec& codec, RewardPool& rewards,
                                                 std::span<const EpisodeRequest> requests,
                                                 const EpisodeOptions& options) {
  EpisodeRunners runners(completer, codec, rewards, requests, options);
  WC_TRY(runners.begin(task));
  for (;;) {
    WC_ASSIGN(const bool goes_on, runners.turn());
    if (!goes_on) return runners.finish();
  }
}

}  // namespace weightcast
