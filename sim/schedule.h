#pragma once

#include <cstdint>
#include <span>

#include "base/random.h"
#include "base/time.h"
#include "sim/options.h"

namespace weightcast::sim {

/// Draws a small world with a few random faults, all of which end. The seed alone determines it, so a seed is all that
/// needs to be kept of a world that found something.
[[nodiscard]] SimOptions random_schedule(std::uint64_t seed);

/// The same with hostile members, with few faults beside them and more publications.
[[nodiscard]] SimOptions hostile_schedule(std::uint64_t seed);

/// One random fault between `from` and `until`, of the kinds given, with all that goes with its kind. A kind that is
/// there twice comes twice as often. It ends, if its kind does.
[[nodiscard]] Fault random_fault(Random& random, std::uint32_t workers, Duration from, Duration until,
                                 std::span<const FaultKind> kinds);

/// How many seeds belong to a soak that begins in a second of its own.
inline constexpr std::uint64_t kSeedsPerSecond = 100'000;

/// The first seed of a soak that begins at `since_epoch` (Unix time). No earlier soak has used it or those that follow,
/// unless it ran more than kSeedsPerSecond schedules a second.
[[nodiscard]] std::uint64_t fresh_seed(Duration since_epoch);

}  // namespace weightcast::sim
