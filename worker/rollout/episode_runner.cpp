#include "worker/rollout/episode_runner.h"

#include <utility>

#include "base/draws.h"
#include "base/steady_clock.h"
#include "worker/rollout/prompts.h"

namespace weightcast {
namespace {

constexpr std::uint64_t kTurnStream = 10;

}  // namespace

/// What a job may still touch after its caller has given it up.
struct EpisodeRunner::Stage {
  Stage(const std::shared_ptr<const Task>& of, const EpisodeLimits& limits)
      : task(of), episode([of] { return of->make_environment(); }, limits) {}

  const std::shared_ptr<const Task> task;
  Episode episode;
  Prompt prompt;
  std::string observation;
};

EpisodeRunner::EpisodeRunner(std::shared_ptr<const Task> task, const PromptCodec& codec,
                             const EpisodeRunnerOptions& options)
    : task_(std::move(task)),
      codec_(codec),
      options_(options),
      stage_(std::make_shared<Stage>(task_, options.limits)) {}

RewardPool::Job EpisodeRunner::begin_job(std::uint64_t index) {
  return [stage = stage_, index]() -> Status {
    WC_ASSIGN(stage->prompt, stage->episode.begin(steady_now(), index));
    return {};
  };
}

Status EpisodeRunner::handle_begun(Status outcome) {
  WC_TRY(std::move(outcome));
  WC_ASSIGN(const std::vector<TokenId> ids, codec_.prompt_ids(stage_->prompt));
  builder_.emplace(ids);
  return {};
}

std::uint64_t EpisodeRunner::turn_seed(std::uint64_t seed) const {
  return turns_ == 0 ? seed : drawn(seed, kTurnStream, turns_);
}

void EpisodeRunner::add_sampled(std::span<const TokenId> tokens, std::span<const float> log_probs, Version version) {
  if (turn_.empty() || turn_.back().version != version) turn_.push_back({{}, {}, version});
  Sampled& last = turn_.back();
  last.tokens.insert(last.tokens.end(), tokens.begin(), tokens.end());
  last.log_probs.insert(last.log_probs.end(), log_probs.begin(), log_probs.end());
}

RewardPool::Job EpisodeRunner::answer_job() {
  std::vector<TokenId> sampled;
  for (const Sampled& part : std::exchange(turn_, {})) {
    builder_->add_sampled(part.tokens, part.log_probs, part.version);
    sampled.insert(sampled.end(), part.tokens.begin(), part.tokens.end());
  }
  WC_CHECK(!sampled.empty());
  is_ended_ = sampled.back() == codec_.end_token();
  answer_ = codec_.response_text(sampled);
  return [stage = stage_, answer = answer_, tokens = sampled.size()]() -> Status {
    WC_ASSIGN(stage->observation, stage->episode.step(steady_now(), answer, tokens));
    return {};
  };
}

Result<bool> EpisodeRunner::handle_answered(Status outcome) {
  WC_TRY(std::move(outcome));
  const Episode& episode = stage_->episode;
  if (episode.end() == EpisodeEnd::kFailed) return fail(Errc::kInvalidArgument, Op::kVerify, episode.failure());
  // An episode whose time was over has not answered.
  const bool is_answered = episode.turn_rewards().size() > turns_;
  builder_->end_turn(is_answered ? episode.turn_rewards().back() : 0);
  ++turns_;
  if (episode.end() != EpisodeEnd::kRunning) return false;
  WC_ASSIGN(const std::vector<TokenId> ids, codec_.observation_ids(stage_->observation, is_ended_));
  if (builder_->tokens().size() + ids.size() + options_.answer_tokens_max > options_.tokens_max) return false;
  builder_->add_observation(ids);
  return true;
}

Trajectory EpisodeRunner::finish(const RunIdentity& identity, std::uint64_t number) {
  Trajectory t = builder_->finish();
  t.success = stage_->episode.success();
  t.task = task_->name();
  t.group = group_tag(stage_->prompt.tag, number);
  t.model_digest = identity.model_digest;
  t.tokenizer_digest = identity.tokenizer_digest;
  t.metadata = std::move(stage_->prompt.metadata);
  return t;
}

}  // namespace weightcast
