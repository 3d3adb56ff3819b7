#pragma once

#include <functional>
#include <string>
#include <vector>

#include "transport/core/origin/catch_up.h"
#include "transport/node/payload/payload_producer.h"

namespace weightcast {

/// What is told of a full payload that this node makes itself.
struct FullPayload {
  Version version{};
  std::string model_id;
  std::vector<SnapshotFile> files;
  bool file_tree = false;
  double packed_share = kPackedShareOfWeights;
  std::int64_t published_unix_ms = 0;
  ManifestAuthor author = {};
};

/// The announcement of a full payload that is sent while it is made: leaf by leaf, in any order. `choose_chunk_bytes`
/// is given the payload's size. Errors: kTooLarge (a manifest that cannot be sent), and those of manifest_from_wire().
[[nodiscard]] Result<PayloadSource::Announcement> announce_full(
    FullPayload payload, const std::function<std::uint32_t(std::uint64_t)>& choose_chunk_bytes);

}  // namespace weightcast
