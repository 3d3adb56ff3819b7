#pragma once

#include <functional>
#include <memory>
#include <vector>

#include "patch/codec/codec.h"
#include "transport/io/jobs.h"
#include "transport/io/store/store.h"
#include "transport/node/payload/payload_producer.h"

namespace weightcast {

/// A worker holds two at a time, with their code: so it stays below 16 MiB.
inline constexpr std::uint32_t kPatchSegmentBytes = 7 * kMiB;

struct MakePatchRequest {
  PayloadId payload{};
  std::string model_id;
  /// Called on the loop's thread with the payload's size, as far as samples tell it.
  std::function<std::uint32_t(std::uint64_t payload_bytes)> choose_chunk_bytes;
  ManifestAuthor author = {};
  /// Whether a patch may be made where half of the words changed. It takes more time of both ends for each byte that it
  /// saves, as packing does.
  bool may_be_dense = true;
};

/// Compares two complete versions of the store, which must stay until it is done, and puts the patch between them into
/// the store, off the loop. It makes no difference whether the two are neighbours: a patch over several versions
/// carries the latest value of each cell, once. A packed payload is made in the same way, from one version and nothing.
/// Errors: kTooLarge (it would not be smaller than the full payload by kPatchShareMax, a packed one by kPackedShareMax:
/// found by looking at samples first, then while encoding; or it is dense, and may not be), and those of
/// encode_patch(), SnapshotSource and the store.
void make_patch(Jobs& jobs, FileSystem& files, Store& store, MakePatchRequest request, PayloadObserver observer);

}  // namespace weightcast
