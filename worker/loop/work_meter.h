#pragma once

#include <cstdint>

#include "base/time.h"

namespace weightcast {

/// Says what an engine could do from what it does with few requests: a worker that the learner gives little shows its
/// capacity all the same. Pure.
///
/// A step over r tokens takes fixed + per_token * r: the weights are read once, whatever r is. Both are fitted to the
/// steps so far, by least squares, older steps counting less. With `running` of `slots` taken, a full engine would
/// share the fixed part among slots / running times as many tokens. So of a step's time it would need for the same
/// tokens
///   (fixed * running / slots + per_token * r) / (fixed + per_token * r).
/// That lies between running / slots, Little's law for slots that cost nothing, and 1. Before both parts are known it
/// is 1.
class WorkMeter {
 public:
  /// `slots`: requests that the engine computes together at most.
  explicit WorkMeter(std::uint64_t slots) : slots_(static_cast<double>(slots)) {}

  /// A step took `span`, for `running` requests and `tokens` new tokens of them.
  void handle_step(Duration span, std::uint64_t running, std::uint64_t tokens);
  /// For how long an engine with all slots taken would have worked for all steps so far.
  [[nodiscard]] Duration at_full_load() const { return from_seconds(full_s_); }

 private:
  struct Parts {
    double fixed_s = 0;
    double per_token_s = 0;
  };
  [[nodiscard]] Parts parts() const;

  const double slots_;
  double full_s_ = 0;
  // Over all steps: the sums of weights, tokens, seconds, tokens squared, tokens times seconds.
  double weight_ = 0, tokens_ = 0, seconds_ = 0, tokens_squared_ = 0, tokens_seconds_ = 0;
};

}  // namespace weightcast
