#include "trainer/learner/prompts.h"

#include <algorithm>

#include "base/random.h"
#include "trainer/learner/packing.h"

namespace weightcast {
namespace {

constexpr std::uint64_t kTrainingStream = 1;
constexpr std::uint64_t kEvaluationStream = 2;

}  // namespace

std::uint64_t drawn(std::uint64_t seed, std::uint64_t stream, std::uint64_t n) {
  return Random(Random(Random(seed).next() ^ stream).next() ^ n).next();
}

std::uint64_t PromptOrder::held_out() const { return std::min(eval_prompts_, *task_.prompt_count() / 2); }

Result<Prompt> PromptOrder::training(std::uint64_t n) const {
  if (!task_.prompt_count()) return task_.prompt(drawn(seed_, kTrainingStream, n));
  const std::uint64_t count = *task_.prompt_count() - held_out();
  return task_.prompt(shuffled(count, drawn(seed_, kTrainingStream, n / count))[n % count]);
}

Result<Prompt> PromptOrder::evaluation(std::uint64_t n) const {
  // The same prompts whatever the seed, so that runs compare.
  if (!task_.prompt_count()) return task_.prompt(drawn(0, kEvaluationStream, n));
  return task_.prompt(*task_.prompt_count() - 1 - n % std::max<std::uint64_t>(1, held_out()));
}

}  // namespace weightcast
