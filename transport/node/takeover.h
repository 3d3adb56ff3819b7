#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "base/ids.h"
#include "transport/core/manifest.h"
#include "transport/io/event_loop.h"
#include "transport/io/store.h"

namespace weightcast {

struct TakeoverRequest {
  Version version{};
  std::string path;  ///< a safetensors file or a directory
  std::string model_id;
  bool allow_nonfinite = false;
  /// Called on the loop's thread with the payload's size.
  std::function<std::uint32_t(std::uint64_t payload_bytes)> choose_chunk_bytes;
};

struct TakenOver {
  std::shared_ptr<const Manifest> manifest;
  std::vector<Digest> chunk_digests;
  std::uint64_t snapshot_bytes = 0;
};

/// Makes the origin's own copy of a snapshot in its store, hashing as it copies, off the loop; `done` runs on the loop.
/// When it succeeds the version is complete and current in the store; when it fails nothing of it is left.
/// Errors: those of SnapshotSource; kInvalidArgument (a tensor that is not finite); kCorrupt (the source changed while
/// it was read); kNoSpace, kIo.
void take_over(EventLoop& loop, Store& store, TakeoverRequest request, std::function<void(Result<TakenOver>)> done);

}  // namespace weightcast
