#pragma once

#include <array>
#include <cstdint>

#include "base/result.h"
#include "base/settings/words.h"

namespace weightcast {

enum class LearningRateDecay { kConstant, kLinear, kCosine };
constexpr Words<3> words_of(LearningRateDecay) { return {"constant", "linear", "cosine"}; }

/// The learning rate over a run: a linear rise over `warmup_updates`, then decay to 0 at `updates_total`, and that from
/// there on. kConstant needs no total.
struct LearningRateSchedule {
  double peak = 1e-6;
  LearningRateDecay decay = LearningRateDecay::kConstant;
  std::uint64_t warmup_updates = 0;
  std::uint64_t updates_total = 0;
};

/// Errors: kInvalidArgument: a peak that is negative or not finite, a decay whose total is not above its warm-up.
[[nodiscard]] Status validate(const LearningRateSchedule& schedule);

/// The rate of update `update`, from 0 on. The first of w warm-up updates has peak / w, the last one the peak.
[[nodiscard]] double learning_rate(const LearningRateSchedule& schedule, std::uint64_t update);

}  // namespace weightcast
