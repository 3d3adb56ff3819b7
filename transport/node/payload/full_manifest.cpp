#include "transport/node/payload/full_manifest.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "patch/snapshot/snapshot_digest.h"
#include "proto/wire.pb.h"

namespace weightcast {
namespace {

// Parts are leaves as long as there are not more than these: workers hear of each.
constexpr std::uint32_t kPartsMax = 4096;
// What has been told grows by this share at least, so that a large snapshot does not take thousands of messages to each
// worker. Copying is faster than sending: nobody waits for what is not told yet.
constexpr double kGrowthShare = 0.5;

/// Chunks of a part of a payload that is sent while it is copied.
std::uint32_t choose_part_chunks(std::uint64_t payload_bytes, std::uint32_t chunk_bytes) {
  const std::uint64_t leaf_chunks = kDigestBlockBytes / chunk_bytes;
  const std::uint64_t chunks = payload_bytes / chunk_bytes + 1;
  return static_cast<std::uint32_t>(
      std::clamp<std::uint64_t>(std::max(leaf_chunks, chunks / kPartsMax), 1, kDigestsPerPart));
}

// What a worker would refuse is refused here, where somebody reads why.
Status check_fits_the_wire(Manifest manifest) {
  manifest.part_digests.resize(manifest.part_count());
  manifest.signature = {std::string(kSignatureBytesMax, 0), std::string(kCertificateBytesMax, 0)};
  const wire::Manifest message = manifest_to_wire(manifest);
  if (message.ByteSizeLong() > kControlBytesMax / 2) {
    return fail(Errc::kTooLarge, Op::kPublish,
                fmt::format("a manifest of {} bytes, at most {} can be sent; use fewer files or larger chunks",
                            message.ByteSizeLong(), kControlBytesMax / 2));
  }
  WC_TRY(manifest_from_wire(message));
  return {};
}

}  // namespace

Result<PayloadSource::Announcement> announce_full(
    FullPayload payload, const std::function<std::uint32_t(std::uint64_t)>& choose_chunk_bytes) {
  Manifest manifest;
  manifest.model_id = std::move(payload.model_id);
  manifest.version = payload.version;
  manifest.kind = PayloadKind::kFull;
  manifest.files = std::move(payload.files);
  manifest.file_tree = payload.file_tree;
  manifest.payload_bytes = manifest.snapshot_bytes();
  manifest.chunk_bytes = choose_chunk_bytes(manifest.payload_bytes);
  manifest.part_chunks = choose_part_chunks(manifest.payload_bytes, manifest.chunk_bytes);
  manifest.published_unix_ms = payload.published_unix_ms;
  WC_TRY(check_fits_the_wire(manifest));
  manifest.open = true;
  manifest.expected_bytes = std::exchange(manifest.payload_bytes, 0);
  return PayloadSource::Announcement{
      std::move(manifest), payload.packed_share, {.share_min = kGrowthShare}, std::move(payload.author)};
}

}  // namespace weightcast
