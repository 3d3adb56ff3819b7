#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "base/ids.h"
#include "transport/core/origin/publications.h"
#include "transport/io/jobs.h"
#include "transport/io/store/store.h"

namespace weightcast {

struct TakeoverRequest {
  Version version{};
  std::string path;  ///< a safetensors file or a directory
  std::string model_id;
  bool allow_nonfinite = false;
  bool look_whether_packable = false;
  /// Called on the loop's thread with the payload's size.
  std::function<std::uint32_t(std::uint64_t payload_bytes)> choose_chunk_bytes;
};

/// Who is told how far it is; all on the loop.
struct TakeoverObserver {
  /// There is a snapshot to copy: an open manifest without any parts, and whether packing would make it smaller (true
  /// unless it was looked at). Not called for one that is refused before.
  std::function<void(std::shared_ptr<const Manifest>, bool packable)> begun;
  /// What was copied so far can be read from the store, as whole parts: first a few MiB, then ever more at a time, so
  /// that a snapshot of any size takes some hundred calls.
  std::function<void(MadePayload)> grown;
  /// The last call. When it succeeded the version is complete and current in the store; after an error what could be
  /// read so far is gone when it returns.
  std::function<void(Result<MadePayload>)> done;
};

/// Makes the origin's own copy of a snapshot in its store, hashing as it copies, off the loop.
/// Errors: those of SnapshotSource; kInvalidArgument (a tensor that is not finite); kCorrupt (the source changed while
/// it was read); kClosed (the jobs were cancelled); kTooLarge (a manifest that cannot be sent); kNoSpace, kIo.
void take_over(Jobs& jobs, Store& store, TakeoverRequest request, TakeoverObserver observer);

}  // namespace weightcast
