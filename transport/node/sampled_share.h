#pragma once

#include "patch/snapshot/snapshot.h"

namespace weightcast {

// What would be sent instead of a snapshot, as a share of its size, as samples from all over it tell. Each takes a few
// dozen milliseconds at most, whatever the size. Errors: those of SnapshotSource::read_at() and make_head().

/// The snapshot packed.
[[nodiscard]] Result<double> packed_share(const SnapshotSource& snapshot);
/// The patch from `base` to `result`.
[[nodiscard]] Result<double> patch_share(const SnapshotSource& base, const SnapshotSource& result);

}  // namespace weightcast
