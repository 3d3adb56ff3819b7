#pragma once

#include <array>

#include "base/peer_identity.h"
#include "base/words.h"
#include "transport/core/origin/origin_config.h"
#include "transport/core/plan/plan.h"

namespace weightcast {

/// The roles that a node can be given.
constexpr auto words_of(Role) {
  return std::array{Word<Role>{Role::kOrigin, "origin"}, Word<Role>{Role::kWorker, "worker"}};
}

constexpr auto words_of(Topology) {
  using enum Topology;
  return std::array{Word<Topology>{kAuto, "auto"}, Word<Topology>{kStar, "star"}, Word<Topology>{kChain, "chain"},
                    Word<Topology>{kTree, "tree"}, Word<Topology>{kStriped, "striped"}};
}

constexpr auto words_of(Packing) {
  using enum Packing;
  return std::array{Word<Packing>{kAuto, "auto"}, Word<Packing>{kAlways, "always"}, Word<Packing>{kNever, "never"}};
}

}  // namespace weightcast
