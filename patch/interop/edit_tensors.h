#pragma once

#include <functional>
#include <span>

#include "patch/codec/head.h"
#include "patch/codec/stream.h"

namespace weightcast {

/// Changes one tensor: `cells` are its old bytes, to be made the new ones. Errors end the work.
using TensorEdit = std::function<Status(MutableBytes cells)>;

/// The edit of a tensor, or an empty function for one that stays as it is.
using FindEdit = std::function<TensorEdit(const TensorInfo& tensor)>;

/// Writes the base's stream to `target`, which is as long, with the tensors of `layout` edited. Holds the largest
/// edited tensor in memory. Errors: those of the edits and of the streams.
Status write_edited(const SnapshotLayout& layout, const ByteSource& base, const FindEdit& find_edit,
                    ByteTarget& target);

/// A tensor and where it stands in both of two versions.
struct TensorPair {
  TensorInfo before, after;
};

/// The tensors of two versions by pairs, in the order of the result. Errors: kUnsupported where a tensor is new, gone,
/// or of another dtype or size, which neither format can say.
Result<std::vector<TensorPair>> pair_tensors(const SnapshotLayout& before, const SnapshotLayout& after);

}  // namespace weightcast
