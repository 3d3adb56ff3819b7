#pragma once

#include <memory>

#include "patch/snapshot/snapshot_digest.h"
#include "transport/io/store/files/version_files.h"
#include "transport/io/store/files/version_record.h"
#include "transport/io/store/store_layout.h"

namespace weightcast {

/// The copy of a version on the disk that becomes the log's anchor: DIR/anchors/N with its record DIR/anchors/N.record.
/// It is made piece by piece, each of which is synced, so that the disk has time for others in between. All blocks; any
/// thread, one at a time. Until finish() has returned, a crash leaves nothing that counts.
class AnchorCopy {
 public:
  static constexpr std::size_t kLeavesPerPiece = 16;

  /// `record` is that of the version, whose files nobody changes meanwhile. Errors: kNoSpace, kIo.
  [[nodiscard]] static Result<std::shared_ptr<AnchorCopy>> begin(StoreLayout layout, VersionRecord record,
                                                                 FilesRef source);

  [[nodiscard]] bool complete() const { return next_leaf_ == digest_.leaf_count(); }
  /// Copies and syncs the next piece. Not when it is complete. Errors: kNoSpace, kIo, kCorrupt (a file of the version
  /// was cut short).
  [[nodiscard]] Status copy_piece();
  /// Makes it an anchor that survives a power cut, once it is complete. Errors: kCorrupt (the version's bytes are not
  /// those of its digest), kNoSpace, kIo.
  [[nodiscard]] Status finish();
  /// Takes back what begin() made.
  void discard();

 private:
  AnchorCopy(StoreLayout layout, VersionRecord record, FilesRef source, FilesRef target);

  const StoreLayout layout_;
  const VersionRecord record_;
  const FilesRef source_, target_;
  SnapshotDigest digest_;
  std::size_t next_leaf_ = 0;
};

/// The anchors in a store's directory, of the layout's run, newest first. What is no anchor is passed over.
[[nodiscard]] Result<std::vector<Version>> anchors_in(const StoreLayout& layout);

/// Makes a complete version on the disk, whose record is there and durable, an anchor where it is. Errors: kIo.
[[nodiscard]] Status make_anchor_of(const StoreLayout& layout, Version version, const VersionRecord& record);

/// Deletes all anchors but that one of the layout's run, what is left of copies, and the patches of other runs.
/// kNoVersion: all anchors.
[[nodiscard]] Status drop_log(const StoreLayout& layout, Version except);

}  // namespace weightcast
