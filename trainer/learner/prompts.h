#pragma once

#include <cstdint>

#include "tasks/task.h"

namespace weightcast {

/// Which prompts a run uses: by number, so that a position is all that a checkpoint holds. A task with a file of
/// problems keeps the last `eval_prompts` of them for evaluation, and shuffles the others in each epoch. A generator
/// draws both from different streams of numbers.
class PromptOrder {
 public:
  PromptOrder(const Task& task, std::uint64_t seed, std::uint64_t eval_prompts)
      : task_(task), seed_(seed), eval_prompts_(eval_prompts) {}

  /// The n-th prompt of training. Errors: those of Task::prompt().
  [[nodiscard]] Result<Prompt> training(std::uint64_t n) const;
  /// The n-th prompt of evaluation, n < eval_prompts.
  [[nodiscard]] Result<Prompt> evaluation(std::uint64_t n) const;

 private:
  [[nodiscard]] std::uint64_t held_out() const;

  const Task& task_;
  const std::uint64_t seed_;
  const std::uint64_t eval_prompts_;
};

/// A number for `seed`, a `stream` and the n-th draw from it; streams are independent of each other.
[[nodiscard]] std::uint64_t drawn(std::uint64_t seed, std::uint64_t stream, std::uint64_t n);

}  // namespace weightcast
