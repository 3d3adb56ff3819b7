// Arbitrary bytes as a message between nodes: each part of it is refused, or keeps the promises of the type that it is
// read into, and says the same when it is written again.
#include <filesystem>

#include "proto/limits.h"
#include "proto/wire.pb.h"
#include "transport/core/assignment.h"
#include "transport/core/edge/parent_fault.h"
#include "transport/core/manifest/chunk_set.h"
#include "transport/core/manifest/manifest.h"
#include "transport/core/manifest/payload_wire.h"
#include "transport/core/plan/stripes.h"

namespace weightcast {
namespace {

void check(const wire::Manifest& message, const wire::Growth* growth) {
  const Result<Manifest> manifest = manifest_from_wire(message);
  if (!manifest.has_value()) return;
  WC_CHECK(manifest->payload_bytes <= kPayloadBytesMax && manifest->chunk_count() <= kChunksMax);
  WC_CHECK(manifest->part_digests.size() == manifest->part_count() && manifest->files.size() <= kFilesMax);
  for (const SnapshotFile& file : manifest->files) {
    const std::filesystem::path path = file.name;
    WC_CHECK(path.is_relative() && path.lexically_normal() == path && *path.begin() != ".." && path.has_filename());
    WC_CHECK(manifest->file_tree || (!path.has_parent_path() && !file.executable));
  }
  const Result<Manifest> again = manifest_from_wire(manifest_to_wire(*manifest));
  WC_CHECK(again.has_value() && *again == *manifest);
  if (growth == nullptr) return;
  const Result<Manifest> grown = grown_by(*manifest, *growth);
  if (grown.has_value()) WC_CHECK(continues(*manifest, *grown) && grown->chunk_count() <= kChunksMax);
}

void check(const wire::Assignment& message) {
  const Result<Assignment> assignment = assignment_from_wire(message);
  if (!assignment.has_value()) return;
  WC_CHECK(assignment->stripes.size() == assignment->stripe_weights.size());
  WC_CHECK(are_stripe_weights(assignment->stripe_weights));
  for (const StripeSource& source : assignment->stripes) {
    WC_CHECK(!source.ancestors.empty() && source.ancestors.size() <= kAncestorsMax);
  }
  const Result<Assignment> again = assignment_from_wire(assignment_to_wire(*assignment));
  WC_CHECK(again.has_value());
}

void check(const wire::Subscribe& message) {
  const std::vector<std::uint32_t> weights(message.stripe_weights().begin(), message.stripe_weights().end());
  if (are_stripe_weights(weights)) {
    const StripeMap map(weights);
    for (std::uint32_t chunk = 0; chunk < 100; ++chunk) WC_CHECK(map.stripe_of(ChunkIndex{chunk}) < map.count());
  }
  const ChunkSet held = ChunkSet::from_bytes(1000, message.chunks_held());
  WC_CHECK(held.count() <= 1000);
}

}  // namespace
}  // namespace weightcast

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace weightcast;
  wire::Message message;
  if (!message.ParseFromArray(data, static_cast<int>(size))) return 0;
  if (message.has_announce()) {
    // A growth of this very manifest, as a message holds one of them only.
    const wire::Manifest& manifest = message.announce().manifest();
    wire::Growth growth;
    *growth.mutable_payload() = manifest.payload();
    growth.set_payload_bytes(manifest.expected_bytes());
    growth.set_part_digests(manifest.part_digests() + manifest.snapshot_digest());
    growth.set_open(manifest.published_unix_ms() % 2 != 0);
    growth.set_snapshot_digest(manifest.snapshot_digest());
    check(manifest, &growth);
    check(message.announce().assignment());
  }
  if (message.has_assignment()) check(message.assignment());
  if (message.has_subscribe()) check(message.subscribe());
  if (message.has_parent_fault()) {
    const ParentFault fault = parent_fault_from_wire(message.parent_fault());
    WC_CHECK(parent_fault_from_wire(parent_fault_to_wire(fault)) == fault);
  }
  return 0;
}
