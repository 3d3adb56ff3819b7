#pragma once

#include "bench/paper/training_suite.h"

namespace weightcast::bench {

/// The learner's own answers are judged every so many steps.
inline constexpr std::uint64_t kArithmeticEvaluationInterval = 5;

/// What a small model learns in forty steps where the papers' models take days: sums, from a little supervised training
/// on; three seeds. All else is the preset. Without cases.
[[nodiscard]] TrainingSuite arithmetic_suite(const char* preset, const char* learning_rate);

}  // namespace weightcast::bench
