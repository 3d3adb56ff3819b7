#pragma once

#include <functional>
#include <memory>
#include <string>

#include "transport/io/jobs.h"
#include "transport/io/store/store.h"
#include "transport/node/payload/payload_producer.h"
#include "transport/node/takeover/change_source.h"

namespace weightcast {

struct ChangesRequest {
  Version version{};
  Version base{};  ///< which the changes are against; complete in the store, and stays until it is done
  std::unique_ptr<ChangeSource> changes;
  std::string model_id;
  bool makes_patch = true;     ///< false: the full payload is made
  bool proves_result = false;  ///< the patch vouches for the SHA-256 tree over the version, which takes a pass over it
  ManifestAuthor author = {};
  /// Called on the loop's thread with the payload's size.
  std::function<std::uint32_t(std::uint64_t payload_bytes)> choose_chunk_bytes;
};

/// Makes a version in the store out of another one and what changes in it, with the patch that leads there. Files of an
/// older version are brought up to date where they are, so the time goes by the changes; where there are none, the base
/// is copied, and checked. When the cells have changed the result's digest is known: `observer` hears of the patch, and
/// it is encoded and can be sent meanwhile. At `done`, version and patch are complete in the store. If a patch is not
/// worth it (most cells change, or it would take more than kPatchShareMax of the snapshot), the payload is the full
/// one, whose digests take a pass over the version; a patch that turns out so while it is encoded is withdrawn first.
/// Nothing reads the source after `begun`. After an error nothing is left in the store. Errors: those of the source;
/// kNotFound (the base is not in the store); kCorrupt (the base is damaged: its bytes are not those of its digest);
/// kClosed, kTooLarge, kNoSpace, kIo.
void apply_changes(Jobs& jobs, FileSystem& files, Store& store, ChangesRequest request, PayloadObserver observer);

}  // namespace weightcast
