#include "trainer/tasks/task.h"

#include <fmt/format.h>

#include <algorithm>

namespace weightcast {
namespace {

class SingleTurnEnvironment final : public Environment {
 public:
  explicit SingleTurnEnvironment(const Task& task) : task_(task) {}

  Result<Prompt> reset(std::uint64_t seed) override {
    WC_ASSIGN(Prompt prompt, task_.prompt(seed));
    metadata_ = prompt.metadata;
    return prompt;
  }

  Result<StepResult> step(std::string_view action) override {
    WC_ASSIGN(const Score score, task_.score(metadata_, action));
    return StepResult{"", score.reward, true, score.success};
  }

 private:
  const Task& task_;
  Metadata metadata_;
};

}  // namespace

std::unique_ptr<Environment> Task::make_environment() const { return std::make_unique<SingleTurnEnvironment>(*this); }

Sample Task::materialise(const Trajectory& trajectory) const {
  const std::size_t n = trajectory.tokens.size();
  Sample sample{trajectory.tokens,        trajectory.response_mask, std::vector<float>(n, 0), {},
                std::vector<float>(n, 0), trajectory.reward};
  if (!trajectory.logprobs.empty()) sample.rollout_log_probs.assign(n, 0);
  std::size_t sampled = 0, last = 0;
  for (std::size_t i = 0; i < n; ++i) {
    if (trajectory.response_mask[i] == 0) continue;
    sample.weights[i] = 1;
    if (!trajectory.logprobs.empty()) sample.rollout_log_probs[i] = trajectory.logprobs[sampled];
    ++sampled;
    last = i;
  }
  if (trajectory.turns.empty()) sample.token_rewards[last] = static_cast<float>(trajectory.reward);
  for (const Turn& turn : trajectory.turns) sample.token_rewards[turn.end - 1] = static_cast<float>(turn.reward);
  return sample;
}

Result<Score> score_lines(Environment& environment, std::string_view response) {
  Score score;
  for (std::size_t begin = 0; begin <= response.size();) {
    const std::size_t end = std::min(response.find('\n', begin), response.size());
    WC_ASSIGN(const StepResult result, environment.step(response.substr(begin, end - begin)));
    score.reward += result.reward;
    score.success = result.success;
    if (result.done) break;
    begin = end + 1;
  }
  return score;
}

Result<std::string> metadata_value(const Metadata& metadata, const std::string& name) {
  const auto found = metadata.find(name);
  if (found != metadata.end()) return found->second;
  return fail(Errc::kInvalidArgument, Op::kVerify, fmt::format("the prompt's metadata have no '{}'", name));
}

}  // namespace weightcast
