#pragma once

#include <cstdint>
#include <utility>

#include "transport/io/store/store.h"

namespace weightcast::sim {

/// A version after the count of its run in a state directory, so that the later one is greater.
using RunVersion = std::pair<std::uint32_t, Version>;

/// What `current` names, by the store's word; of run 0 if it names nothing.
[[nodiscard]] inline RunVersion in_use(const Store& store) {
  if (store.current() != kNoVersion) return {store.run().count, store.current()};
  const StoredVersion* earlier = store.earlier();
  return earlier == nullptr ? RunVersion() : RunVersion(earlier->run, earlier->manifest.version);
}

}  // namespace weightcast::sim
