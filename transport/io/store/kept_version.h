#pragma once

#include <memory>
#include <optional>
#include <vector>

#include "patch/snapshot/snapshot_digest.h"
#include "transport/io/store/files/version_files.h"
#include "transport/io/store/files/version_record.h"
#include "transport/io/store/store_layout.h"
#include "transport/io/store/store_recovery.h"

namespace weightcast {

// With versions in memory, one whole version on the disk: DIR/versions/N and DIR/records/N, as if versions lay there.

/// The copy of a version in memory that becomes the kept one. It is made piece by piece, each of which is synced, so
/// that the disk has time for others in between. All blocks; any thread, one at a time. Until finish() has returned, a
/// crash leaves nothing that counts.
class KeptCopy {
 public:
  static constexpr std::size_t kLeavesPerPiece = 16;

  /// `layout` is that of the version, `record` its record. Nobody changes its files meanwhile. Errors: kNoSpace, kIo.
  [[nodiscard]] static Result<std::shared_ptr<KeptCopy>> begin(const StoreLayout& layout, VersionRecord record,
                                                               FilesRef source);

  [[nodiscard]] bool complete() const { return next_leaf_ == digest_.leaf_count(); }
  /// Copies and syncs the next piece. Not when it is complete. Errors: kNoSpace, kIo, kCorrupt (a file of the version
  /// was cut short).
  [[nodiscard]] Status copy_piece();
  /// Makes it survive a power cut in place of the one before, once it is complete. Errors: kCorrupt (the version's
  /// bytes are not those of its digest), kNoSpace, kIo.
  [[nodiscard]] Status finish();
  /// Takes back what begin() made.
  void discard() const;

 private:
  KeptCopy(StoreLayout disk, VersionRecord record, FilesRef source, FilesRef target);

  const StoreLayout disk_;
  const VersionRecord record_;
  const FilesRef source_, target_;
  SnapshotDigest digest_;
  std::size_t next_leaf_ = 0;
};

struct RecoveredKept {
  Version kept{};                            ///< that a power cut would leave; kNoVersion: none
  bool is_durable = true;                    ///< false: the disk is too full to make sure of it
  std::optional<RecoveredVersion> restored;  ///< where versions lie, with its record
};

/// Finds the newest whole version on the disk. If it is newer than `complete`, which lie in memory, it is copied there,
/// and each byte compared. Deletes what is proven wrong, and what is not synced. Blocks. Errors: those of
/// recover_store().
[[nodiscard]] Result<RecoveredKept> recover_kept(const StoreLayout& layout,
                                                 const std::vector<RecoveredVersion>& complete, unsigned threads);

/// Deletes what the disk of a store with versions in memory has, but for the version `kept` of the layout's run;
/// kNoVersion: all.
[[nodiscard]] Status sweep_disk(const StoreLayout& layout, Version kept);

/// Takes whole versions out of the form of the release before, which had its log of patches on the disk: its anchors
/// become versions on the disk, and versions in memory get their records there. The rest of that form goes.
[[nodiscard]] Status take_form_before(const StoreLayout& layout);

}  // namespace weightcast
