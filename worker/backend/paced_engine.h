#pragma once

#include <cstdint>

#include "base/time.h"
#include "worker/engine/engine.h"

namespace weightcast {

/// The pace of an engine that computes nothing.
struct PacedOptions {
  double rollouts_per_s = 0;  ///< of answers as long as may be, with EngineOptions::running_max together; above 0
  double jitter = 0;          ///< each step takes up to this share more or less, evenly distributed
  Duration pause{};           ///< for which it stands still when a version comes
};

/// Makes engines where a fleet is measured and not trained: real processes, buffers and links, at a stated rate, for
/// next to no processor time. A step sleeps, however many sequences take part. All tokens but the end tokens are
/// equally probable, so that each answer has as many tokens as it may: `answer_tokens`. Prompt and answer together have
/// at most `sequence_tokens`. `seed` is of the jitter.
[[nodiscard]] EngineMaker paced_engine(const PacedOptions& options, std::uint64_t answer_tokens,
                                       std::uint64_t sequence_tokens, std::uint64_t seed);

}  // namespace weightcast
