#pragma once

#include <cstdint>
#include <string_view>

#include "base/result.h"
#include "proto/limits.h"
#include "proto/wire.pb.h"

namespace weightcast {

/// The protocol versions that a node speaks: all from `lowest` to `highest`.
struct ProtocolRange {
  std::uint32_t lowest = kProtocolVersionMin;
  std::uint32_t highest = kProtocolVersion;

  [[nodiscard]] bool contains(std::uint32_t version) const { return version >= lowest && version <= highest; }
  bool operator==(const ProtocolRange&) const = default;
};

/// What a peer says of itself, as `protocol` and `protocol_max` of its first message. Releases before version 8 do not
/// send the second one, and speak the first one alone.
[[nodiscard]] ProtocolRange protocol_range(std::uint32_t protocol, std::uint32_t protocol_max);

/// The highest version that both ends speak. `us` names this end in the error: "origin", "node". Errors: kUnsupported
/// (there is none; the detail names both ranges, and which end is to be upgraded).
[[nodiscard]] Result<std::uint32_t> agree_protocol(const ProtocolRange& ours, const ProtocolRange& theirs,
                                                   std::string_view us);

/// The first protocol version whose nodes know a message of that kind. docs/PROTOCOL.md has the table.
[[nodiscard]] std::uint32_t first_protocol_of(wire::Message::KindCase kind);

}  // namespace weightcast
