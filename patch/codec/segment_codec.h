#pragma once

#include <variant>
#include <vector>

#include "base/units.h"
#include "patch/codec/listed.h"
#include "patch/codec/planes.h"
#include "patch/codec/segment.h"
#include "patch/codec/sparse.h"

namespace weightcast {

/// How an encoder that compares two versions codes what changes in few cells.
enum class SparseForm : std::uint8_t {
  kModelled,  ///< kSparse: the shortest; both ends pass over a model of all cells
  kListed,    ///< kListed: one comparison at the speed of memory, then work by the changes alone
};

/// The most changed cells of a range for which a list is as good as any other form.
[[nodiscard]] std::size_t listed_changes_max(const SegmentRange& range);

/// Encodes segments, each in the mode that takes fewest bytes. The output depends on the cells and the form alone, not
/// on the kernels. One thread at a time. Use one object for many segments, because it keeps its buffers.
class SegmentEncoder {
 public:
  explicit SegmentEncoder(const Kernels& kernels = best_kernels(), SparseForm form = SparseForm::kModelled)
      : kernels_(kernels), form_(form), sparse_(kernels), planes_(kernels), listed_(kernels) {}

  /// Appends one segment to `out` and returns its header. `before` has the old cells (none if the range has no base),
  /// `after` the new ones. Both are as long as the range.
  SegmentHeader encode(const SegmentRange& range, Bytes before, Bytes after, std::vector<std::byte>& out);

 private:
  /// The segment of what sparse_ has found, or of the other modes where they are shorter.
  SegmentHeader choose(const SegmentRange& range, const SparseEncoder::Outcome& outcome, Bytes before, Bytes after,
                       std::vector<std::byte>& out);
  /// In the form kListed. Nothing where more cells change than a list is good for.
  std::optional<SegmentHeader> encode_listed(const SegmentRange& range, Bytes before, Bytes after,
                                             std::vector<std::byte>& out);
  /// Of a range without base: planes, or the cells as they are, made in their place.
  SegmentHeader encode_whole(const SegmentRange& range, Bytes after, std::vector<std::byte>& out);
  /// Planes of the cells, if they are shorter than `best`.
  void try_planes(const SegmentRange& range, SegmentMode mode, Bytes after, const std::byte* before, Bytes& best,
                  SegmentHeader& header);

  const Kernels& kernels_;
  SparseForm form_;
  SparseEncoder sparse_;
  PlanesEncoder planes_;
  ListedEncoder listed_;
  ChunkChanges changed_;
  // Of a list: the changed cells with their old and new values.
  CellChanges found_;
  std::vector<std::byte> old_values_;
  std::vector<std::byte> sparse_payload_;
  std::vector<std::byte> xor_payload_;
  std::vector<std::byte> planes_payload_;
};

/// Decodes one segment in windows, in order. So each byte is used while it is in the cache, and the memory does not
/// grow with the segment, except that of kListed: four bytes and a cell for each change. One thread at a time.
class SegmentDecoder {
 public:
  /// The payload of `segment` outlives the decoder. Errors: kCorrupt (the payload is no valid encoding although its
  /// digest matches).
  static Result<SegmentDecoder> start(const Segment& segment, const Kernels& kernels = best_kernels());

  /// Writes the next new cells into `after`: whole cells, not beyond the range. `before` has the old cells, none for a
  /// range without a base. It may be `after` itself, but no other overlap is allowed. The output is verified only when
  /// finish() succeeds. Errors: those of finish(); `after` then holds anything.
  Status next(Bytes before, MutableBytes after);

  /// Before the first next(), in a mode that tells_changes(): lists the changed cells in `changes`, which stays where
  /// it is until finish().
  void list_changes(CellChanges& changes);
  /// Whether a payload of that mode tells the changed cells from the others.
  [[nodiscard]] static bool tells_changes(SegmentMode mode) {
    return mode == SegmentMode::kUnchanged || mode == SegmentMode::kSparse || mode == SegmentMode::kListed;
  }

  /// To be called after the last cell. Where the header digests_changes(), only the changed cells are proved. Errors:
  /// kWrongBase (the segment is sound, but the old cells are not those that it was made from), kCorrupt as
  /// start().
  Status finish();

 private:
  /// Of kUnchanged: nothing is to be read.
  struct Nothing {};
  /// Of kListed: the new values of the changes before `next`, the steps of the others.
  struct List {
    CellChanges changes;
    std::size_t next = 0;
    CellChanges* told = nullptr;
  };
  using Payload = std::variant<Nothing, SparseDecoder, PlanesDecoder, Bytes, List>;

  SegmentDecoder(const SegmentHeader& header, Payload payload)
      : header_(header), digests_changes_(header.digests_changes()), payload_(std::move(payload)) {}
  void next_listed(List& list, MutableBytes cells);
  /// What is wrong where the payload is sound.
  [[nodiscard]] Error mismatch() const;

  SegmentHeader header_;
  bool digests_changes_;
  Payload payload_;
  std::uint32_t done_bytes_ = 0;
  ChecksumStream digest_;
};

/// Decodes all cells of a segment. `after` is as long as its range. `before` and errors are as for
/// SegmentDecoder::next() and finish(). After an error `after` holds anything.
Status decode_segment(const Segment& segment, Bytes before, MutableBytes after,
                      const Kernels& kernels = best_kernels());

}  // namespace weightcast
