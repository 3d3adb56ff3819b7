#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/digest.h"
#include "base/ids.h"
#include "base/result.h"
#include "patch/file_table.h"
#include "proto/limits.h"

namespace weightcast::wire {
class Manifest;
}

namespace weightcast {

enum class PayloadKind : std::uint8_t { kFull, kPatch };

/// What one version is, after every check that can be made without its bytes. Immutable once made.
/// Invariants: chunk_bytes is a power of two within its limits; chunk_count() * chunk_bytes covers payload_bytes;
/// there is one part digest per kDigestsPerPart chunks; for a full payload the files' sizes add up to payload_bytes;
/// file names are safe to create in a directory of ours.
struct Manifest {
  std::string model_id;
  Version version{};
  Version base_version{};  ///< kNoVersion for a full payload
  PayloadKind kind = PayloadKind::kFull;
  std::uint64_t payload_bytes = 0;
  std::uint32_t chunk_bytes = 0;
  std::vector<Digest> part_digests;
  std::vector<SnapshotFile> files;  ///< of the resulting snapshot, in the order of the snapshot stream
  Digest snapshot_digest{};         ///< see patch/snapshot_digest.h
  std::int64_t published_unix_ms = 0;

  bool operator==(const Manifest&) const = default;

  [[nodiscard]] PayloadId id() const { return {version, base_version}; }
  [[nodiscard]] std::uint32_t chunk_count() const {
    return static_cast<std::uint32_t>((payload_bytes + chunk_bytes - 1) / chunk_bytes);
  }
  [[nodiscard]] std::uint32_t part_count() const { return (chunk_count() + kDigestsPerPart - 1) / kDigestsPerPart; }
  /// Position and length of a chunk in the payload; the last one may be short.
  [[nodiscard]] std::uint64_t chunk_offset(ChunkIndex chunk) const {
    return std::uint64_t{chunk.value} * chunk_bytes;
  }
  [[nodiscard]] std::uint32_t chunk_size(ChunkIndex chunk) const {
    const std::uint64_t left = payload_bytes - chunk_offset(chunk);
    return static_cast<std::uint32_t>(left < chunk_bytes ? left : chunk_bytes);
  }
  [[nodiscard]] std::uint64_t snapshot_bytes() const;
};

/// Checks everything that a peer could have got wrong. Errors: kCorrupt, naming the field.
[[nodiscard]] Result<Manifest> manifest_from_wire(const wire::Manifest& message);
[[nodiscard]] wire::Manifest manifest_to_wire(const Manifest& manifest);

/// The digests of `chunks` (16 bytes each) grouped into parts: what part_digests holds.
[[nodiscard]] std::vector<Digest> part_digests_of(const std::vector<Digest>& chunks);

}  // namespace weightcast
