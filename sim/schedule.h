#pragma once

#include <cstdint>

#include "sim/options.h"

namespace weightcast::sim {

/// A small world with a few random faults, all of which end: drawn from the seed alone, so that the seed is all that
/// has to be kept of one that found something.
[[nodiscard]] SimOptions random_schedule(std::uint64_t seed);

}  // namespace weightcast::sim
