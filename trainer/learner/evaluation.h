#pragma once

#include "model/decoder.h"
#include "tasks/task.h"
#include "trainer/learner/config.h"
#include "trainer/learner/metrics.h"
#include "trainer/learner/prompt_codec.h"
#include "trainer/learner/prompts.h"

namespace weightcast {

/// Samples eval_samples (k) answers to each of eval_prompts prompts, with settings of its own, always the same ones.
/// Gives eval/avg@k, the mean reward, and eval/pass@k, the share of prompts with an answer of positive reward.
/// Errors: those of the task and of the tokenizer.
[[nodiscard]] Result<Metrics> evaluate(const Decoder& decoder, const Task& task, const PromptCodec& codec,
                                       const PromptOrder& prompts, const LearnerConfig& config);

}  // namespace weightcast
