#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/digest.h"
#include "base/ids.h"
#include "base/result.h"
#include "patch/snapshot/file_table.h"
#include "proto/limits.h"

namespace weightcast::wire {
class Growth;
class Manifest;
}  // namespace weightcast::wire

namespace weightcast {

/// What one version is, after every check that can be made without its bytes. Immutable once made.
/// An open one is that of a payload which is still being made: it has whole parts only, and its successors have more,
/// up to the one that is not open. An encoded payload knows its result's digest from the start, a full one at its end.
/// Invariants: chunk_bytes is a power of two within its limits; chunk_count() * chunk_bytes covers payload_bytes;
/// there is one part digest per part_chunks chunks; for a full payload that is not open the files' sizes add up to
/// payload_bytes; file names are safe to create in a directory of ours; an open payload has at most snapshot_bytes().
struct Manifest {
  std::string model_id;
  Version version{};
  PayloadKind kind = PayloadKind::kFull;
  Version base_version{};  ///< of a patch; else kNoVersion
  std::uint64_t payload_bytes = 0;
  std::uint32_t chunk_bytes = 0;
  std::vector<Digest> part_digests;
  std::vector<SnapshotFile> files;  ///< of the resulting snapshot, in the order of the snapshot stream
  Digest snapshot_digest{};         ///< see patch/snapshot/snapshot_digest.h; all 0 in an open full payload
  std::int64_t published_unix_ms = 0;
  std::uint32_t part_chunks = kDigestsPerPart;
  bool open = false;
  std::uint64_t expected_bytes = 0;  ///< of an open one, as the origin guesses; else 0

  bool operator==(const Manifest&) const = default;

  [[nodiscard]] PayloadId id() const { return {version, kind, base_version}; }
  [[nodiscard]] std::uint32_t chunk_count() const {
    return static_cast<std::uint32_t>((payload_bytes + chunk_bytes - 1) / chunk_bytes);
  }
  [[nodiscard]] std::uint32_t part_count() const { return (chunk_count() + part_chunks - 1) / part_chunks; }
  [[nodiscard]] std::uint32_t part_of(ChunkIndex chunk) const { return chunk.value / part_chunks; }
  /// What to reckon with before the end is known.
  [[nodiscard]] std::uint64_t planned_bytes() const {
    return expected_bytes > payload_bytes ? expected_bytes : payload_bytes;
  }
  /// Position and length of a chunk in the payload; the last one may be short.
  [[nodiscard]] std::uint64_t chunk_offset(ChunkIndex chunk) const { return std::uint64_t{chunk.value} * chunk_bytes; }
  [[nodiscard]] std::uint32_t chunk_size(ChunkIndex chunk) const {
    const std::uint64_t left = payload_bytes - chunk_offset(chunk);
    return static_cast<std::uint32_t>(left < chunk_bytes ? left : chunk_bytes);
  }
  [[nodiscard]] std::uint64_t snapshot_bytes() const;
  /// Chunks of a part; the last one may have fewer.
  [[nodiscard]] std::uint32_t part_size(std::uint32_t part) const {
    const std::uint32_t left = chunk_count() - part * part_chunks;
    return left < part_chunks ? left : part_chunks;
  }
  /// Whether a list of digests of this length can be that of `part`: now, or, of an open payload, once it has grown.
  [[nodiscard]] bool can_be_part(std::uint32_t part, std::size_t list_bytes) const;
  /// Whether a chunk of this length can be that of the payload: now, or, if it is open, once it has grown.
  [[nodiscard]] bool can_be_chunk(ChunkIndex chunk, std::size_t size_bytes) const;
};

/// Checks everything that a peer could have got wrong. Errors: kCorrupt, naming the field.
[[nodiscard]] Result<Manifest> manifest_from_wire(const wire::Manifest& message);
[[nodiscard]] wire::Manifest manifest_to_wire(const Manifest& manifest);

/// The digests of `chunks` (16 bytes each) grouped into parts: what part_digests holds.
[[nodiscard]] std::vector<Digest> part_digests_of(const std::vector<Digest>& chunks,
                                                  std::uint32_t part_chunks = kDigestsPerPart);

/// Whether `later` is the same payload as `earlier`, or what that has grown to.
[[nodiscard]] bool continues(const Manifest& earlier, const Manifest& later);

/// What an open manifest grows to by the parts of `growth` that it has not got yet; equal to it where there are none.
/// Errors: kCorrupt (another payload's, or out of its limits, or a gap, or other parts than those known, or the end of
/// a full payload without its digest).
[[nodiscard]] Result<Manifest> grown_by(const Manifest& manifest, const wire::Growth& growth);
/// What takes `earlier` to `later`, which continues it.
[[nodiscard]] wire::Growth growth_between(const Manifest& earlier, const Manifest& later);

}  // namespace weightcast
