#pragma once

#include <functional>
#include <memory>
#include <vector>

#include "patch/codec/codec.h"
#include "transport/io/jobs.h"
#include "transport/io/store/store.h"
#include "transport/node/payload/payload_producer.h"

namespace weightcast {

/// What changes have made of a version, and what the patch is encoded from that leads there.
struct PatchToEncode {
  Manifest manifest;  ///< as it will be announced, but for length and parts
  PatchHead head;     ///< with the result's digest
  std::shared_ptr<const LeafSums> leaves;
  StepRef step;  ///< the new values
  /// By segment of the plan. One cell for each change of the step, where the segment is encoded from these. Each is
  /// gone once it is encoded.
  std::vector<std::vector<std::byte>> old_values;
  /// By segment: those that were encoded when their cells were changed; of the others the frames are empty.
  std::vector<EncodedSegment> encoded;
};

struct EncodeChangesRequest {
  PatchToEncode patch;
  std::uint64_t expected_bytes = 0;
  std::uint64_t bytes_limit = 0;
  ManifestAuthor author = {};
  std::function<std::uint32_t(std::uint64_t payload_bytes)> choose_chunk_bytes;
};

/// Encodes the patch that leads to a version whose files are whole, and which the store still imports. Off the loop;
/// the patch is told of and sent meanwhile. At the end version and patch are complete in the store, together. After an
/// error the patch is discarded, and the import is left to the caller. Errors: kTooLarge (it would take `bytes_limit`);
/// those of the store.
void encode_changes(Jobs& jobs, FileSystem& files, Store& store, EncodeChangesRequest request,
                    PayloadObserver observer);

}  // namespace weightcast
