#pragma once

#include <map>
#include <memory>
#include <optional>
#include <vector>

#include "transport/core/chunk_set.h"
#include "transport/core/manifest.h"

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
  [[nodiscard]] const std::vector<Digest>& part(std::uint32_t part) const { return parts_[part]; }
  /// Known parts counted from the first without a gap.
  [[nodiscard]] std::uint32_t parts_from_start() const;

  /// `manifest` continues the one of now.
  void grow(std::shared_ptr<const Manifest> manifest);

  /// Takes the digests of one part after comparing their number and then the list with the manifest. Already known is
  /// fine. Errors: kCorrupt (they are not the manifest's, or no such part), kNotFound (of an open payload: no such part
  /// yet; the list is no longer than a part's).
  Status put_part(std::uint32_t part, Bytes digests);

  /// Compares and, if equal, records. Errors: kInvalidArgument (index, size), kNotFound (the part's digests are not
  /// known yet, or the payload has not grown so far; the chunk is no longer than one), kAlreadyExists (verified before;
  /// harmless), kCorrupt.
  Status verify(ChunkIndex chunk, std::uint32_t size_bytes, const Digest& digest);

  /// The digest that a verified chunk must have; nothing of one that is not verified.
  [[nodiscard]] std::optional<Digest> digest(ChunkIndex chunk) const;

  /// Takes over what a store found to be verified: digests of whole parts from the first, and a set of chunks within
  /// them.
  void restore(const std::vector<Digest>& digests, const ChunkSet& held);

 private:
  std::shared_ptr<const Manifest> manifest_;
  std::vector<std::vector<Digest>> parts_;
  ChunkSet verified_;
};

/// The payloads that a node can serve, wholly or in part.
using Holdings = std::map<PayloadId, Holding>;

}  // namespace weightcast
