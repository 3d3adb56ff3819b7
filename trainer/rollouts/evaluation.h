#pragma once

#include "trainer/config/config.h"
#include "trainer/metrics/metrics.h"
#include "trainer/model/decoder.h"
#include "trainer/tasks/reward_pool.h"
#include "trainer/tasks/task.h"
#include "worker/rollout/prompt_codec.h"
#include "worker/rollout/prompts.h"

namespace weightcast {

/// Samples eval_samples (k) answers to each of eval_prompts prompts, with settings of its own, always the same ones.
/// Gives eval/avg@k, the mean reward; eval/success_rate, the share of answers that the task calls a success; and
/// eval/pass@k, the share of prompts with such an answer. An answer without a score counts as 0 and as no success.
/// Errors: those of `codec`.
[[nodiscard]] Result<Metrics> evaluate(const Decoder& decoder, const std::shared_ptr<const Task>& task,
                                       const PromptCodec& codec, RewardPool& rewards, const PromptOrder& prompts,
                                       const LearnerConfig& config);

}  // namespace weightcast
