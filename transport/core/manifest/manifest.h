#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/digest/checksum.h"
#include "base/digest/content_digest.h"
#include "base/ids.h"
#include "base/result.h"
#include "patch/snapshot/file_table.h"
#include "proto/limits.h"

namespace weightcast::wire {
class Growth;
class Manifest;
}  // namespace weightcast::wire

namespace weightcast {

/// The origin's word for a manifest.
struct ManifestSignature {
  std::string bytes;        ///< Ed25519 over signed_statement(); "": it is not signed
  std::string certificate;  ///< DER: of the key, issued by the cluster's authority

  bool operator==(const ManifestSignature&) const = default;
};

/// A hash tree over a stream of bytes. Length and this fix its shape.
struct HashTree {
  std::uint32_t chunk_bytes = 0;  ///< 0: not known
  std::uint32_t part_chunks = 0;
  ContentDigest root{};  ///< over the digests of the parts

  bool operator==(const HashTree&) const = default;
};

/// What one payload is, after every check that needs none of its bytes. Immutable once made.
/// An open manifest describes a payload that is still being made. It has whole parts only. Each successor has more
/// parts, up to the one that is not open. An encoded payload has its result's digest from the start, a full one at its
/// end. Invariants: chunk_bytes is a power of two within its limits; chunk_count() * chunk_bytes covers payload_bytes;
/// there is one part digest per part_chunks chunks; for a full payload that is not open the files' sizes add up to
/// payload_bytes; files are safe to create in a directory of ours, and unless it is a file tree neither in directories
/// of their own, nor hidden, nor executable; an open payload has at most snapshot_bytes().
struct Manifest {
  std::string model_id;
  Version version{};
  PayloadKind kind = PayloadKind::kFull;
  Version base_version{};  ///< of a patch; else kNoVersion
  std::uint64_t payload_bytes = 0;
  std::uint32_t chunk_bytes = 0;
  std::vector<ContentDigest> part_digests;
  std::vector<SnapshotFile> files;  ///< of the resulting snapshot, in the order of the snapshot stream
  Checksum snapshot_digest{};       ///< see patch/snapshot/snapshot_digest.h; all 0 in an open full payload
  std::int64_t published_unix_ms = 0;
  std::uint32_t part_chunks = kDigestsPerPart;
  bool open = false;
  std::uint64_t expected_bytes = 0;  ///< of an open one: the origin's estimate; else 0
  RunId run{};                       ///< whose version it is; kNoRun: not known
  HashTree snapshot_tree{};          ///< of an encoded payload: over what it leads to, as the full payload has it
  bool file_tree = false;         ///< any files, below each other's directories; else weights and what accompanies them
  ManifestSignature signature{};  ///< over all of the above but expected_bytes

  bool operator==(const Manifest&) const = default;

  [[nodiscard]] PayloadId id() const { return {version, kind, base_version}; }
  [[nodiscard]] std::uint32_t chunk_count() const {
    return static_cast<std::uint32_t>((payload_bytes + chunk_bytes - 1) / chunk_bytes);
  }
  [[nodiscard]] std::uint32_t part_count() const { return (chunk_count() + part_chunks - 1) / part_chunks; }
  [[nodiscard]] std::uint32_t part_of(ChunkIndex chunk) const { return chunk.value / part_chunks; }
  /// The size to plan with: the estimate, while the end is not known.
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
  /// Of the hash tree over the payload, as far as there is one.
  [[nodiscard]] ContentDigest root() const;
  /// The tree over the snapshot: of a full payload its own.
  [[nodiscard]] HashTree tree_of_snapshot() const {
    return kind == PayloadKind::kFull ? HashTree{chunk_bytes, part_chunks, root()} : snapshot_tree;
  }
  /// Chunks of a part; the last one may have fewer.
  [[nodiscard]] std::uint32_t part_size(std::uint32_t part) const {
    const std::uint32_t left = chunk_count() - part * part_chunks;
    return left < part_chunks ? left : part_chunks;
  }
  /// Whether the digests of `part` can have this length: now, or, of an open payload, once it has grown.
  [[nodiscard]] bool can_be_part(std::uint32_t part, std::size_t list_bytes) const;
  /// Whether `chunk` can have this length: now, or, of an open payload, once it has grown.
  [[nodiscard]] bool can_be_chunk(ChunkIndex chunk, std::size_t size_bytes) const;
};

/// Checks everything that a peer could have got wrong. Errors: kCorrupt, naming the field.
[[nodiscard]] Result<Manifest> manifest_from_wire(const wire::Manifest& message);
[[nodiscard]] wire::Manifest manifest_to_wire(const Manifest& manifest);

/// The digests of the lists of `chunks` of each part: what part_digests holds.
[[nodiscard]] std::vector<ContentDigest> part_digests_of(const std::vector<ContentDigest>& chunks,
                                                         std::uint32_t part_chunks = kDigestsPerPart);
/// The root of a HashTree over chunks with these digests.
[[nodiscard]] ContentDigest root_over(const std::vector<ContentDigest>& chunks, std::uint32_t part_chunks);

/// Whether `later` is `earlier`, or what `earlier` can have grown to.
[[nodiscard]] bool continues(const Manifest& earlier, const Manifest& later);

/// What an open manifest grows to by the new parts of `growth`; the same manifest if there are none.
/// Errors: kCorrupt (out of its limits, a gap, other parts than those known, or the end of a full payload without its
/// digest).
[[nodiscard]] Result<Manifest> grown_by(const Manifest& manifest, const wire::Growth& growth);
/// The growth from `earlier` to `later`, which continues it.
[[nodiscard]] wire::Growth growth_between(const Manifest& earlier, const Manifest& later);

}  // namespace weightcast
