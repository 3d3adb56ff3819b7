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
/// Of a server the steps cannot be seen. Each request has a token of each step, so an answer's seconds per token are
/// those of a step over as many tokens as requests ran beside it.
class WorkMeter {
 public:
  /// `slots`: requests that the engine computes together at most.
  explicit WorkMeter(std::uint64_t slots) : slots_(static_cast<double>(slots)) {}

  /// A step took `span`, for `running` requests and `tokens` new tokens of them.
  void handle_step(Duration span, std::uint64_t running, std::uint64_t tokens);
  /// A server took `span` for an answer of `tokens` tokens, while `running` requests ran on average, this one included.
  void handle_answer(Duration span, double running, std::uint64_t tokens);
  /// It worked for `span`, on `running` requests.
  void handle_work(Duration span, std::uint64_t running);
  /// For how long an engine with all slots taken would have worked for all steps so far.
  [[nodiscard]] Duration at_full_load() const { return from_seconds(full_s_); }

 private:
  struct Parts {
    double fixed_s = 0;
    double per_token_s = 0;
  };
  void fit(double seconds, double tokens);
  [[nodiscard]] Parts parts() const;
  void add(double seconds, double running, double tokens);

  const double slots_;
  double full_s_ = 0;
  // Over all steps: the sums of weights, tokens, seconds, tokens squared, tokens times seconds.
  double weight_ = 0, tokens_ = 0, seconds_ = 0, tokens_squared_ = 0, tokens_seconds_ = 0;
};

}  // namespace weightcast
