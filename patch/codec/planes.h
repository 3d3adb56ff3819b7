#pragma once

#include <vector>

#include "base/digest.h"
#include "base/result.h"
#include "patch/codec/cell.h"
#include "patch/kernels/kernels.h"

namespace weightcast {

/// Codes cells as byte planes (the first byte of every cell, then the second, ...), each by the least of: one repeated
/// byte, an order-0 entropy code, zstd, as it is. For what the sparse code is wrong for: cells without a base, dense
/// and repetitive changes, and full payloads. The bytes depend on the cells alone, not on the kernels. One thread at a
/// time; keeps its buffers, about three times the cells, so use one object for many segments.
class PlanesEncoder {
 public:
  explicit PlanesEncoder(const Kernels& kernels) : kernels_(kernels) {}

  /// What is split: with `before` (as many bytes as `cells`) the exclusive or of both; without it the cells themselves,
  /// floating point ones rotated left by one bit, so that the whole exponent stands in the highest bytes.
  /// `cells` is a multiple of the cell's width. Appends to `out`; once that holds `limit_bytes` or more the rest of the
  /// planes is left out, because nobody wants them then.
  void encode(CellKind kind, Bytes cells, const std::byte* before, std::size_t limit_bytes,
              std::vector<std::byte>& out);
  /// Gives its memory back.
  void release();

 private:
  void encode_plane(Bytes plane, std::vector<std::byte>& out);
  std::size_t zstd_bytes(Bytes data);

  const Kernels& kernels_;
  std::vector<std::byte> planes_;
  std::vector<std::byte> coded_;      // one plane
  std::vector<std::uint16_t> words_;  // of an entropy code
};

/// Reads what PlanesEncoder wrote in windows of cells, all planes side by side, so that what it holds does not grow
/// with the cells: 16 KiB for a plane of an entropy code, and for a zstd frame its window (half a MiB in ours, and
/// never more than the plane) with half a MiB of zstd's own.
class PlanesDecoder {
 public:
  /// `coded` outlives the decoder; `cells_bytes` is the length of all cells. Errors: kCorrupt.
  static Result<PlanesDecoder> start(const Kernels& kernels, CellKind kind, Bytes coded, std::size_t cells_bytes);
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
  PlanesDecoder(const Kernels& kernels, CellKind kind);

  const Kernels* kernels_;
  CellKind kind_;
  std::vector<Plane> planes_;
  std::vector<std::byte> window_;  // of all planes
};

}  // namespace weightcast
