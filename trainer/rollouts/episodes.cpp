#include "trainer/rollouts/episodes.h"

#include <chrono>
#include <optional>

#include "base/draws.h"
#include "tasks/trajectory/trajectory_builder.h"

namespace weightcast {
namespace {

class Plays {
 public:
  Plays(Completer& completer, const PromptCodec& codec, RewardPool& rewards, std::span<const EpisodeRequest> requests,
        const EpisodeOptions& options)
      : completer_(completer), codec_(codec), rewards_(rewards), requests_(requests), options_(options) {}

  Status begin(const std::shared_ptr<const Task>& task) {
    const EpisodeRunnerOptions play_options{options_.limits, completer_.options().tokens_max, options_.tokens_max};
    std::vector<RewardPool::Job> jobs;
    for (const EpisodeRequest& request : requests_) {
      plays_.push_back({std::make_unique<EpisodeRunner>(task, codec_, play_options), {}, false});
      jobs.push_back(plays_.back().play->begin_job(request.index));
    }
    const std::vector<Status> begun = rewards_.run_all(std::move(jobs));
    for (std::size_t i = 0; i < plays_.size(); ++i) {
      if (begun[i].has_value()) {
        WC_TRY(plays_[i].play->handle_begun({}));
      } else {
        plays_[i].fail_with(begun[i].error());
      }
    }
    return {};
  }

  /// Plays a turn of each episode that is not over. False if all are. Errors: those of Completer::complete().
  Result<bool> turn() {
    std::vector<std::size_t> active;
    std::vector<CompletionRequest> asked;
    for (std::size_t i = 0; i < plays_.size(); ++i) {
      if (plays_[i].is_over) continue;
      active.push_back(i);
      asked.push_back({plays_[i].play->tokens(), plays_[i].play->turn_seed(requests_[i].seed)});
    }
    if (active.empty()) return false;
    WC_ASSIGN(const std::vector<Completion> completions, completer_.complete(asked));
    std::vector<RewardPool::Job> jobs;
    for (std::size_t a = 0; a < active.size(); ++a) {
      EpisodeRunner& play = *plays_[active[a]].play;
      play.add_sampled(completions[a].tokens, completions[a].log_probs, options_.version);
      jobs.push_back(play.answer_job());
    }
    std::vector<Status> answered = rewards_.run_all(std::move(jobs));
    for (std::size_t a = 0; a < active.size(); ++a) {
      Entry& entry = plays_[active[a]];
      const Result<bool> goes_on = entry.play->handle_answered(std::move(answered[a]));
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
    for (std::size_t i = 0; i < plays_.size(); ++i) {
      PlayedEpisode& episode = played.emplace_back();
      episode.failure = std::move(plays_[i].failure);
      if (!episode.failure.empty()) continue;
      episode.answer = plays_[i].play->answer();
      episode.rollout = plays_[i].play->finish(options_.identity, requests_[i].group);
    }
    return played;
  }

 private:
  struct Entry {
    std::unique_ptr<EpisodeRunner> play;
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
  std::vector<Entry> plays_;
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
  Plays plays(completer, codec, rewards, requests, options);
  WC_TRY(plays.begin(task));
  for (;;) {
    WC_ASSIGN(const bool goes_on, plays.turn());
    if (!goes_on) return plays.finish();
  }
}

}  // namespace weightcast
