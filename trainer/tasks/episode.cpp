#include "trainer/tasks/episode.h"

#include <fmt/format.h>

#include <cmath>
#include <utility>

#include "trainer/tasks/trajectory/trajectory.h"

namespace weightcast {

Episode::Episode(MakeEnvironment make, EpisodeLimits limits)
    : make_(std::move(make)), limits_(limits), environment_(make_()) {}

void Episode::replace(const Error& error) {
  failure_ = error.message();
  environment_ = make_();
  ++replaced_;
}

Result<Prompt> Episode::begin(Instant now, std::uint64_t seed) {
  end_ = EpisodeEnd::kFailed;
  tokens_ = 0;
  turn_rewards_.clear();
  success_ = false;
  failure_.clear();
  Result<Prompt> prompt = environment_->reset(seed);
  if (!prompt.has_value()) {
    replace(prompt.error());
    prompt = environment_->reset(seed);
  }
  if (!prompt.has_value()) {
    replace(prompt.error());
    return prompt;
  }
  end_ = EpisodeEnd::kRunning;
  deadline_ = now + limits_.time_max;
  return prompt;
}

Result<std::string> Episode::step(Instant now, std::string_view action, std::uint64_t tokens) {
  handle_time(now);
  if (end_ == EpisodeEnd::kTimeLimit) return std::string();
  if (end_ != EpisodeEnd::kRunning) {
    return fail(Errc::kInvalidArgument, Op::kVerify,
                "the episode is over (" + std::string(to_string(end_)) + "); begin another one");
  }
  Result<StepResult> result = environment_->step(action);
  // Not finite or larger than a learner takes: either ends one episode, and no run.
  if (result.has_value() && !(std::fabs(result->reward) <= TrajectoryRules::kRewardMax)) {
    result = fail(Errc::kInvalidArgument, Op::kVerify,
                  fmt::format("the environment gave the reward {}; at most {} in size counts", result->reward,
                              TrajectoryRules::kRewardMax));
  }
  if (!result.has_value()) {
    replace(result.error());
    turn_rewards_.clear();
    success_ = false;
    end_ = EpisodeEnd::kFailed;
    return std::string();
  }
  turn_rewards_.push_back(result->reward);
  success_ = result->success;
  tokens_ += tokens;
  if (result->done) {
    end_ = EpisodeEnd::kDone;
  } else if (turn_rewards_.size() >= limits_.turns_max) {
    end_ = EpisodeEnd::kTurnLimit;
  } else if (tokens_ >= limits_.tokens_max) {
    end_ = EpisodeEnd::kTokenLimit;
  }
  return end_ == EpisodeEnd::kRunning ? std::move(result->observation) : std::string();
}

void Episode::handle_time(Instant now) {
  if (end_ == EpisodeEnd::kRunning && now >= deadline_) end_ = EpisodeEnd::kTimeLimit;
}

}  // namespace weightcast
