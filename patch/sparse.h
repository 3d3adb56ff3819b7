#pragma once

#include <vector>

#include "base/digest.h"
#include "base/result.h"
#include "patch/cell.h"
#include "patch/kernels/kernels.h"
#include "patch/step_model.h"

namespace weightcast {

/// Codes the cells that differ between two ranges: positions as hazard.h says, values as step_model.h says. Keeps its
/// buffers from one range to the next; one thread at a time. Ten bytes of memory per changed cell.
class SparseEncoder {
 public:
  explicit SparseEncoder(const Kernels& kernels) : kernels_(kernels) {}

  struct Outcome {
    std::uint32_t changed_cells = 0;
    Digest result_digest;
    /// The changes come in heaps, which the model does not expect: another mode may be shorter.
    bool clustered = false;
  };

  /// `before` and `after` have equal sizes, a multiple of the cell's width. Appends the payload to `out`, nothing where
  /// no cell changed. Reads both ranges once, a sample of 1/16 twice, and both once more where the sample misled it.
  Outcome encode(CellKind kind, Bytes before, Bytes after, std::vector<std::byte>& out);

 private:
  struct Gap {
    std::uint32_t start;
    std::uint32_t frequency;
  };

  template <CellKind Kind>
  void sample(Bytes before, Bytes after);
  template <CellKind Kind>
  void scan(Bytes before, Bytes after);
  template <CellKind Kind>
  void collect(const std::byte* before, const std::byte* after);
  void position_cell(std::size_t cell, std::uint64_t chunk_begin);
  /// Replaces the model by one fitted to what the scan saw, if that would shorten the coded positions enough.
  bool refit(std::size_t cells, std::size_t position_bytes);

  const Kernels& kernels_;
  HazardModel model_;
  GapCurve curve_{kScaleBitsMax};
  KeyCounts sampled_;
  std::size_t sampled_cells_ = 0;
  KeyCounts exact_;  // of changed cells only
  WeightedChunk chunk_;
  ChangedCells changed_;
  std::vector<Gap> gaps_;
  std::vector<std::uint16_t> tokens_;  // hazard class in the four highest bits
  std::vector<std::uint64_t> extras_;
  std::vector<std::byte> positions_;
  StepCounts step_counts_;
  std::uint64_t origin_ = 0;
  std::uint32_t changed_cells_ = 0;
  std::uint32_t touched_blocks_ = 0;
  Digest result_digest_;
};

/// Writes into `after` the cells of `before` with the changes of `payload`, and their digest into `digest`. `before`
/// may be `after` itself; on error `after` holds anything. `changed_cells` is the segment header's. Errors: kCorrupt
/// where the payload is damaged or `before` is not what it was made from, which only the caller can tell apart. Takes
/// less than 200 KiB of memory.
Status decode_sparse(CellKind kind, Bytes payload, std::uint32_t changed_cells, Bytes before, MutableBytes after,
                     const Kernels& kernels, Digest& digest);

}  // namespace weightcast
