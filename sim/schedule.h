#pragma once

#include <cstdint>

#include "base/time.h"
#include "sim/options.h"

namespace weightcast::sim {

/// A small world with a few random faults, all of which end: drawn from the seed alone, so that the seed is all that
/// has to be kept of one that found something.
[[nodiscard]] SimOptions random_schedule(std::uint64_t seed);

/// How many seeds belong to a soak that begins in a second of its own.
inline constexpr std::uint64_t kSeedsPerSecond = 100'000;

/// The first seed of a soak that begins at `since_epoch` (Unix time): one that no earlier soak has used, if none runs
/// more than kSeedsPerSecond schedules a second.
[[nodiscard]] std::uint64_t fresh_seed(Duration since_epoch);

}  // namespace weightcast::sim
