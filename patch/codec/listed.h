#pragma once

#include <array>
#include <span>
#include <vector>

#include "base/digest/checksum.h"
#include "base/result.h"
#include "patch/codec/cell_changes.h"
#include "patch/codec/entropy/byte_rans.h"
#include "patch/codec/segment.h"

namespace weightcast {

// The code of SegmentMode::kListed: the gaps between the changed cells and the steps of their values. No end looks at a
// cell that did not change, so all costs go by the changes. `../FORMAT.md` gives the bytes. The steps are those of
// kSparse: see CellOps::step().
//
// An origin encodes with ListedEncoder. A receiver decodes and takes the steps where its old cells stand. If the digest
// is not the header's, these were others, and it puts them back:
//
//   CellChanges changes;
//   WC_TRY(decoder.decode(segment, changes));                                    // values: steps
//   const Checksum digest = apply_steps(kind, cells, changes, old_values);       // values: new cells
//   if (digest != segment.header.result_digest) {
//     changes.values.swap(old_values);
//     write_changes(changes, width, cells);
//     return ...;                                                                // kWrongBase
//   }
//
// Each cell is in a cache line of its own, and a line takes as long as all else that is done with a cell. So both ends
// read and write in one pass.

/// Encodes lists of changes as segments. The output depends on the changes alone, not on the kernels. One thread at a
/// time. Keeps its buffers from one segment to the next: about four cells and eight bytes per change.
class ListedEncoder {
 public:
  explicit ListedEncoder(const Kernels& kernels = best_kernels()) : kernels_(kernels) {}

  /// Appends one whole segment, header and payload, to `out` and returns its header. `cells` are indices within the
  /// range, ascending, each once; `before` and `after` have an old and a new cell for each of them. Drops the cells
  /// whose values are equal. If none is left, the segment is kUnchanged. Its result digest is that of the changed
  /// cells' new values, in order. The range has a base. Errors: kInvalidArgument (the indices do not ascend or leave
  /// the range); `out` is then as it was.
  Result<SegmentHeader> encode(const SegmentRange& range, std::span<const std::uint32_t> cells, Bytes before,
                               Bytes after, std::vector<std::byte>& out);

 private:
  template <CellKind Kind>
  std::size_t take_steps(std::span<const std::uint32_t> cells, Bytes before, Bytes after);
  /// Appends one stream of bytes in its shortest method.
  void put_stream(Bytes data, std::vector<std::byte>& out);

  const Kernels& kernels_;
  // Of the cells that differ: index, new value and the byte of the step.
  std::vector<std::uint32_t> cells_;
  std::vector<std::byte> values_;
  std::vector<std::byte> steps_;
  std::vector<std::byte> escapes_;
  std::vector<std::byte> gaps_low_, gaps_high_;
  std::vector<std::byte> coded_;
  std::vector<std::uint16_t> words_;
};

/// Decodes the payloads of ListedEncoder. One thread at a time. Holds 32 KiB.
class ListedDecoder {
 public:
  explicit ListedDecoder(const Kernels& kernels = best_kernels()) : kernels_(&kernels) {}

  /// Lists the changes of a segment of mode kListed or kUnchanged: `changes.values` are the steps, one cell each, to be
  /// resolved by apply_steps(). Keeps the memory that `changes` has. Takes four bytes and a cell per change, and four
  /// more for each long gap, so never more than the range's cells and their indices. After success the indices ascend,
  /// lie in the range and are as many as the header says. Errors: kCorrupt (the payload is no valid encoding although
  /// its digest matches); `changes` then holds anything.
  Status decode(const Segment& segment, CellChanges& changes);

 private:
  /// One stream of bytes, read in pieces.
  class Stream {
   public:
    [[nodiscard]] bool start(const Kernels& kernels, class ByteReader& reader, std::size_t count);
    [[nodiscard]] bool next(MutableBytes data);
    [[nodiscard]] bool finished() const;

   private:
    std::uint8_t method_ = 0;
    Bytes raw_;  // not read yet; of a repeated byte the byte itself
    ByteDecoder coded_;
  };

  template <bool Wide>
  [[nodiscard]] bool take_gaps(std::size_t entries, std::uint64_t cells_end, std::size_t changed,
                               std::vector<std::uint32_t>& cells);
  template <unsigned CellBytes>
  [[nodiscard]] bool take_steps(Bytes escapes, std::size_t changed, std::byte* values);

  const Kernels* kernels_;
  Stream low_, high_;
};

/// Turns the steps of `changes` into new cells, in their place, writes each where the old one stood, and returns the
/// digest of the new cells, in order. `cells` is the first cell of the range; touches the changed cells alone, anywhere
/// in memory, with prefetches. The old ones go to `old_values`, which has room for a cell per change.
[[nodiscard]] Checksum apply_steps(CellKind kind, std::byte* cells, CellChanges& changes, std::byte* old_values);

/// The same in windows of old cells that become the new ones in their place: `window` begins with cell `first_cell` of
/// the range, and `first` is the first change that does not lie before it. Returns the first change behind the window.
[[nodiscard]] std::size_t resolve_window(CellKind kind, CellChanges& changes, std::size_t first, std::size_t first_cell,
                                         MutableBytes window);

/// Reads the cells of these indices of a range, with prefetches: `values` has room for one cell each.
void read_cells(std::span<const std::uint32_t> cells, std::size_t cell_bytes, const std::byte* range,
                std::byte* values);

/// Writes `values`, one for each of these indices, to the cells of a range, with prefetches, and what stood there to
/// `old_values`, which has room for as many. Returns whether each value is another than the old one. Equal ones are not
/// written, so that a page on a disk stays clean.
[[nodiscard]] bool exchange_cells(std::span<const std::uint32_t> cells, std::size_t cell_bytes, const std::byte* values,
                                  std::byte* range, std::byte* old_values);

/// Writes the new values of `changes` to the cells of a range, with prefetches.
void write_changes(const CellChanges& changes, std::size_t cell_bytes, std::byte* range);

}  // namespace weightcast
