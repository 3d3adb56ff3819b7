#pragma once

#include <functional>
#include <optional>
#include <span>
#include <string_view>

#include "base/ids.h"
#include "patch/codec/byte_io.h"
#include "patch/codec/head.h"
#include "patch/codec/stream.h"

namespace weightcast {

/// A number of four bytes, little-endian.
[[nodiscard]] inline std::uint32_t load_u32(const std::byte* at) {
  return ByteReader({at, sizeof(std::uint32_t)}).fixed<std::uint32_t>();
}

/// The version that a text of 1 to 18 decimal digits names; absent if it is another text.
[[nodiscard]] std::optional<Version> version_of_digits(std::string_view digits);

/// Changes the bytes of one tensor from old to new in place. An error ends the work.
using TensorEdit = std::function<Status(MutableBytes cells)>;

/// The edit of a tensor, or an empty function if the tensor does not change.
using FindEdit = std::function<TensorEdit(const TensorInfo& tensor)>;

/// Writes the base's stream to `target` and edits the tensors of `layout` on the way. The streams are as long as
/// `layout`. Holds the largest edited tensor in memory. Errors: those of the edits and of the streams.
Status write_edited(const SnapshotLayout& layout, const ByteSource& base, const FindEdit& find_edit,
                    ByteTarget& target);

/// One tensor in two versions.
struct TensorPair {
  TensorInfo before, after;
};

/// Pairs the tensors of two versions by name, in the order of the result. Errors: kUnsupported (a tensor is new, gone,
/// or of another dtype or size, which neither format can express).
Result<std::vector<TensorPair>> pair_tensors(const SnapshotLayout& before, const SnapshotLayout& after);

}  // namespace weightcast
