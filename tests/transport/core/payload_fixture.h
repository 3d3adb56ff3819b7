#pragma once

#include <array>
#include <memory>
#include <span>
#include <vector>

#include "transport/core/action.h"
#include "transport/core/manifest/manifest.h"
#include "transport/core/manifest/payload_wire.h"

namespace weightcast {

inline ContentDigest chunk_digest(Version version, ChunkIndex chunk) {
  const std::array<std::uint64_t, 2> content{version.value, chunk.value};
  return content_digest_of(std::as_bytes(std::span(content)));
}

/// Of a version's snapshot.
inline Checksum snapshot_digest(Version version) { return checksum_of(std::as_bytes(std::span(&version.value, 1))); }

/// All kinds of messages, empty.
inline std::vector<wire::Message> every_message() {
  std::vector<wire::Message> all;
  const auto* kinds = wire::Message::descriptor()->oneof_decl(0);
  for (int i = 0; i < kinds->field_count(); ++i) {
    wire::Message& message = all.emplace_back();
    message.GetReflection()->MutableMessage(&message, kinds->field(i));
  }
  return all;
}

/// That `payload` is installed, and what the version is then.
inline wire::Message installed_message(PayloadId payload, const Checksum& digest) {
  wire::Message message;
  set_payload(*message.mutable_installed(), payload);
  message.mutable_installed()->set_snapshot_digest(digest.bytes.data(), Checksum::kBytes);
  return message;
}

/// With a stripe for each of `weights`.
inline wire::Message subscribe_message(PayloadId payload, std::initializer_list<std::uint32_t> weights = {}) {
  wire::Message message;
  set_payload(*message.mutable_subscribe(), payload);
  for (const std::uint32_t weight : weights) message.mutable_subscribe()->add_stripe_weights(weight);
  return message;
}

inline std::vector<ContentDigest> chunk_digests(Version version, std::uint32_t chunks) {
  std::vector<ContentDigest> digests;
  for (std::uint32_t i = 0; i < chunks; ++i) digests.push_back(chunk_digest(version, ChunkIndex{i}));
  return digests;
}

/// Of whole chunks of the least size, whose digests are chunk_digest().
inline std::shared_ptr<const Manifest> manifest_of(Version version, std::uint32_t chunks) {
  auto manifest = std::make_shared<Manifest>();
  manifest->version = version;
  manifest->chunk_bytes = kChunkBytesMin;
  manifest->payload_bytes = std::uint64_t{chunks} * kChunkBytesMin;
  manifest->part_digests = part_digests_of(chunk_digests(version, chunks));
  manifest->files = {{"model.safetensors", manifest->payload_bytes}};
  manifest->snapshot_digest = snapshot_digest(version);
  return manifest;
}

inline constexpr std::uint32_t kGrowingPartChunks = 4;

/// A patch that is being made, so far; or, if it is not open, as it is in the end.
inline std::shared_ptr<const Manifest> growing_manifest(PayloadId patch, std::uint32_t chunks, bool open = true) {
  auto manifest = std::make_shared<Manifest>(*manifest_of(patch.version, chunks));
  manifest->base_version = patch.base;
  manifest->kind = patch.kind;
  manifest->open = open;
  manifest->part_chunks = kGrowingPartChunks;
  manifest->part_digests = part_digests_of(chunk_digests(patch.version, chunks), kGrowingPartChunks);
  manifest->files = {{"model.safetensors", 64 * kMiB}};
  manifest->snapshot_digest = checksum_of({});
  return manifest;
}

/// `chunks` of the `all` of a version that is being taken over; or, if it is not open, all of it.
inline std::shared_ptr<const Manifest> taken_over_manifest(Version version, std::uint32_t chunks, std::uint32_t all) {
  auto manifest = std::make_shared<Manifest>(*manifest_of(version, all));
  manifest->part_chunks = kGrowingPartChunks;
  manifest->open = chunks < all;
  manifest->part_digests = part_digests_of(chunk_digests(version, chunks), kGrowingPartChunks);
  if (!manifest->open) return manifest;
  manifest->expected_bytes = manifest->payload_bytes;
  manifest->payload_bytes = std::uint64_t{chunks} * kChunkBytesMin;
  manifest->snapshot_digest = {};
  return manifest;
}

inline wire::DigestPart growing_part_of(PayloadId patch, std::uint32_t part) {
  const std::vector<ContentDigest> all = chunk_digests(patch.version, (part + 1) * kGrowingPartChunks);
  wire::DigestPart message;
  set_payload(message, patch);
  message.set_part(part);
  message.set_digests(&all[part * kGrowingPartChunks], kGrowingPartChunks * ContentDigest::kBytes);
  return message;
}

inline ChunkArrival chunk_of(Version version, ChunkIndex chunk, bool damaged = false) {
  ContentDigest digest = chunk_digest(version, chunk);
  if (damaged) digest.bytes[0] ^= std::byte{1};
  return {version, chunk, kChunkBytesMin, digest, nullptr};
}

inline wire::DigestPart part_of(Version version, std::uint32_t chunks, std::uint32_t part = 0) {
  const std::vector<ContentDigest> all = chunk_digests(version, chunks);
  wire::DigestPart message;
  set_payload(message, version);
  message.set_part(part);
  const auto first = std::size_t{part} * kDigestsPerPart;
  const std::size_t count = std::min<std::size_t>(all.size() - first, kDigestsPerPart);
  message.set_digests(all.data() + first, count * ContentDigest::kBytes);
  return message;
}

/// All that a core or a part of one wants done, of one kind.
template <typename Kind>
std::vector<Kind> only(const std::vector<Action>& actions) {
  std::vector<Kind> found;
  for (const Action& action : actions) {
    if (const auto* kind = std::get_if<Kind>(&action)) found.push_back(*kind);
  }
  return found;
}

template <typename Source>
std::vector<Action> drain(Source&& source) {
  std::vector<Action> actions;
  while (auto action = source()) actions.push_back(std::move(*action));
  return actions;
}

}  // namespace weightcast
