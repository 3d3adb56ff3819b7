#include "trainer/learner/evaluation.h"

#include <fmt/format.h>

#include <algorithm>

#include "trainer/learner/completion.h"

namespace weightcast {
namespace {

constexpr std::uint64_t kEvaluationSampleStream = 6;

}  // namespace

Result<Metrics> evaluate(const Decoder& decoder, const Task& task, const PromptCodec& codec, const PromptOrder& prompts,
                         const LearnerConfig& config) {
  const CompletionOptions options{config.eval_temperature, config.eval_top_p, config.max_new_tokens, codec.end_token()};
  const std::uint64_t per_batch = std::max<std::uint64_t>(1, config.generator_batch_size / config.eval_samples);
  double sum = 0, passed = 0;
  for (std::uint64_t first = 0; first < config.eval_prompts; first += per_batch) {
    const std::uint64_t count = std::min(per_batch, config.eval_prompts - first);
    std::vector<Prompt> asked;
    std::vector<CompletionRequest> requests;
    for (std::uint64_t n = first; n < first + count; ++n) {
      WC_ASSIGN(Prompt prompt, prompts.evaluation(n));
      WC_ASSIGN(const std::vector<TokenId> ids, codec.prompt_ids(prompt));
      for (std::uint64_t k = 0; k < config.eval_samples; ++k) {
        requests.push_back({ids, drawn(0, kEvaluationSampleStream, n * config.eval_samples + k)});
      }
      asked.push_back(std::move(prompt));
    }
    const std::vector<Completion> completions = complete(decoder, requests, options);
    for (std::size_t prompt = 0; prompt < asked.size(); ++prompt) {
      bool pass = false;
      for (std::size_t k = 0; k < config.eval_samples; ++k) {
        const Completion& completion = completions[prompt * config.eval_samples + k];
        WC_ASSIGN(const double reward, task.score(asked[prompt].metadata, codec.response_text(completion.tokens)));
        sum += reward;
        pass = pass || reward > 0;
      }
      passed += pass ? 1 : 0;
    }
  }
  const auto asked = static_cast<double>(config.eval_prompts);
  return Metrics{
      {fmt::format("eval/avg@{}", config.eval_samples), sum / asked / static_cast<double>(config.eval_samples)},
      {fmt::format("eval/pass@{}", config.eval_samples), passed / asked}};
}

}  // namespace weightcast
