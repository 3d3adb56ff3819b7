#pragma once

#include <atomic>
#include <memory>
#include <vector>

#include "patch/snapshot/snapshot_digest.h"
#include "transport/io/store/files/spare_update.h"
#include "transport/io/store/files/version_files.h"
#include "transport/io/store/files/version_record.h"
#include "transport/io/store/store_layout.h"

namespace weightcast {

// In-place update: a version's only copy becomes the next version, for hosts without room for two. The cells that it
// will overwrite go to a journal first (patch/apply/undo.h). While the journal exists, it can restore the old version.
// The steps, and what settle_in_place() makes of a crash after each:
//
//   1. the patch is decoded beside the files: B:  what the journal holds is written back, which is there already
//      the cells that change are listed, their
//      old values put into undo/N-B beside the
//      versions; the digest of N follows
//   2. versions/B is renamed to incoming/N        B: renamed back, nothing else was touched
//   3. the listed cells get their new values      B: what the journal holds is written back
//   4. N's record is written                      B, as above
//   5. incoming/N is renamed to versions/N,       N if it has a record and its files match their digest, as they do
//      `current` switched                         unless the power went; else B, as above
//   6. versions/N is synced and marked durable;   N
//      in memory its patch is in the log
//   7. the record of B and the journal go         N
//
// In memory a power cut leaves neither files nor journal: the log leads to B, or to N from 6 on (version_log.h).
//
// Until 2 anybody may read B. From 2 to 5 no version is visible: `current` leads nowhere. So step 1 does as much as
// possible, and a patch that fails does so there. B gets its name back only when its bytes match its digest. Where the
// leaves of B are known, steps 1 and 3 cost what the patch changes; where not, 1 reads all of B. All calls block. Any
// thread, one at a time.

struct InPlaceWork {
  FilesRef files;  ///< of the version that is here
  FilesRef patch;
  VersionRecord record;  ///< of the patch
  Checksum base_digest;
  std::shared_ptr<const LeafSums> base_leaves;  ///< null: not known
  unsigned threads = 1;                         ///< that work where there is much
};

/// What the update changes.
struct InPlaceChanges {
  /// The changed cells. Segments that are not listed are decoded once more when they are written.
  StepRef step;
  std::shared_ptr<const LeafSums> leaves;  ///< of the result
};

/// Step 1, of a version that is whole. Stops early when `wanted` becomes false. After an error no journal is left, or
/// the next try removes it. Memory: the lists, of kStepBytesMax at most; for each thread the code of a segment, and its
/// changes where it is listed, or else a window of its cells. Errors: kWrongBase (the patch does not fit the version,
/// or moves tensors, which cannot be done in place), kCorrupt (the payload does not decode, or leads to other bytes
/// than its manifest says), kNotFound (not wanted any more), kNoSpace, kIo.
[[nodiscard]] Result<InPlaceChanges> prepare_in_place(const StoreLayout& layout, const InPlaceWork& work,
                                                      const std::atomic<bool>& wanted);

/// Undoes step 1.
[[nodiscard]] Status abandon_in_place(const StoreLayout& layout, PayloadId payload);

struct InPlaceResult {
  Status status;
  bool base_lost = false;  ///< after an error: the old version could not be restored either
  double switch_s = 0;     ///< how long the switch of `current` took
  double hidden_s = 0;     ///< how long `current` led nowhere
};

/// Steps 2 to 5 with the `changes` that prepare_in_place() returned; by `threads`. Errors: kBusy (somebody else has a
/// file of the version open, mapped or linked): it stays prepared. After any other error everything is undone, step 1
/// included: those of prepare_in_place(), if the files have changed since.
[[nodiscard]] InPlaceResult install_in_place(const StoreLayout& layout, const InPlaceWork& work,
                                             const InPlaceChanges& changes);

/// Step 7. Harmless if `version` was not made in place.
[[nodiscard]] Status end_in_place(const StoreLayout& layout, Version version);

/// Completes or undoes what a dead process left; at start, before anything else. `threads` hash where there is much.
/// Errors: those of recover_store().
[[nodiscard]] Status settle_in_place(const StoreLayout& layout, unsigned threads);

}  // namespace weightcast
