#pragma once

#include <atomic>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/digest/checksum.h"
#include "base/result.h"

namespace weightcast {

class SnapshotSource;

/// NaNs and infinities among the elements of `data`, which need not be aligned; an incomplete last element is ignored.
/// Reads BF16, F16, F32, F64, C64 (each half counts), F8_E5M2, F8_E4M3 (the variant without infinities), F8_E8M0,
/// F8_E4M3FNUZ and F8_E5M2FNUZ; other dtypes hold none.
[[nodiscard]] std::uint64_t count_non_finite(std::string_view dtype, Bytes data);

struct NonFinite {
  /// The first tensor with a NaN or an infinity, in the order of the snapshot stream.
  std::string first_tensor;
  std::uint64_t tensors = 0;
  std::uint64_t elements = 0;
};

/// Finds NaNs and infinities in a snapshot while another task reads it, piece by piece, in any order, from several
/// threads.
class NonFiniteScan {
 public:
  /// The caller owns `source`, which outlives this object.
  explicit NonFiniteScan(const SnapshotSource& source);

  /// Scans `piece`, the bytes of the snapshot stream at `offset_bytes`. Counts the elements that begin in it. If the
  /// last one ends beyond it, reads that element from the source. Errors: those of SnapshotSource::read_at().
  [[nodiscard]] Status scan(std::uint64_t offset_bytes, Bytes piece);

  /// Whether a NaN or an infinity was found so far.
  [[nodiscard]] bool any() const { return any_; }
  /// What the scanned pieces hold; nothing if every element is finite. Not while scan() runs.
  [[nodiscard]] std::optional<NonFinite> result() const;

 private:
  const SnapshotSource& source_;
  std::vector<std::atomic<std::uint64_t>> elements_;  // by tensor
  std::atomic<bool> any_{false};
};

}  // namespace weightcast
