#pragma once

#include <map>
#include <memory>
#include <optional>
#include <vector>

#include "transport/core/manifest/chunk_set.h"
#include "transport/core/manifest/manifest.h"

namespace weightcast {

/// What a node has of one payload: its manifest, the chunk digests as far as they are known, the verified chunks. Grows
/// while the payload is open. Pure. Invariant: a chunk is in `verified()` only if its digest was compared with the
/// manifest's.
class Holding {
 public:
  explicit Holding(std::shared_ptr<const Manifest> manifest);

  [[nodiscard]] const Manifest& manifest() const { return *manifest_; }
  [[nodiscard]] const std::shared_ptr<const Manifest>& shared_manifest() const { return manifest_; }
  [[nodiscard]] const ChunkSet& verified() const { return verified_; }
  [[nodiscard]] bool open() const { return manifest_->open; }
  [[nodiscard]] bool complete() const { return !open() && verified_.complete(); }

  [[nodiscard]] bool part_known(std::uint32_t part) const { return part < parts_.size() && !parts_[part].empty(); }
  /// The digests of one part; part_known(part) must hold.
  [[nodiscard]] const std::vector<ContentDigest>& part(std::uint32_t part) const { return parts_[part]; }
  /// Known parts counted from the first without a gap.
  [[nodiscard]] std::uint32_t parts_from_start() const;

  /// `manifest` continues the one of now.
  void grow(std::shared_ptr<const Manifest> manifest);

  /// Takes the digests of one part, if their number and then the list fit the manifest. A part that is known is fine.
  /// Errors: kCorrupt (not the manifest's, or no such part), kNotFound (the open payload has no such part yet; the list
  /// is no longer than a part's).
  Status put_part(std::uint32_t part, Bytes digests);

  /// Compares a chunk's digest, and records the chunk if it matches. Errors: kInvalidArgument (index or size),
  /// kNotFound (the part's digests are not known yet, or the payload has not grown so far; the chunk is no longer than
  /// one of it), kAlreadyExists (verified before; harmless), kCorrupt.
  Status verify(ChunkIndex chunk, std::uint32_t size_bytes, const ContentDigest& digest);

  /// The digest of a verified chunk; nothing for another one.
  [[nodiscard]] std::optional<ContentDigest> digest(ChunkIndex chunk) const;

  /// Adds what a store found on disk: digests of whole parts, from the first, and chunks of these parts. Parts that do
  /// not match the manifest are left out, and their chunks with them.
  void restore(const std::vector<ContentDigest>& digests, const ChunkSet& held);

 private:
  std::shared_ptr<const Manifest> manifest_;
  std::vector<std::vector<ContentDigest>> parts_;
  ChunkSet verified_;
};

/// The payloads that a node can serve, wholly or in part.
using Holdings = std::map<PayloadId, Holding>;

/// Adds a payload that is here whole. Returns false, and adds nothing, if those are not the manifest's digests.
bool hold_whole(Holdings& holdings, std::shared_ptr<const Manifest> manifest,
                const std::vector<ContentDigest>& chunk_digests);

}  // namespace weightcast
