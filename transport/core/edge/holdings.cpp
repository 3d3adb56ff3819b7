#include "transport/core/edge/holdings.h"

#include <fmt/format.h>

#include <cstring>

namespace weightcast {

Holding::Holding(std::shared_ptr<const Manifest> manifest)
    : manifest_(std::move(manifest)), parts_(manifest_->part_count()), verified_(manifest_->chunk_count()) {}

std::uint32_t Holding::parts_from_start() const {
  std::uint32_t known = 0;
  while (part_known(known)) ++known;
  return known;
}

void Holding::grow(std::shared_ptr<const Manifest> manifest) {
  WC_CHECK(continues(*manifest_, *manifest));
  manifest_ = std::move(manifest);
  parts_.resize(manifest_->part_count());
  verified_.grow(manifest_->chunk_count());
}

Status Holding::put_part(std::uint32_t part, Bytes digests) {
  // First of all: nothing that could not be a part is hashed.
  if (!manifest_->can_be_part(part, digests.size())) {
    return fail(Errc::kCorrupt, Op::kVerify,
                fmt::format("digest part {} of {} bytes: version {} has no such part", part, digests.size(),
                            manifest_->version.value));
  }
  if (part >= parts_.size())
    return fail(Errc::kNotFound, Op::kVerify, fmt::format("digest part {}: not there yet", part));
  if (part_known(part)) return {};
  if (content_digest_of(digests) != manifest_->part_digests[part]) {
    return fail(
        Errc::kCorrupt, Op::kVerify,
        fmt::format("digest part {} of version {}: not what the manifest says", part, manifest_->version.value));
  }
  parts_[part].resize(digests.size() / ContentDigest::kBytes);
  std::memcpy(parts_[part].data(), digests.data(), digests.size());
  return {};
}

Status Holding::verify(ChunkIndex chunk, std::uint32_t size_bytes, const ContentDigest& digest) {
  if (!manifest_->can_be_chunk(chunk, size_bytes)) {
    return fail(Errc::kInvalidArgument, Op::kVerify,
                fmt::format("chunk {} of {} bytes: version {} has no such chunk", chunk.value, size_bytes,
                            manifest_->version.value));
  }
  if (chunk.value >= manifest_->chunk_count()) {
    return fail(Errc::kNotFound, Op::kVerify, fmt::format("chunk {}: not there yet", chunk.value));
  }
  const std::uint32_t part = manifest_->part_of(chunk);
  if (!part_known(part)) return fail(Errc::kNotFound, Op::kVerify, fmt::format("digest part {}: not here yet", part));
  if (verified_.contains(chunk)) {
    return fail(Errc::kAlreadyExists, Op::kVerify, fmt::format("chunk {}: verified before", chunk.value));
  }
  if (parts_[part][chunk.value % manifest_->part_chunks] != digest) {
    return fail(
        Errc::kCorrupt, Op::kVerify,
        fmt::format("chunk {} of version {}: does not match its digest", chunk.value, manifest_->version.value));
  }
  verified_.insert(chunk);
  return {};
}

std::optional<ContentDigest> Holding::digest(ChunkIndex chunk) const {
  if (chunk.value >= verified_.size() || !verified_.contains(chunk)) return std::nullopt;
  return parts_[manifest_->part_of(chunk)][chunk.value % manifest_->part_chunks];
}

void Holding::restore(const std::vector<ContentDigest>& digests, const ChunkSet& held) {
  const std::size_t part_chunks = manifest_->part_chunks;
  for (std::uint32_t p = 0; p < parts_.size() && p * part_chunks < digests.size(); ++p) {
    const auto first = std::span(digests).subspan(p * part_chunks);
    // A part that does not match is left unknown, and its chunks with it.
    (void)put_part(p, std::as_bytes(first.first(std::min(first.size(), part_chunks))));
  }
  for (auto chunk = held.next_in(ChunkIndex{0}); chunk; chunk = held.next_in(ChunkIndex{chunk->value + 1})) {
    if (chunk->value < verified_.size() && part_known(manifest_->part_of(*chunk))) verified_.insert(*chunk);
  }
}

bool hold_whole(Holdings& holdings, std::shared_ptr<const Manifest> manifest,
                const std::vector<ContentDigest>& chunk_digests) {
  Holding holding(std::move(manifest));
  holding.restore(chunk_digests, ChunkSet(holding.manifest().chunk_count(), true));
  if (!holding.complete()) return false;
  holdings.emplace(holding.manifest().id(), std::move(holding));
  return true;
}

}  // namespace weightcast
