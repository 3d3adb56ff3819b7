#pragma once

#include <cstdint>
#include <string>

#include "trainer/tasks/task.h"

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
  /// What Task::prompt() takes for the n-th prompt of training, and of evaluation (n < eval_prompts).
  [[nodiscard]] std::uint64_t training_index(std::uint64_t n) const;
  [[nodiscard]] std::uint64_t evaluation_index(std::uint64_t n) const;

 private:
  [[nodiscard]] std::uint64_t held_out() const;

  const Task& task_;
  const std::uint64_t seed_;
  const std::uint64_t eval_prompts_;
};

/// The tag of group `number`, whose prompt has `tag`: a prompt that comes again in a later epoch is another group. Who
/// makes a group does not matter, since its prompt, PromptOrder::training(), and seeds follow from its number.
[[nodiscard]] std::string group_tag(const std::string& tag, std::uint64_t number);

/// The seed that rollout `member` of group `number` is sampled with, in a run with `run_seed`.
[[nodiscard]] std::uint64_t sampling_seed(std::uint64_t run_seed, std::uint64_t group_size, std::uint64_t number,
                                          std::uint64_t member);

/// The same for a rollout that is sampled again, since attempts before failed; attempt 0 is the first.
[[nodiscard]] std::uint64_t attempt_seed(std::uint64_t seed, std::uint64_t attempt);

}  // namespace weightcast
