#include "trainer/rollouts/evaluation.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/draws.h"
#include "trainer/rollouts/episodes.h"

namespace weightcast {
namespace {

constexpr std::uint64_t kEvaluationSampleStream = 6;

}  // namespace

Result<Metrics> evaluate(const Decoder& decoder, const std::shared_ptr<const Task>& task, const PromptCodec& codec,
                         RewardPool& rewards, const PromptOrder& prompts, const LearnerConfig& config) {
  const EpisodeOptions options = episode_options(config);
  const std::uint64_t per_batch = std::max<std::uint64_t>(1, config.generator_batch_size / config.eval_samples);
  double sum = 0, succeeded = 0, passed = 0;
  for (std::uint64_t first = 0; first < config.eval_prompts; first += per_batch) {
    const std::uint64_t count = std::min(per_batch, config.eval_prompts - first);
    std::vector<EpisodeRequest> requests;
    for (std::uint64_t n = first; n < first + count; ++n) {
      const std::uint64_t index = prompts.evaluation_index(n);
      for (std::uint64_t k = 0; k < config.eval_samples; ++k) {
        requests.push_back({index, drawn(0, kEvaluationSampleStream, n * config.eval_samples + k)});
      }
    }
    // One per batch: nothing of its keys and values is of use to the next one's prompts.
    WC_ASSIGN(Completer completer,
              Completer::make(decoder, completion_options(config, codec, config.eval_temperature, config.eval_top_p)));
    WC_ASSIGN(const std::vector<PlayedEpisode> played,
              play_episodes(completer, task, codec, rewards, requests, options));
    for (std::uint64_t prompt = 0; prompt < count; ++prompt) {
      bool pass = false;
      for (std::uint64_t k = 0; k < config.eval_samples; ++k) {
        const Trajectory& rollout = played[prompt * config.eval_samples + k].rollout;
        const bool success = rollout.success.value_or(false);
        sum += rollout.reward;
        succeeded += success ? 1 : 0;
        pass = pass || success;
      }
      passed += pass ? 1 : 0;
    }
  }
  const auto prompts_asked = static_cast<double>(config.eval_prompts);
  const double answers = prompts_asked * static_cast<double>(config.eval_samples);
  return Metrics{{fmt::format("eval/avg@{}", config.eval_samples), sum / answers},
                 {fmt::format("eval/pass@{}", config.eval_samples), passed / prompts_asked},
                 {"eval/success_rate", succeeded / answers}};
}

}  // namespace weightcast
