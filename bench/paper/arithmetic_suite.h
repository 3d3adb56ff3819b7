#pragma once

#include "bench/paper/training_suite.h"

namespace weightcast::bench {

/// A small model learns sums in forty steps, from a little supervised training on, where the papers' models take days;
/// three seeds. All else is the preset. Without cases.
[[nodiscard]] TrainingSuite arithmetic_suite(const char* preset, const char* learning_rate);

}  // namespace weightcast::bench
