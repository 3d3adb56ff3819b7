#pragma once

#include <functional>
#include <memory>
#include <string>

#include "base/ids.h"
#include "transport/io/jobs.h"
#include "transport/io/store/store.h"
#include "transport/node/payload/payload_producer.h"
#include "transport/node/takeover/published_snapshot.h"

namespace weightcast {

struct TakeoverRequest {
  Version version{};
  std::shared_ptr<const PublishedSnapshot> snapshot;
  std::string model_id;
  bool allow_nonfinite = false;
  bool sample_packing = false;
  ManifestAuthor author = {};
  /// Called on the loop's thread with the payload's size.
  std::function<std::uint32_t(std::uint64_t payload_bytes)> choose_chunk_bytes;
};

/// Makes the origin's own copy of a snapshot in its store, hashing as it copies, off the loop. When it succeeded the
/// version is complete and current in the store. It is told of in steps that grow, so that a snapshot of any size takes
/// some hundred of them.
/// Nothing reads the source after `observer.done`. Errors: those of SnapshotSource; kInvalidArgument (a tensor that is
/// not finite); kCorrupt (the source changed while it was read); kClosed (the jobs were cancelled); kTooLarge (a
/// manifest that cannot be sent); kNoSpace, kIo.
void take_over(Jobs& jobs, Store& store, TakeoverRequest request, PayloadObserver observer);

}  // namespace weightcast
