#include "worker/rollout/prompts.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/draws.h"

namespace weightcast {
namespace {

constexpr std::uint64_t kTrainingStream = 1;
constexpr std::uint64_t kEvaluationStream = 2;
constexpr std::uint64_t kSampleStream = 4;
constexpr std::uint64_t kAttemptStream = 11;

}  // namespace

std::uint64_t PromptOrder::held_out() const { return std::min(eval_prompts_, *task_.prompt_count() / 2); }

Result<Prompt> PromptOrder::training(std::uint64_t n) const { return task_.prompt(training_index(n)); }

std::uint64_t PromptOrder::training_index(std::uint64_t n) const {
  if (!task_.prompt_count()) return drawn(seed_, kTrainingStream, n);
  const std::uint64_t count = *task_.prompt_count() - held_out();
  return shuffled(count, drawn(seed_, kTrainingStream, n / count))[n % count];
}

std::uint64_t PromptOrder::evaluation_index(std::uint64_t n) const {
  // The same prompts whatever the seed, so that runs compare.
  if (!task_.prompt_count()) return drawn(0, kEvaluationStream, n);
  return *task_.prompt_count() - 1 - n % std::max<std::uint64_t>(1, held_out());
}

std::string group_tag(const std::string& tag, std::uint64_t number) { return fmt::format("{}#{}", tag, number); }

std::uint64_t sampling_seed(std::uint64_t run_seed, std::uint64_t group_size, std::uint64_t number,
                            std::uint64_t member) {
  return drawn(run_seed, kSampleStream, number * group_size + member);
}

std::uint64_t attempt_seed(std::uint64_t seed, std::uint64_t attempt) {
  return attempt == 0 ? seed : drawn(seed, kAttemptStream, attempt);
}

}  // namespace weightcast
