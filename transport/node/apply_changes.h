#pragma once

#include <functional>
#include <memory>
#include <string>

#include "transport/io/jobs.h"
#include "transport/io/store/store.h"
#include "transport/node/payload_producer.h"

namespace weightcast {

struct ChangesRequest {
  Version version{};
  Version base{};  ///< which the changes are against; complete in the store, and stays until it is done
  FileRef changes;
  std::uint64_t changes_bytes = 0;
  std::string model_id;
  bool allow_nonfinite = false;  ///< in the new values; those of the base are as they are
  bool makes_patch = true;       ///< false: the full payload is made
  ManifestAuthor author = {};
  /// Called on the loop's thread with the payload's size.
  std::function<std::uint32_t(std::uint64_t payload_bytes)> choose_chunk_bytes;
};

/// The most bytes of a patch that is made from a list. Nothing of a longer one is worth keeping in memory.
inline constexpr std::uint64_t kListedPatchBytesMax = 256 * kMiB;

/// Makes a version in the store out of another one and a list of changes (patch/changes/change_names.h), with the patch
/// that leads there, and calls `done` with that patch: version and patch are complete in the store. Files of an older
/// version are brought up to date where they are, so the time goes by the changes; where there are none, the base is
/// copied, and checked. If a patch is not worth it (most cells change, or it would take more than kPatchShareMax of the
/// snapshot), the payload is the full one, whose digests take a pass over the version.
/// Nothing reads the list after `done`. After an error nothing is left in the store. Errors: those of ChangeFile;
/// kNotFound (the base is not in the store); kCorrupt (the base is damaged: its bytes are not those of its digest);
/// kClosed, kTooLarge, kNoSpace, kIo.
void apply_changes(Jobs& jobs, FileSystem& files, Store& store, ChangesRequest request,
                   std::function<void(Result<MadePayload>)> done);

}  // namespace weightcast
