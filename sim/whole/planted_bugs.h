#pragma once

#include <cstdint>

#include "base/settings/words.h"

namespace weightcast::sim {

/// Mistakes that a world can make on purpose, one in each layer, to show that the invariants notice them. They sit in
/// the simulated parts below and around a node, so the node's own code knows nothing of them.
enum class PlantedBug : std::uint8_t {
  kNothing,
  kForgottenDirectorySync,  ///< the store's syncs of directories do nothing
  kIgnoredPause,            ///< connections are read while the disk is behind
  kIgnoredReaders,          ///< the store writes into files that readers have open
  kForgottenBase,           ///< the store is told to keep nothing but the latest version
};
constexpr Words<5> words_of(PlantedBug) {
  return {"nothing", "forgotten-directory-sync", "ignored-pause", "ignored-readers", "forgotten-base"};
}

}  // namespace weightcast::sim
