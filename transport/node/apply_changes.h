#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "transport/io/jobs.h"
#include "transport/io/store/store.h"
#include "transport/node/make_patch.h"
#include "transport/node/payload_producer.h"

namespace weightcast {

/// A list of changes that was applied before, in memory of this process.
struct AppliedChanges {
  Version from{}, to{};
  FileRef list;
  std::uint64_t bytes = 0;
  std::shared_ptr<const std::vector<Checksum>> leaves = nullptr;  ///< of what they led to: see SnapshotDigest
};

/// All of these lists together take so much memory at the most, and one that is being applied so much once more.
inline constexpr std::uint64_t kAppliedChangesBytesMax = 256 * kMiB;

struct ChangesRequest {
  Version version{};
  Version base{};  ///< which the changes are against; complete in the store, and stays until it is done
  FileRef changes;
  std::uint64_t changes_bytes = 0;
  /// Those that led to the base, each from where the one before it led to. Files that hold an older version of them are
  /// brought up to date where they are, instead of copying the base.
  std::vector<AppliedChanges> earlier;
  std::string model_id;
  bool allow_nonfinite = false;  ///< in the new values; those of the base are as they are
  bool sample_packing = false;
  bool encodes_patch = true;
  ManifestAuthor author = {};
  /// Called on the loop's thread with the payload's size.
  std::function<std::uint32_t(std::uint64_t payload_bytes)> choose_chunk_bytes;
};

/// What is there besides the version; told before `observer.done`.
struct ByProducts {
  std::shared_ptr<const EncodedPatch> encoded;  ///< the patch from the base, or null
  std::optional<AppliedChanges> applied;        ///< the list, copied, unless it is too long
  bool was_in_place = false;
};

/// Bytes of a patch that wait for somebody to ask for it.
inline constexpr std::uint64_t kEncodedPatchBytesMax = 256 * kMiB;

/// Makes a version in the store out of another one and a list of changes (patch/changes/change_names.h), as take_over()
/// makes one out of a snapshot: with the same bytes, digests and manifest. Reads the base once, and checks it by the
/// leaves of the last of the earlier changes, which costs a tenth of its chunks' digests. The patch from the base
/// is encoded on the way, unless it grows beyond kEncodedPatchBytesMax or most cells change, and then it is to be made
/// by comparing.
/// Nothing reads the changes after `observer.done`. Errors: those of ChangeFile; kNotFound (the base is not in the
/// store); kCorrupt (the base is damaged: its bytes are not those of its digests); kClosed, kTooLarge, kNoSpace, kIo.
void apply_changes(Jobs& jobs, FileSystem& files, Store& store, ChangesRequest request, PayloadObserver observer,
                   std::function<void(ByProducts)> by_products);

}  // namespace weightcast
