#pragma once

#include <vector>

#include "base/digest.h"
#include "base/result.h"
#include "patch/codec/cell.h"

namespace weightcast {

/// Codes cells as byte planes (the first byte of every cell, then the second, ...), each by the least of: one repeated
/// byte, an order-0 entropy code, zstd, as it is. For what the sparse code is wrong for: cells without a base, dense
/// and repetitive changes, and full payloads.
///
/// What is split: with `before` (as many bytes as `cells`) the exclusive or of both; without it the cells themselves,
/// floating point ones rotated left by one bit, so that the whole exponent stands in the highest bytes.
/// `cells` is a multiple of the cell's width. Appends to `out`; once that holds `limit_bytes` or more the rest of the
/// planes is left out, because nobody wants them then.
void encode_planes(CellKind kind, Bytes cells, const std::byte* before, std::size_t limit_bytes,
                   std::vector<std::byte>& out);

/// Reads what encode_planes() wrote in windows of cells, all planes side by side, so that what it holds does not grow
/// with the cells: 6 KiB for a plane of an entropy code, and for a zstd frame its window (half a MiB in ours, and never
/// more than the plane) with half a MiB of zstd's own.
class PlanesDecoder {
 public:
  /// `coded` outlives the decoder; `cells_bytes` is the length of all cells. Errors: kCorrupt.
  static Result<PlanesDecoder> start(CellKind kind, Bytes coded, std::size_t cells_bytes);
  PlanesDecoder(PlanesDecoder&&) noexcept;
  PlanesDecoder& operator=(PlanesDecoder&&) noexcept;
  ~PlanesDecoder();

  /// Fills `after` with the cells that follow those of the last call. `before`: as many old cells, perhaps `after`
  /// itself, where the exclusive or was split; else empty. Whole cells. Errors: kCorrupt.
  Status next(Bytes before, MutableBytes after);
  /// After the last cell. Errors: kCorrupt where bytes are left over.
  Status finish();

 private:
  class Plane;
  explicit PlanesDecoder(CellKind kind);

  CellKind kind_;
  std::vector<Plane> planes_;
  std::vector<std::byte> window_;  // of one plane
};

}  // namespace weightcast
