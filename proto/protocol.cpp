#include "proto/protocol.h"

#include <fmt/format.h>

#include <algorithm>
#include <string>

namespace weightcast {
namespace {

std::string to_text(const ProtocolRange& range) {
  return range.lowest == range.highest ? fmt::format("{}", range.lowest)
                                       : fmt::format("{} to {}", range.lowest, range.highest);
}

}  // namespace

ProtocolRange protocol_range(std::uint32_t protocol, std::uint32_t protocol_max) {
  return {protocol, std::max(protocol, protocol_max)};
}

Result<std::uint32_t> agree_protocol(const ProtocolRange& ours, const ProtocolRange& theirs, std::string_view us) {
  const std::uint32_t highest = std::min(ours.highest, theirs.highest);
  if (ours.contains(highest) && theirs.contains(highest)) return highest;
  const bool is_older = theirs.highest < ours.lowest;
  return fail(Errc::kUnsupported, Op::kReceive,
              fmt::format("it speaks protocol {}, this {} {}: its release is too {}; upgrade {} to the release between",
                          to_text(theirs), us, to_text(ours), is_older ? "old" : "new",
                          is_older ? "it" : fmt::format("this {}", us)));
}

// No default: whoever adds a message says here since when nodes know it.
std::uint32_t first_protocol_of(wire::Message::KindCase kind) {
  using Kind = wire::Message::KindCase;
  switch (kind) {
    case Kind::kJoin:
    case Kind::kJoined:
    case Kind::kHeartbeat:
    case Kind::kHeartbeatAck:
    case Kind::kAnnounce:
    case Kind::kAssignment:
    case Kind::kInstalled:
    case Kind::kInstallFailed:
    case Kind::kParentFault:
    case Kind::kLeave:
    case Kind::kHello:
    case Kind::kSubscribe:
    case Kind::kUnsubscribe:
    case Kind::kDigestPart:
    case Kind::kUpToDate:
    case Kind::kNotAvailable:
    case Kind::kBye:
    case Kind::kProbe:
    case Kind::kProbed:
    case Kind::kUnsubscribed:
    case Kind::kGrowth:
    case Kind::kChunkDamaged:
    case Kind::kNewRun:
    case Kind::kRevocations:
    case Kind::kEnroll:
    case Kind::kEnrolled:
    case Kind::kRateProbe:
    case Kind::kRateProbed: return 7;
    case Kind::kSkip:
    case Kind::kWelcome: return 8;
    case Kind::KIND_NOT_SET: break;
  }
  return 0;
}

}  // namespace weightcast
