#include "transport/node/payload/open_payload.h"

#include <algorithm>
#include <utility>

namespace weightcast {

OpenPayload::OpenPayload(Manifest announced, GrowthPace pace, ManifestAuthor author)
    : author_(std::move(author)),
      announced_([&] {
        author_.sign(announced);
        return std::move(announced);
      }()),
      pace_(pace) {
  WC_CHECK(announced_.open && announced_.part_digests.empty());
}

std::optional<MadePayload> OpenPayload::handle_made(Instant now, std::uint32_t first,
                                                    std::span<const ContentDigest> digests, std::uint64_t bytes) {
  const std::lock_guard lock(mutex_);
  const auto end = static_cast<std::uint32_t>(first + digests.size());
  if (digests_.size() < end) digests_.resize(end);
  bytes_ += bytes;
  std::ranges::copy(digests, digests_.begin() + first);
  beyond_.emplace(first, end);
  while (!beyond_.empty() && beyond_.begin()->first == made_) made_ = beyond_.extract(beyond_.begin()).mapped();

  // A short chunk is the last one: it is told with the end.
  if (bytes % announced_.chunk_bytes != 0) whole_end_ = end - 1;
  const std::uint32_t whole = std::min(made_, whole_end_) / announced_.part_chunks * announced_.part_chunks;
  if (whole <= told_ || now < tell_at_ || double(whole - told_) < pace_.share_min * double(told_)) return std::nullopt;
  told_ = whole;
  tell_at_ = now + pace_.interval_min;
  return first_chunks(whole);
}

MadePayload OpenPayload::first_chunks(std::uint32_t chunks) const {
  MadePayload made{nullptr, {digests_.begin(), digests_.begin() + chunks}};
  auto manifest = std::make_shared<Manifest>(announced_);
  manifest->payload_bytes = std::uint64_t{chunks} * announced_.chunk_bytes;
  manifest->part_digests = part_digests_of(made.chunk_digests, announced_.part_chunks);
  author_.sign(*manifest);
  made.manifest = std::move(manifest);
  return made;
}

MadePayload OpenPayload::close(const Checksum& snapshot_digest) const {
  const std::lock_guard lock(mutex_);
  MadePayload made{nullptr, digests_};
  auto manifest = std::make_shared<Manifest>(announced_);
  manifest->open = false;
  manifest->expected_bytes = 0;
  manifest->payload_bytes = bytes_;
  manifest->snapshot_digest = snapshot_digest;
  WC_CHECK(beyond_.empty() && made_ == digests_.size() && made_ == manifest->chunk_count());
  manifest->part_digests = part_digests_of(made.chunk_digests, announced_.part_chunks);
  author_.sign(*manifest);
  made.manifest = std::move(manifest);
  return made;
}

}  // namespace weightcast
