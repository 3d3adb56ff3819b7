#pragma once

#include "base/result.h"
#include "patch/codec/head.h"
#include "patch/snapshot/snapshot.h"

namespace weightcast {

/// Two snapshots as make_head() compares them.
struct LayoutPair {
  SnapshotLayout base;
  SnapshotLayout result;
};

/// Of models, what layout_of() says of each. Of file trees, files of one path are compared first:
///   equal bytes            one piece, whatever tensors are in it
///   bytes of other lengths, without tensors
///                          what both begin with and what both end with are pieces of their own, so that bytes that
///                          were put in or cut out cost no others
/// That reads what is equal in both once. Errors: those of SnapshotSource::read_at().
[[nodiscard]] Result<LayoutPair> layouts_of(const SnapshotSource& base, const SnapshotSource& result);

}  // namespace weightcast
