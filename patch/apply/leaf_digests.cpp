#include "patch/apply/leaf_digests.h"

namespace weightcast {

std::optional<ChecksumStream> LeafDigests::take(std::uint64_t offset) {
  if (offset % kDigestBlockBytes == 0) return ChecksumStream();
  const std::lock_guard lock(mutex_);
  const auto found = open_.extract(offset);
  if (found.empty()) return std::nullopt;
  return std::move(found.mapped());
}

std::optional<Checksum> LeafDigests::put(std::uint64_t end, ChecksumStream digest) {
  if (end % kDigestBlockBytes == 0 || end == stream_bytes_) return digest.digest();
  const std::lock_guard lock(mutex_);
  open_.emplace(end, std::move(digest));
  return std::nullopt;
}

}  // namespace weightcast
