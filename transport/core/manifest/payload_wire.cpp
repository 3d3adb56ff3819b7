#include "transport/core/manifest/payload_wire.h"

#include <cstring>

namespace weightcast {

PayloadId payload_from_wire(const wire::PayloadId& message) {
  const Version version{message.version()}, base{message.base_version()};
  if (version == kNoVersion || version > kVersionMax) return {};
  switch (message.kind()) {
    case wire::PAYLOAD_KIND_FULL: return base == kNoVersion ? PayloadId{version} : PayloadId{};
    case wire::PAYLOAD_KIND_PACKED: return base == kNoVersion ? packed_of(version) : PayloadId{};
    case wire::PAYLOAD_KIND_PATCH: return base != kNoVersion && base < version ? patch_of(version, base) : PayloadId{};
    default: return {};
  }
}

std::optional<Checksum> checksum_from_wire(std::string_view field) {
  if (field.size() != Checksum::kBytes) return std::nullopt;
  Checksum checksum;
  std::memcpy(checksum.bytes.data(), field.data(), Checksum::kBytes);
  return checksum;
}

std::optional<std::vector<ContentDigest>> digests_from_wire(std::string_view field) {
  if (field.size() % ContentDigest::kBytes != 0) return std::nullopt;
  std::vector<ContentDigest> digests(field.size() / ContentDigest::kBytes);
  if (!digests.empty()) std::memcpy(digests.data(), field.data(), field.size());
  return digests;
}

void payload_to_wire(PayloadId payload, wire::PayloadId& message) {
  message.set_version(payload.version.value);
  message.set_kind(static_cast<wire::PayloadKind>(payload.kind));
  message.set_base_version(payload.base.value);
}

}  // namespace weightcast
