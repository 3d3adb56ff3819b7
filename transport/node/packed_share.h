#pragma once

#include "patch/snapshot/snapshot.h"

namespace weightcast {

/// The share of its size that a snapshot would take when it is packed, as samples from all over it tell. Takes a few
/// milliseconds, whatever its size. Errors: those of SnapshotSource::read_at().
[[nodiscard]] Result<double> packed_share(const SnapshotSource& snapshot);

}  // namespace weightcast
