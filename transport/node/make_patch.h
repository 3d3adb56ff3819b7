#pragma once

#include <functional>

#include "transport/core/origin_core.h"
#include "transport/io/event_loop.h"
#include "transport/io/store.h"

namespace weightcast {

struct MakePatchRequest {
  PayloadId payload{};
  std::string model_id;
  /// Called on the loop's thread with the payload's size.
  std::function<std::uint32_t(std::uint64_t payload_bytes)> choose_chunk_bytes;
};

/// Compares two complete versions of the store, which must stay until it is done, and puts the patch between them into
/// the store, off the loop; `done` runs on the loop. It makes no difference whether the two are neighbours: a patch over
/// several versions carries the latest value of each cell, once.
/// Errors: kTooLarge (it would not be smaller than the full payload by kPatchShareMax: found by looking at samples
/// first, then while encoding), and those of encode_patch(), SnapshotSource and the store.
void make_patch(EventLoop& loop, Store& store, MakePatchRequest request, std::function<void(Result<MadePatch>)> done);

}  // namespace weightcast
