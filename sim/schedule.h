#pragma once

#include <cstdint>

#include "base/time.h"
#include "sim/options.h"

namespace weightcast::sim {

/// Draws a small world with a few random faults, all of which end. The seed alone determines it, so a seed is all that
/// needs to be kept of a world that found something.
[[nodiscard]] SimOptions random_schedule(std::uint64_t seed);

/// The same with hostile members, with few faults beside them and more publications.
[[nodiscard]] SimOptions hostile_schedule(std::uint64_t seed);

/// How many seeds belong to a soak that begins in a second of its own.
inline constexpr std::uint64_t kSeedsPerSecond = 100'000;

/// The first seed of a soak that begins at `since_epoch` (Unix time). No earlier soak has used it or those that follow,
/// unless it ran more than kSeedsPerSecond schedules a second.
[[nodiscard]] std::uint64_t fresh_seed(Duration since_epoch);

}  // namespace weightcast::sim
