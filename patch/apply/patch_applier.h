#pragma once

#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <vector>

#include "patch/codec/codec.h"
#include "patch/snapshot/file_table.h"
#include "patch/snapshot/snapshot_digest.h"

namespace weightcast {

/// Checks that a patch fits the snapshot that the caller holds. An all-zero digest on either side means "not known",
/// and is not compared. Errors: kInvalidArgument (another model), kWrongBase (another base version, or another digest).
[[nodiscard]] Status check_applies(const PatchIdentity& patch, const PatchIdentity& held);

/// Checks that a patch's head is what `wanted` says, for a base and a result of these sizes. Errors: kCorrupt (it leads
/// to another result), kWrongBase (it is for another base).
[[nodiscard]] Status check_head(const PatchHead& head, const PatchIdentity& wanted, std::uint64_t base_bytes,
                                std::uint64_t result_bytes);

/// Gives a patch's old bytes and takes its new ones. The threads that apply call it, for ranges that do not overlap.
class ApplyStreams {
 public:
  virtual ~ApplyStreams() = default;
  /// Fills `cells` with the base's bytes from `offset` on. Errors: kWrongBase where they cannot be read.
  [[nodiscard]] virtual Status read_base(std::uint64_t offset, MutableBytes cells) = 0;
  /// Writes `after` to the result at `offset`. Errors: those of the medium.
  [[nodiscard]] virtual Status write_result(std::uint64_t offset, Bytes after) = 0;
  /// Where the base's cells of a part of `range` stand in the result already: those cells, which become the new ones
  /// where they are, until commit_result(). Nothing where they do not stand there: then read_base() and write_result()
  /// are called. If the cells turn out not to be the base's, or after an error, the range is made once more, by those
  /// two. The range stands at the same offset in both streams. `scratch` is for these cells alone.
  [[nodiscard]] virtual Result<std::optional<MutableBytes>> edit_result(const SegmentRange& range, std::uint64_t offset,
                                                                        std::size_t size,
                                                                        std::vector<std::byte>& scratch) {
    static_cast<void>(range), static_cast<void>(offset), static_cast<void>(size), static_cast<void>(scratch);
    return std::optional<MutableBytes>();
  }
  [[nodiscard]] virtual Status commit_result(std::uint64_t offset, Bytes cells) {
    static_cast<void>(offset), static_cast<void>(cells);
    return {};
  }
};

struct ApplyOptions {
  /// The most bytes of one write_result(): few enough to stay in a core's cache from the read to the write. Windows end
  /// at multiples of it in the result's file. A power of two, at least 4 KiB.
  std::uint32_t window_bytes = 64 * 1024;
  /// The base's leaves where they are known. Where a patch moves nothing, those of the result follow from them and from
  /// the cells that change; else from all cells of the result.
  std::shared_ptr<const LeafSums> base_leaves = nullptr;
  /// The changed cells are listed for take_changes(), as long as the lists take no more bytes.
  std::uint64_t list_bytes_max = 0;
  const Kernels* kernels = &best_kernels();
};

/// Turns a base into a result, segment by segment, in any order and from several threads. A segment of listed changes
/// is made by its changed cells alone where edit_result() gives the base's cells and the leaves of the base are known.
/// All others are read, decoded, summed and written a window at a time. Memory: two windows for each thread, the
/// changes of one segment, and the lists of changes. Invariant: each segment of the plan is applied at most once.
class PatchApplier {
 public:
  /// `plan` is the plan of a head that check_head() has accepted. `table` names the files of the result. The streams
  /// outlive the applier.
  PatchApplier(std::vector<SegmentRange> plan, FileTable table, ApplyStreams& streams, ApplyOptions options = {});
  ~PatchApplier();

  /// Applies one segment. Errors that change nothing: kCorrupt (the head does not plan this segment), kAlreadyExists
  /// (it was applied or is being applied). After any other error, of SegmentDecoder or the streams, the result cannot
  /// become complete.
  Status apply(const Segment& segment);

  /// How many segments are not applied yet.
  [[nodiscard]] std::size_t missing() const;

  /// The digest of the complete result. Not while apply() runs. Errors:
  /// kCorrupt (segments are missing, or the digest of all results differs from the one in `end`).
  Result<Checksum> finish(const PatchEnd& end) const;
  /// The leaves of the result, after finish() has given its digest.
  [[nodiscard]] const LeafSums& leaves() const { return digest_.leaves(); }

  /// The changes of each segment of the plan, after finish(). Nothing for a segment whose changes are not known.
  [[nodiscard]] std::vector<std::optional<CellChanges>> take_changes();

 private:
  enum class State : std::uint8_t { kMissing, kTaken, kApplied };
  class Window;

  Status make(const Segment& segment, Window& window);
  /// `edits`: whether cells may be edited in place; afterwards, whether that was tried.
  Status make_cells(const Segment& segment, bool& edits, std::optional<CellChanges>& changes, LeafChange& leaves,
                    Window& window);
  /// Makes a segment by its changed cells alone. False if its cells are not there to be edited.
  Result<bool> edit_listed(const Segment& segment, bool& edits, std::optional<CellChanges>& changes, LeafChange& leaves,
                           Window& window);
  /// Room for a list, if there is.
  [[nodiscard]] std::optional<CellChanges> begin_list(const SegmentHeader& header);
  [[nodiscard]] std::uint64_t offset_in_file(std::uint64_t offset) const;

  const std::vector<SegmentRange> plan_;
  const FileTable table_;
  ApplyStreams& streams_;
  const ApplyOptions options_;
  /// The digest follows from the base's.
  const bool follows_;
  SnapshotDigest digest_;

  mutable std::mutex mutex_;  // guards what follows
  std::vector<State> states_;
  std::vector<Checksum> results_;
  // Kept from one segment to the next: memory that is new to the process costs more than decoding into it.
  std::vector<std::unique_ptr<Window>> idle_;
  std::vector<std::optional<CellChanges>> changes_;
  std::uint64_t list_bytes_ = 0;
};

}  // namespace weightcast
