#pragma once

#include <optional>
#include <vector>

#include "base/digest/checksum.h"
#include "base/result.h"
#include "patch/codec/cell.h"
#include "patch/codec/cell_changes.h"
#include "patch/codec/entropy/rans.h"
#include "patch/codec/entropy/step_model.h"
#include "patch/codec/prefetch.h"
#include "patch/kernels/kernels.h"

namespace weightcast {

/// Codes the cells that differ between two ranges: positions by hazard.h, values by step_model.h. One thread at a time.
/// Keeps its buffers from one range to the next. Memory: four bytes and a cell per changed cell, and their code.
class SparseEncoder {
 public:
  /// Bounds the memory of one encoder to 16 MiB and its code. It is half of the BF16 cells of a default segment. If
  /// more cells change, other modes are about as short.
  static constexpr std::size_t kChangesMax = std::size_t{1} << 21;

  explicit SparseEncoder(const Kernels& kernels) : kernels_(kernels) {}

  struct Outcome {
    std::uint32_t changed_cells = 0;
    Checksum result_digest;
    /// The changes are clustered, which the model does not expect. Another mode may be shorter.
    bool clustered = false;
    /// More than kChangesMax cells changed. They were counted and digested, but not coded.
    bool too_many = false;
  };

  /// `before` and `after` have equal sizes, a multiple of the cell's width. Appends the payload to `out`, or nothing if
  /// no cells or too many changed. Reads both ranges once, a sample of 1/16 twice, and both once more if the sample was
  /// misleading.
  Outcome encode(CellKind kind, Bytes before, Bytes after, std::vector<std::byte>& out);

  /// Frees the buffers of the last range's changes.
  void release();

 private:
  /// Where a changed cell begins, counted in units from the end of the one before, and its class in the high bits. As
  /// small as it can be: of dense changes there are two million to keep.
  struct Place {
    static constexpr unsigned kClassShift = 28;
    std::uint32_t packed;

    [[nodiscard]] std::uint32_t distance() const { return packed & ((1u << kClassShift) - 1); }
    [[nodiscard]] unsigned hazard_class() const { return packed >> kClassShift; }
  };
  static_assert(kHazardClasses == 16 && GapCurve(kScaleBitsMax).reach() <= 1u << Place::kClassShift);
  /// Escapes in front of a change.
  struct Escapes {
    std::size_t change;
    std::size_t count;
  };

  template <CellKind Kind>
  void sample(Bytes before, Bytes after);
  template <CellKind Kind>
  void scan(Bytes before, Bytes after);
  /// Codes the places of a chunk's changes, which stand in changed_.
  template <CellKind Kind>
  void scan_chunk(const std::byte* old_cells, const std::byte* new_cells, std::size_t count, std::size_t changes,
                  ChunkPrefetch<false>& prefetch);
  template <CellKind Kind>
  Outcome outcome_of(std::size_t cells, std::vector<std::byte>& out);
  /// Records the step of a changed cell; returns its class.
  template <CellKind Kind>
  unsigned collect(const std::byte* before, const std::byte* after, std::size_t change);
  void position_cell(std::size_t cell, std::uint64_t chunk_begin, unsigned hazard_class, std::size_t change);
  /// Makes room for as many changes as the sample lets expect: growing to them would take twice the memory.
  void reserve_changes(std::size_t cells, std::size_t cell_bytes);
  void resize_changes(std::size_t count, std::size_t cell_bytes);
  /// What the positions that the scan saw cost.
  [[nodiscard]] double coded_position_bits() const;
  /// Replaces the model by one fitted to what the scan saw, if that would shorten the coded positions enough.
  bool refit(std::size_t cells);
  template <CellKind Kind>
  void put_batch(std::size_t first, std::size_t last, const StepCoder& steps);
  template <CellKind Kind>
  void put_changes(std::size_t first, std::size_t last, const StepCoder& steps);
  template <CellKind Kind>
  void write(std::vector<std::byte>& out);

  const Kernels& kernels_;
  HazardModel model_;
  GapCurve curve_{kScaleBitsMax};
  KeyCounts sampled_;
  std::size_t sampled_cells_ = 0;
  KeyCounts exact_;  // of changed cells only
  WeightedChunk chunk_;
  ChunkChanges changed_;
  std::vector<Place> places_;     // the first changed_cells_ are this range's
  std::vector<std::byte> steps_;  // one cell each
  std::vector<Escapes> escapes_;
  RansEncoder position_coder_;
  RansEncoder step_coder_;
  StepCounts step_counts_;
  std::uint64_t line_ = 0;  // hazard before the current chunk
  std::uint64_t origin_ = 0;
  std::size_t changed_cells_ = 0;
  std::uint32_t touched_blocks_ = 0;
  Checksum result_digest_;
};

/// Applies the changes of a payload to the cells of a range, in windows of any length. One thread at a time. Memory:
/// less than 200 KiB, whatever the length of the range.
class SparseDecoder {
 public:
  /// `payload` outlives the decoder, `changed_cells` is the segment header's. Errors: kCorrupt, of the payload alone.
  static Result<SparseDecoder> start(CellKind kind, Bytes payload, std::uint32_t changed_cells, const Kernels& kernels);

  /// Writes the cells of `before`, which follow those of the last call, with their changes into `after`, and updates
  /// `digest` with them. Both have the same length, of whole cells. `before` may be `after` itself. Errors: kCorrupt
  /// (the payload is damaged, or `before` is not the base; only the caller can distinguish these). `after` then holds
  /// anything.
  Status next(Bytes before, MutableBytes after, ChecksumStream& digest);

  /// Before the first next(): lists the changed cells in `changes`, which stays where it is until finish().
  void list_changes(CellChanges& changes);

  /// To be called after the last cell. Errors: as next().
  [[nodiscard]] Status finish() const;

 private:
  /// Where the decoder is. Apart from the models, so that a loop can keep it in registers.
  struct Place {
    RansDecoder positions;
    RansDecoder values;
    std::uint32_t left;        // changes
    std::uint64_t line = 0;    // hazard before the current chunk
    std::uint64_t origin = 0;  // end of the last changed cell, plus escapes
    std::uint64_t target = 0;  // a point inside the next changed cell
  };

  SparseDecoder(CellKind kind, const Kernels& kernels, const HazardModel& model, StepDecoder steps, Place place)
      : kind_(kind),
        kernels_(&kernels),
        model_(model),
        steps_(std::move(steps)),
        curve_(model.scale_bits),
        place_(place),
        changed_cells_(place.left) {}

  [[nodiscard]] bool draw(Place& place) const;
  template <CellKind Kind>
  void change(RansDecoder& values, std::byte* at) const;
  template <CellKind Kind>
  [[nodiscard]] bool change_chunk(const WeightedChunk& chunk, std::size_t first_cell, std::byte* cells,
                                  ChunkPrefetch<true>& prefetch, Place& place) const;
  template <CellKind Kind>
  Status next_cells(Bytes before, MutableBytes after, ChecksumStream& digest);

  CellKind kind_;
  const Kernels* kernels_;
  HazardModel model_;
  StepDecoder steps_;
  GapCurve curve_;
  Place place_;
  std::uint32_t changed_cells_;
  std::size_t next_cell_ = 0;
  // Of list_changes(): as long as there are changes.
  std::uint32_t* listed_cells_ = nullptr;
  std::byte* listed_values_ = nullptr;
};

}  // namespace weightcast
