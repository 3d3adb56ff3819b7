#include "transport/core/message_fate.h"

#include "proto/wire.pb.h"

namespace weightcast {
namespace {

using Kind = wire::Message::KindCase;

bool is_read(Speaker speaker, Kind kind) {
  switch (kind) {
    case Kind::kBye: return true;
    case Kind::kJoin:
    case Kind::kEnroll: return speaker == Speaker::kStranger;
    case Kind::kHello: return speaker == Speaker::kStranger || speaker == Speaker::kChild;  // a second one is refused
    case Kind::kHeartbeat:
    case Kind::kInstalled:
    case Kind::kInstallFailed:
    case Kind::kParentFault:
    case Kind::kLeave:
    case Kind::kRateProbed: return speaker == Speaker::kMember;
    case Kind::kProbed: return speaker == Speaker::kMember || speaker == Speaker::kOrigin;
    case Kind::kSubscribe:
    case Kind::kUnsubscribe:
    case Kind::kChunkDamaged:
    case Kind::kSkip: return speaker == Speaker::kChild;
    case Kind::kJoined:
    case Kind::kHeartbeatAck:
    case Kind::kAnnounce:
    case Kind::kAssignment:
    case Kind::kProbe:
    case Kind::kRateProbe:
    case Kind::kGrowth:
    case Kind::kNewRun:
    case Kind::kRevocations: return speaker == Speaker::kOrigin;
    case Kind::kDigestPart:
    case Kind::kUpToDate:
    case Kind::kWelcome:
    case Kind::kUnsubscribed: return speaker == Speaker::kParent;
    case Kind::kNotAvailable: return speaker == Speaker::kOrigin || speaker == Speaker::kParent;
    case Kind::kEnrolled:
    case Kind::KIND_NOT_SET: return false;
  }
  return false;
}

/// Whether it goes from a worker to an origin, or from a child to a parent.
bool goes_up(Kind kind) {
  return is_read(Speaker::kStranger, kind) || is_read(Speaker::kMember, kind) || is_read(Speaker::kChild, kind);
}

}  // namespace

MessageFate fate_of(Speaker speaker, std::uint32_t number) {
  const auto kind = static_cast<Kind>(number);
  const bool is_known = wire::Message::descriptor()->FindFieldByNumber(static_cast<int>(number)) != nullptr;
  if (speaker == Speaker::kNobody) return MessageFate::kIgnored;
  // Before the first message has said who speaks, nothing else counts.
  if (speaker == Speaker::kStranger) return is_read(speaker, kind) ? MessageFate::kRead : MessageFate::kRefused;
  if (!is_known) return MessageFate::kIgnored;
  if (is_read(speaker, kind)) return MessageFate::kRead;
  const bool is_accepted = speaker == Speaker::kMember || speaker == Speaker::kChild;
  return is_accepted && !goes_up(kind) ? MessageFate::kRefused : MessageFate::kIgnored;
}

}  // namespace weightcast
