#pragma once

#include <cstdint>
#include <deque>
#include <memory>
#include <optional>
#include <vector>

#include "base/ids.h"
#include "base/units.h"
#include "patch/codec/cell_changes.h"
#include "patch/codec/head.h"
#include "patch/codec/segment.h"
#include "transport/io/store/files/version_files.h"

namespace weightcast {

/// The lists of all steps together take no more memory, and once more as much those of the step in progress. An origin
/// that encodes these holds an old cell for each change besides.
inline constexpr std::uint64_t kStepBytesMax = 256 * kMiB;

/// The cells that a patch changed, with their new values: what brings files of its base up to date.
struct StepChanges {
  Version from{}, to{};
  Checksum from_digest{};  ///< of the snapshot
  std::vector<SegmentRange> plan;
  std::vector<std::optional<CellChanges>> segments;  ///< of the plan; nothing where the changes are not known
  std::uint64_t bytes = 0;                           ///< what the lists take in memory
};
using StepRef = std::shared_ptr<const StepChanges>;

/// Those of `steps`, oldest first, that lead from one version to the other, each going on where the one before it
/// ended. None if there is no such way.
[[nodiscard]] std::vector<StepRef> steps_between(const std::deque<StepRef>& steps, Version from, Version to);

/// The step of a patch of that identity and plan, which changes these cells.
[[nodiscard]] StepRef step_of(const PatchIdentity& identity, std::vector<SegmentRange> plan,
                              std::vector<std::optional<CellChanges>> segments);

/// Brings files, which hold an older version, up to date by the cells that steps have changed, a range at a time and
/// where they are. Several threads may edit, each bytes of its own.
class SpareUpdate {
 public:
  /// `steps` lead from the version that `target` holds to `to`, in the segments of `plan`. Null where there are no
  /// steps to another version, or one has another plan. `target` outlives it.
  [[nodiscard]] static std::unique_ptr<SpareUpdate> open(VersionFiles& target, Version to,
                                                         const std::vector<SegmentRange>& plan,
                                                         std::vector<StepRef> steps);

  /// The cells of a part of `range`, to be changed further until commit(). Nothing if a step's changes of this range
  /// are not known. `scratch` outlives them. Errors: those of edit_stream().
  [[nodiscard]] Result<std::optional<MutableBytes>> edit(const SegmentRange& range, std::uint64_t offset,
                                                         std::size_t size, std::vector<std::byte>& scratch);
  [[nodiscard]] Status commit(std::uint64_t offset, Bytes cells) { return commit_stream(target_, offset, cells); }

  /// Brings all of `range` up to date. False if a step's changes of it are not known.
  [[nodiscard]] Result<bool> write(const SegmentRange& range);

 private:
  SpareUpdate(VersionFiles& target, std::vector<StepRef> steps) : target_(target), steps_(std::move(steps)) {}

  VersionFiles& target_;
  const std::vector<StepRef> steps_;
};

}  // namespace weightcast
