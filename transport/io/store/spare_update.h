#pragma once

#include <cstdint>
#include <deque>
#include <memory>
#include <optional>
#include <vector>

#include "base/ids.h"
#include "base/units.h"
#include "patch/codec/cell_changes.h"
#include "patch/codec/segment.h"
#include "transport/io/store/file_editor.h"
#include "transport/io/store/version_files.h"

namespace weightcast {

/// The lists of all steps together take no more memory, and once more as much those of the step in progress.
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

/// Brings reused files, which hold an older version, up to a patch's base, a range at a time and where they are.
/// Several threads may edit, each bytes of its own.
class SpareUpdate {
 public:
  /// `steps` lead from the version that `target` holds to `base`, of the patch that has `plan`. Null where that cannot
  /// be done: there are no steps to another version, one has another plan, there are too many files, or the kernel
  /// cannot. `target` outlives it.
  [[nodiscard]] static std::unique_ptr<SpareUpdate> open(VersionFiles& target, Version base,
                                                         const std::vector<SegmentRange>& plan,
                                                         std::vector<StepRef> steps);

  /// The base's cells of a part of `range` in the target, to be changed until commit(). Nothing where they have to be
  /// copied: a step's changes of this range are not known, or the part stands in several files. `scratch` outlives
  /// them. Errors: those of FileEditor::edit().
  [[nodiscard]] Result<std::optional<MutableBytes>> edit(const SegmentRange& range, std::uint64_t offset,
                                                         std::size_t size, std::vector<std::byte>& scratch);
  [[nodiscard]] Status commit(std::uint64_t offset, Bytes cells);

 private:
  SpareUpdate(const FileTable& table, std::vector<StepRef> steps) : table_(table), steps_(std::move(steps)) {}

  const FileTable& table_;
  const std::vector<StepRef> steps_;
  std::vector<FileEditor*> editors_;  // the target's
};

}  // namespace weightcast
