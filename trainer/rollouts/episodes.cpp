#include "trainer/rollouts/episodes.h"

#include <chrono>
#include <optional>

#include "base/draws.h"
#include "trainer/tasks/trajectory/trajectory_builder.h"

namespace weightcast {
namespace {

/// An episode that is played.
struct Entry {
  std::unique_ptr<EpisodeRunner> runner;
  std::string failure = {};
  bool is_over = false;

  void fail_with(const Error& error) {
    failure = error.message();
    is_over = true;
  }
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
  const EpisodeRunnerOptions runner_options{options.limits, completer.options().tokens_max, options.tokens_max};
  std::vector<Entry> entries;
  std::vector<RewardPool::Job> jobs;
  for (const EpisodeRequest& request : requests) {
    entries.push_back({std::make_unique<EpisodeRunner>(task, codec, runner_options)});
    jobs.push_back(entries.back().runner->begin_job(request.index));
  }
  const std::vector<Status> begun = rewards.run_all(std::move(jobs));
  for (std::size_t i = 0; i < entries.size(); ++i) {
    if (begun[i].has_value()) {
      WC_TRY(entries[i].runner->handle_begun({}));
    } else {
      entries[i].fail_with(begun[i].error());
    }
  }
  // A turn of each episode that is not over.
  for (;;) {
    std::vector<std::size_t> active;
    std::vector<CompletionRequest> asked;
    for (std::size_t i = 0; i < entries.size(); ++i) {
      if (entries[i].is_over) continue;
      active.push_back(i);
      asked.push_back({entries[i].runner->tokens(), entries[i].runner->turn_seed(requests[i].seed)});
    }
    if (active.empty()) break;
    WC_ASSIGN(const std::vector<Completion> completions, completer.complete(asked));
    jobs.clear();
    for (std::size_t a = 0; a < active.size(); ++a) {
      EpisodeRunner& runner = *entries[active[a]].runner;
      runner.add_sampled(completions[a].tokens, completions[a].log_probs, options.version);
      jobs.push_back(runner.answer_job());
    }
    std::vector<Status> answered = rewards.run_all(std::move(jobs));
    for (std::size_t a = 0; a < active.size(); ++a) {
      Entry& entry = entries[active[a]];
      const Result<bool> goes_on = entry.runner->handle_answered(std::move(answered[a]));
      if (!goes_on.has_value()) {
        entry.fail_with(goes_on.error());
      } else {
        entry.is_over = !*goes_on;
      }
    }
  }
  std::vector<PlayedEpisode> played;
  for (std::size_t i = 0; i < entries.size(); ++i) {
    PlayedEpisode& episode = played.emplace_back();
    episode.failure = std::move(entries[i].failure);
    if (!episode.failure.empty()) continue;
    episode.answer = entries[i].runner->answer();
    episode.rollout = entries[i].runner->finish(options.identity, requests[i].group);
  }
  return played;
}

}  // namespace weightcast
