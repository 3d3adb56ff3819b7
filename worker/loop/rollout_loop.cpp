#include "worker/loop/rollout_loop.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

namespace weightcast {
namespace {

SchedulerOptions scheduler_options(const RunDescription& run, const RolloutLoopOptions& options) {
  SchedulerOptions made;
  made.slots_per_engine = static_cast<std::uint32_t>(options.engine.running_max);
  made.group_size = static_cast<std::uint32_t>(run.group_size);
  made.group_size_redundancy = static_cast<std::uint32_t>(run.group_size_redundancy);
  made.filter_equal_rewards = run.filter_equal_rewards;
  made.max_staleness = run.max_staleness;
  made.async_generation_ratio = run.async_generation_ratio;
  return made;
}

}  // namespace

Result<std::unique_ptr<RolloutLoop>> RolloutLoop::make(const RunDescription& run, std::shared_ptr<const Task> task,
                                                       Tokenizer tokenizer, const RolloutLoopOptions& options) {
  Result<std::optional<QwenChat>> style = parse_chat_template(run.chat_template);
  if (!style.has_value()) return about("the learner's run; use a worker as new as it", std::move(style).error());
  WC_ASSIGN(PromptCodec codec,
            PromptCodec::make(std::move(tokenizer), {*style, run.enable_thinking, run.max_prompt_length}));
  WC_ASSIGN(RolloutScheduler scheduler, RolloutScheduler::make(scheduler_options(run, options)));
  return std::unique_ptr<RolloutLoop>(
      new RolloutLoop(run, std::move(task), std::move(codec), std::move(scheduler), options));
}

RolloutLoop::RolloutLoop(const RunDescription& run, std::shared_ptr<const Task> task, PromptCodec codec,
                         RolloutScheduler scheduler, const RolloutLoopOptions& options)
    : run_(run),
      options_(options),
      task_(std::move(task)),
      codec_(std::move(codec)),
      prompts_(*task_, run.seed, run.eval_prompts),
      width_(run.group_size + run.group_size_redundancy),
      scheduler_(std::move(scheduler)),
      rewards_(options.rewards) {}

Status RolloutLoop::handle_weights(Instant now, Version version, std::shared_ptr<const EngineWeights> weights) {
  if (engine_) {
    WC_TRY(engine_->set_weights(version, std::move(weights)));
  } else {
    EngineOptions options = options_.engine;
    options.end_tokens = {codec_.end_token()};
    WC_ASSIGN(engine_, options_.make_engine(std::move(weights), version, options));
  }
  answers_ = engine_.get();
  use_version(now, version);
  return {};
}

void RolloutLoop::handle_version(Instant now, Version version) {
  answers_ = options_.answers.get();
  use_version(now, version);
}

void RolloutLoop::use_version(Instant now, Version version) {
  version_ = version;
  scheduler_.handle_version(now, 0, version);
  perform(now);
}

std::uint64_t RolloutLoop::groups_wanted() const { return answers_ != nullptr ? scheduler_.groups_wanted() : 0; }

void RolloutLoop::handle_groups(Instant now, std::span<const StartedGroup> groups) {
  for (const StartedGroup& group : groups) {
    if (!groups_.emplace(group.number, Group{group.first_sequence, {}}).second) continue;
    scheduler_.handle_groups(now, group.number, 1, group.begin_at_least);
  }
  perform(now);
}

void RolloutLoop::handle_learner(Instant now, const LearnerState& learner) {
  if (learner.has_restarted) {
    finished_.clear();
    while (!groups_.empty()) {
      const std::uint64_t number = groups_.begin()->first;
      scheduler_.handle_group_abandoned(now, number);
      perform(now);
      groups_.erase(number);
    }
    abandoned_.clear();
  }
  for (const std::uint64_t sequence : learner.abort) {
    for (const auto& [number, group] : groups_) {
      if (sequence < group.first_sequence || sequence >= group.first_sequence + width_) continue;
      scheduler_.handle_group_abandoned(now, number);
      break;
    }
    perform(now);
  }
  scheduler_.handle_sync(now, learner.begin_at_least);
  scheduler_.handle_step(now, learner.version);
  perform(now);
}

bool RolloutLoop::step(Instant now) {
  const bool is_busy = answers_ != nullptr && answers_->busy();
  count_running(now);
  if (is_busy) {
    for (EngineEvent& event : answers_->step()) handle_event(now, std::move(event));
  }
  handle_jobs(now);
  if (const auto deadline = scheduler_.poll_deadline(); deadline && *deadline <= now) scheduler_.handle_time(now);
  perform(now);
  return is_busy;
}

void RolloutLoop::perform(Instant now) {
  while (const std::optional<RolloutAction> action = scheduler_.poll_action()) perform(now, *action);
}

void RolloutLoop::perform(Instant now, const RolloutAction& action) {
  const RolloutKey& key = action.rollout;
  switch (action.kind) {
    case RolloutAction::Kind::kGenerate: generate(now, key); break;
    case RolloutAction::Kind::kStep:
      jobs_[rewards_.submit(rollouts_.at(key).runner->answer_job())] = {key, false};
      break;
    case RolloutAction::Kind::kSend:
      if (const auto found = rollouts_.find(key); found != rollouts_.end()) {
        finished_.push_back(*std::move(found->second.rollout));
        groups_.at(key.group).sent.insert(key.member);
        rollouts_.erase(found);
      }
      break;
    case RolloutAction::Kind::kAbort:
    case RolloutAction::Kind::kForget:
      if (const auto found = rollouts_.find(key); found != rollouts_.end()) {
        // It may have ended in this very step: then there is nothing to stop.
        if (found->second.request) static_cast<void>(answers_->abort(*found->second.request));
        rollouts_.erase(found);
      }
      break;
    case RolloutAction::Kind::kGroupDone:
    case RolloutAction::Kind::kGroupDropped: end_group(key.group); break;
  }
}

/// Samples the next turn, once it is known what it goes on from.
void RolloutLoop::generate(Instant now, const RolloutKey& key) {
  Rollout& rollout = rollouts_[key];
  if (!rollout.runner) {
    EpisodeRunnerOptions options;
    options.limits = {static_cast<std::uint32_t>(run_.turns_max), run_.turns_max * run_.max_new_tokens,
                      from_seconds(run_.episode_time_max)};
    options.answer_tokens_max = run_.max_new_tokens;
    options.tokens_max = run_.tokens_max;
    rollout.runner = std::make_unique<EpisodeRunner>(task_, codec_, options);
    jobs_[rewards_.submit(rollout.runner->begin_job(prompts_.training_index(key.group)))] = {key, true};
  } else if (const Status sampled = sample_turn(now, key, rollout); !sampled.has_value()) {
    fail_rollout(now, key, sampled.error().message());
  }
}

Status RolloutLoop::sample_turn(Instant now, const RolloutKey& key, Rollout& rollout) {
  EngineRequest request;
  request.prompt = rollout.runner->tokens();
  request.sampling.temperature = run_.temperature;
  request.sampling.top_p = run_.top_p;
  request.seed =
      rollout.runner->turn_seed(attempt_seed(sampling_seed(run_.seed, width_, key.group, key.member), key.attempt));
  request.tokens_max = run_.max_new_tokens;
  request.stop_tokens = {codec_.end_token()};
  request.tag = next_tag_++;
  WC_ASSIGN(rollout.request, answers_->add(request));
  count_running(now);
  requests_[request.tag] = {.key = key, .since = now, .running_s = running_s_};
  return {};
}

void RolloutLoop::count_running(Instant now) {
  if (now > counted_at_) running_s_ += to_seconds(now - counted_at_) * static_cast<double>(requests_.size());
  counted_at_ = std::max(counted_at_, now);
}

void RolloutLoop::handle_event(Instant now, EngineEvent event) {
  const auto request = requests_.find(event.tag);
  if (request == requests_.end()) return;
  const RolloutKey key = request->second.key;
  request->second.tokens += event.tokens.size();
  request->second.has_restarted = request->second.has_restarted || event.restarted;
  if (event.finished) {
    const Request& whole = request->second;
    const bool is_answer = *event.finished != FinishReason::kFailed && *event.finished != FinishReason::kAborted;
    if (options_.answers && is_answer && !whole.has_restarted && now > whole.since) {
      answer_times_.push_back(
          {now - whole.since, (running_s_ - whole.running_s) / to_seconds(now - whole.since), whole.tokens});
    }
    requests_.erase(request);
  }
  const auto found = rollouts_.find(key);
  if (found == rollouts_.end()) return;  // it was stopped
  EpisodeRunner& runner = *found->second.runner;
  if (event.restarted) runner.restart_turn();
  tokens_ += event.tokens.size();
  for (const EngineToken& token : event.tokens) {
    runner.add_sampled(std::span(&token.token, 1), std::span(&token.log_prob, 1), token.version);
  }
  if (!event.finished) return;
  found->second.request.reset();
  if (*event.finished == FinishReason::kFailed || *event.finished == FinishReason::kAborted) {
    fail_rollout(now, key, event.failure);
  } else {
    scheduler_.handle_generated(now, key);
  }
}

void RolloutLoop::handle_jobs(Instant now) {
  while (std::optional<RewardPool::Outcome> outcome = rewards_.take(Duration::zero())) {
    const auto done = jobs_.find(outcome->ticket);
    const Job job = done->second;
    jobs_.erase(done);
    const auto found = rollouts_.find(job.key);
    if (found == rollouts_.end()) continue;  // it was stopped
    const Status handled = handle_job(now, job, found->second, std::move(outcome->status));
    if (!handled.has_value()) fail_rollout(now, job.key, handled.error().message());
  }
}

Status RolloutLoop::handle_job(Instant now, const Job& job, Rollout& rollout, Status outcome) {
  if (job.is_begin) {
    WC_TRY(rollout.runner->handle_begun(std::move(outcome)));
    return sample_turn(now, job.key, rollout);
  }
  WC_ASSIGN(const bool goes_on, rollout.runner->handle_answered(std::move(outcome)));
  if (goes_on) {
    scheduler_.handle_observation(now, job.key);
    return {};
  }
  rollout.rollout = rollout.runner->finish({run_.model_digest, run_.tokenizer_digest}, job.key.group);
  if (!options_.has_log_probs) rollout.rollout->logprobs.clear();
  rollout.rollout->sequence = groups_.at(job.key.group).first_sequence + job.key.member;
  scheduler_.handle_finished(now, job.key, rollout.rollout->reward);
  return {};
}

void RolloutLoop::fail_rollout(Instant now, const RolloutKey& key, std::string why) {
  ++failures_;
  last_failure_ = std::move(why);
  rollouts_.erase(key);
  scheduler_.handle_failed(now, key);
}

void RolloutLoop::end_group(std::uint64_t number) {
  const auto found = groups_.find(number);
  if (found == groups_.end()) return;
  for (std::uint32_t member = 0; member < width_; ++member) {
    if (!found->second.sent.contains(member)) abandoned_.push_back(found->second.first_sequence + member);
  }
  groups_.erase(found);
}

std::optional<Trajectory> RolloutLoop::poll_rollout() {
  if (finished_.empty()) return std::nullopt;
  Trajectory first = std::move(finished_.front());
  finished_.pop_front();
  return first;
}

std::vector<std::uint64_t> RolloutLoop::end() {
  while (!groups_.empty()) end_group(groups_.begin()->first);
  rollouts_.clear();
  return take_abandoned();
}

std::vector<std::uint64_t> RolloutLoop::take_abandoned() { return std::exchange(abandoned_, {}); }

RolloutLoopStats RolloutLoop::stats() const {
  return {scheduler_.stats(), tokens_, engine_ ? engine_->status() : EngineStatus{}, failures_, last_failure_};
}

}  // namespace weightcast
