#pragma once

#include <atomic>
#include <memory>

#include "transport/io/store_layout.h"
#include "transport/io/version_files.h"
#include "transport/io/version_record.h"

namespace weightcast {

// A version's only copy becomes the next version, for hosts without room for two. What is overwritten goes to a journal
// first (patch/undo.h): while that exists, the old version can be had back. The steps, and what a crash after each
// leaves, once settle_in_place() has looked:
//
//   1. DIR/undo/N-B is made                       B
//   2. versions/B is renamed to incoming/N        B: renamed back, nothing else was touched
//   3. each segment: old bytes to the journal     B: what the journal holds is written back
//      and to the disk, then new ones to the files
//   4. the files are hashed, N's record written   B, as above
//   5. incoming/N is renamed to versions/N,       N if it has a record and its files match their digest, as they do
//      `current` switched                         unless the power went; else B, as above
//   6. versions/N is synced and marked durable    N
//   7. the record of B and the journal go         N
//
// From 2 to 5 no version is visible: `current` leads nowhere. All of this blocks; any thread, one at a time.

struct InPlaceWork {
  std::shared_ptr<VersionFiles> files;  ///< of the version that is here
  std::shared_ptr<VersionFiles> patch;
  VersionRecord record;  ///< of the patch
  Digest base_digest;
};

struct InPlaceResult {
  Status status;
  bool base_lost = false;  ///< after an error: the old version could not be put back either
  double switch_s = 0;
};

/// Steps 1 to 5; after an error what was done is undone. Stops early when `wanted` becomes false.
/// Errors: kBusy (somebody else has a file of the version open, mapped or linked), kWrongBase (the patch does not fit
/// the version, or cannot be applied in place, because tensors move), kCorrupt (the patch is none), kNotFound (not
/// wanted any more), kNoSpace, kIo.
[[nodiscard]] InPlaceResult install_in_place(const StoreLayout& layout, const InPlaceWork& work,
                                             const std::atomic<bool>& wanted);

/// Step 7. Harmless where `version` was not made in place.
[[nodiscard]] Status end_in_place(const StoreLayout& layout, Version version);

/// Finds out what a process left that died in between; at start, before anything else is looked at. Errors: kIo.
[[nodiscard]] Status settle_in_place(const StoreLayout& layout);

}  // namespace weightcast
