#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "base/files/file_system.h"
#include "base/units.h"
#include "patch/codec/cell_changes.h"
#include "patch/codec/segment.h"
#include "patch/snapshot/snapshot.h"
#include "patch/snapshot/snapshot_digest.h"
#include "transport/node/takeover/published_snapshot.h"

namespace weightcast {

/// The most bytes of a patch that is made from a list. Nothing of a longer one is worth keeping in memory.
inline constexpr std::uint64_t kListedPatchBytesMax = 256 * kMiB;

/// What changes a version, with the old values.
struct FoundChanges {
  CellChanges changes;                      ///< cells of a range whose new value differs from the old one
  std::vector<std::byte> old_values;        ///< one cell for each
  std::vector<std::byte> window;            ///< scratch
  std::vector<std::uint32_t> window_cells;  ///< scratch
};

/// Where the changes that make a version out of its base come from.
class ChangeSource {
 public:
  virtual ~ChangeSource() = default;
  /// Off the loop, before what follows. `base` outlives this object.
  virtual Status open(const SnapshotSource& base) = 0;
  /// The most bytes that change.
  [[nodiscard]] virtual std::uint64_t changed_bytes_max() const = 0;
  /// Turns `cells`, which are those of a range in the base, into the new ones, and says what it has changed. Any
  /// thread. Errors say what is wrong with what was published; the cells are then a mixture.
  virtual Status apply(const SegmentRange& range, MutableBytes cells, FoundChanges& found) = 0;
  /// After the last apply(): whether what was read holds, and leads to `leaves`. Errors as of apply(); kCorrupt (the
  /// cells that apply() was given are not the base's).
  virtual Status finish(const LeafSums& leaves) = 0;
};

/// A list of changes (patch/changes/change_file.h), of `bytes` in `file`. `finite_only` is about the new values; those
/// of the base are as they are. Errors: those of ChangeFile.
[[nodiscard]] std::unique_ptr<ChangeSource> listed_changes(FileRef file, std::uint64_t bytes, bool finite_only);

/// All of the new version: its files and tensors are those of the base, and what differs is found by one comparison.
/// `finite_only` is about all of it. Errors: those of SnapshotSource::read_at() and check_finite(); kCorrupt (it
/// changed while it was read).
[[nodiscard]] std::unique_ptr<ChangeSource> compared_snapshot(std::shared_ptr<const PublishedSnapshot> snapshot,
                                                              bool finite_only);

/// Whether compared_snapshot() is the way to publish it: few of its bytes have changed.
[[nodiscard]] bool is_worth_comparing(const PublishedSnapshot& snapshot);

}  // namespace weightcast
