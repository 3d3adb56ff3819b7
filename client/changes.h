#pragma once

#include <span>
#include <vector>

#include "base/result.h"
#include "patch/snapshot/tensor.h"
#include "weightcast/weightcast.h"

namespace weightcast::client {

/// The tensors of a file of changes (patch/changes/change_names.h): two for each change, its indices, then its values.
/// Errors: kInvalidArgument (a null pointer; an unknown dtype, or one below a byte; indices of another width),
/// kTooLarge.
[[nodiscard]] Result<std::vector<TensorInfo>> tensors_of_changes(std::span<const wc_change> changes);
/// The same for pieces. Errors: kInvalidArgument (also: more changes than the box has elements), kTooLarge.
[[nodiscard]] Result<std::vector<TensorInfo>> tensors_of_pieces(std::span<const wc_piece> pieces);

}  // namespace weightcast::client
