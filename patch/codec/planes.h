#pragma once

#include <vector>

#include "base/digest/checksum.h"
#include "base/result.h"
#include "patch/codec/cell.h"
#include "patch/kernels/kernels.h"

namespace weightcast {

/// Codes cells as byte planes: the first byte of every cell, then the second, and so on. Each plane takes the shortest
/// of four methods: one repeated byte, an order-0 entropy code, zstd, raw. For data that the sparse code does not suit:
/// cells without a base, dense and repetitive changes, full payloads. The output depends on the cells alone, not on the
/// kernels. One thread at a time. Use one object for many segments, because it keeps its buffers of about three times
/// the cells.
class PlanesEncoder {
 public:
  explicit PlanesEncoder(const Kernels& kernels) : kernels_(kernels) {}

  /// Appends the planes to `out`. With `before` (as long as `cells`) it splits the exclusive or of both. Without, it
  /// splits the cells, and rotates floating point cells left by one bit first, so that the highest bytes hold the whole
  /// exponent. `cells` is a multiple of the cell's width. Stops before the next plane once `out` holds `limit_bytes`,
  /// because the caller then drops the result.
  void encode(CellKind kind, Bytes cells, const std::byte* before, std::size_t limit_bytes,
              std::vector<std::byte>& out);

 private:
  void encode_plane(Bytes plane, std::vector<std::byte>& out);
  std::size_t zstd_bytes(Bytes data);

  const Kernels& kernels_;
  std::vector<std::byte> planes_;
  std::vector<std::byte> coded_;      // one plane
  std::vector<std::uint16_t> words_;  // of an entropy code
};

/// Decodes the output of PlanesEncoder in windows of cells, all planes side by side. So its memory does not grow with
/// the cells: 16 KiB for a plane with an entropy code. A zstd frame takes its window (half a MiB in our frames, and
/// never more than the plane) and half a MiB of zstd's own.
class PlanesDecoder {
 public:
  /// `coded` outlives the decoder; `cells_bytes` is the length of all cells. Errors: kCorrupt.
  static Result<PlanesDecoder> start(const Kernels& kernels, CellKind kind, Bytes coded, std::size_t cells_bytes);
  PlanesDecoder(PlanesDecoder&&) noexcept;
  PlanesDecoder& operator=(PlanesDecoder&&) noexcept;
  ~PlanesDecoder();

  /// Fills `after` with the next cells, all whole. If the exclusive or was split, `before` has as many old cells and
  /// may be `after` itself; else it is empty. Errors: kCorrupt.
  Status next(Bytes before, MutableBytes after);
  /// To be called after the last cell. Errors: kCorrupt (bytes are left over).
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
