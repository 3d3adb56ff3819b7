#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "base/settings/words.h"

namespace weightcast {

/// A worker that can be rented, or is.
struct PoolWorker {
  std::string name;
  double mu = 0;              ///< rollouts per second
  double price_per_hour = 0;  ///< in any currency, the same for all
};

/// Which workers are activated first. kCost: those whose rollouts cost least, by price / mu. Of equals the faster one,
/// then by name. kRandom: in an order that follows from a seed; the ablation that ECHO-2 calls "without cost-aware".
enum class Activation { kCost, kRandom };

constexpr Words<2> words_of(Activation) { return {"cost", "random"}; }

/// All positions in `pool`, in the order of activation. Workers that give no rollouts come last under kCost.
[[nodiscard]] std::vector<std::size_t> activation_order(std::span<const PoolWorker> pool, Activation activation,
                                                        std::uint64_t seed);

/// (3), greedily: the shortest beginning of activation_order() whose mu reaches `target`; all that give rollouts if
/// none does. Positions in `pool`.
[[nodiscard]] std::vector<std::size_t> choose_active(std::span<const PoolWorker> pool, double target,
                                                     Activation activation, std::uint64_t seed);

/// Whether `mu` is at least `target`, but for the rounding of a sum.
[[nodiscard]] bool reaches(double mu, double target);

}  // namespace weightcast
