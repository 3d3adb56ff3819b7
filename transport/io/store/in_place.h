#pragma once

#include <atomic>
#include <memory>
#include <vector>

#include "patch/codec/segment.h"
#include "transport/io/store/store_layout.h"
#include "transport/io/store/version_files.h"
#include "transport/io/store/version_record.h"

namespace weightcast {

// A version's only copy becomes the next version, for hosts without room for two. What is overwritten goes to a journal
// first (patch/apply/undo.h): while that exists, the old version can be had back. The steps, and what a crash after
// each leaves, once settle_in_place() has looked:
//
//   1. the patch is decoded beside the files,     B: what the journal holds is written back, which is there already
//      and their old bytes put into DIR/undo/N-B,
//      on the disk; what it leads to is hashed
//   2. versions/B is renamed to incoming/N        B: renamed back, nothing else was touched
//   3. the new bytes are written                  B: what the journal holds is written back
//   4. N's record is written                      B, as above
//   5. incoming/N is renamed to versions/N,       N if it has a record and its files match their digest, as they do
//      `current` switched                         unless the power went; else B, as above
//   6. versions/N is synced and marked durable    N
//   7. the record of B and the journal go         N
//
// Until 2 anybody may read B; from 2 to 5 no version is visible: `current` leads nowhere. So all that can be done
// before is: a patch that fails does so in 1. All of this blocks; any thread, one at a time.

struct InPlaceWork {
  std::shared_ptr<VersionFiles> files;  ///< of the version that is here
  std::shared_ptr<VersionFiles> patch;
  VersionRecord record;  ///< of the patch
  Digest base_digest;
};

/// A segment of a patch, with its header, in the patch's file.
struct SegmentPlace {
  std::uint64_t offset_bytes = 0;
  std::uint64_t size_bytes = 0;
};

/// What is to be written: some of a plan's segments.
struct InPlaceChanges {
  std::vector<SegmentRange> plan;
  std::vector<SegmentPlace> places;
};

/// Step 1. Returns the segments that change something. Stops early when `wanted` becomes false; after an error no
/// journal is left. Memory: the code of one segment, and a window of its cells.
/// Errors: kAlreadyExists (it was prepared before), kWrongBase (the patch does not fit the version, or cannot be
/// applied in place, because tensors move), kCorrupt (the patch is none, or leads elsewhere than its manifest says),
/// kNotFound (not wanted any more), kNoSpace, kIo.
[[nodiscard]] Result<InPlaceChanges> prepare_in_place(const StoreLayout& layout, const InPlaceWork& work,
                                                      const std::atomic<bool>& wanted);

/// Takes step 1 back.
[[nodiscard]] Status abandon_in_place(const StoreLayout& layout, PayloadId payload);

struct InPlaceResult {
  Status status;
  bool base_lost = false;  ///< after an error: the old version could not be put back either
  double switch_s = 0;
  double hidden_s = 0;  ///< how long `current` led nowhere
};

/// Steps 2 to 5, of `changes`, which prepare_in_place() returned; by two threads where there is much. After kBusy
/// (somebody else has a file of the version open, mapped or linked) it is as prepared as before; after another error
/// everything is undone, step 1 as well. Stops early when `wanted` becomes false. Errors: those of prepare_in_place(),
/// too, where the files are not any more what they were.
[[nodiscard]] InPlaceResult install_in_place(const StoreLayout& layout, const InPlaceWork& work,
                                             const InPlaceChanges& changes, const std::atomic<bool>& wanted);

/// Step 7. Harmless where `version` was not made in place.
[[nodiscard]] Status end_in_place(const StoreLayout& layout, Version version);

/// Finds out what a process left that died in between; at start, before anything else is looked at. Errors: kIo.
[[nodiscard]] Status settle_in_place(const StoreLayout& layout);

}  // namespace weightcast
