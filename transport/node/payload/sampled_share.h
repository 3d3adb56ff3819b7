#pragma once

#include "patch/codec/head.h"
#include "patch/snapshot/snapshot.h"

namespace weightcast {

// What samples from all over a snapshot tell of it, as a share of its size. Errors: those of SnapshotSource::read_at()
// and make_head().

/// Of the bytes at equal places, those whose word of 2 bytes differs. Takes a few milliseconds, whatever the size.
[[nodiscard]] Result<double> changed_share(const SnapshotSource& base, const SnapshotSource& result);

// What would be sent instead of the snapshot. Each takes a few dozen milliseconds at most.

/// The snapshot packed.
[[nodiscard]] Result<double> packed_share(const SnapshotSource& snapshot);
/// The patch of that head from `base` to `result`.
[[nodiscard]] Result<double> patch_share(const PatchHead& head, const SnapshotSource& base,
                                         const SnapshotSource& result);

}  // namespace weightcast
