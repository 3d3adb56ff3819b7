#include "transport/core/peer_check.h"

#include <fmt/format.h>

#include "base/text.h"
#include "proto/limits.h"

namespace weightcast {

std::string_view to_string(Role role) {
  switch (role) {
    case Role::kOrigin: return "origin";
    case Role::kWorker: return "worker";
    case Role::kStranger: return "stranger";
  }
  return "";
}

Status check_speaks_as(const PeerIdentity& peer, Role role, std::string_view name, std::string_view message) {
  if (peer.role == role && peer.name == name) return {};
  if (peer.role == Role::kStranger) {
    return fail(Errc::kNotAllowed, Op::kVerify, fmt::format("{}: it has no certificate, and may only enrol", message));
  }
  return fail(Errc::kNotAllowed, Op::kVerify,
              fmt::format("{}: it speaks as {} {}, and its certificate is for {} {}", message, to_string(role),
                          printable(cut_text(name, kNameBytesMax)), to_string(peer.role), peer.name));
}

}  // namespace weightcast
