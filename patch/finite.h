#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "base/digest.h"
#include "base/result.h"

namespace weightcast {

class SnapshotSource;

/// NaNs and infinities among the elements of `data`, which need not be aligned; an incomplete last element is ignored.
/// Reads BF16, F16, F32, F64, C64 (each half counts), F8_E5M2, F8_E4M3 (the variant without infinities) and F8_E8M0;
/// other dtypes hold none.
[[nodiscard]] std::uint64_t count_non_finite(std::string_view dtype, Bytes data);

struct NonFinite {
  /// The first tensor that holds any, in the order of the snapshot stream.
  std::string first_tensor;
  std::uint64_t tensors = 0;
  std::uint64_t elements = 0;
};

/// Scans all tensors of `source` (by read_at()). Nothing if every element is finite.
/// Errors: those of SnapshotSource::read_at().
[[nodiscard]] Result<std::optional<NonFinite>> find_non_finite(const SnapshotSource& source);

}  // namespace weightcast
