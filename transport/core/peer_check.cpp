#include "transport/core/peer_check.h"

#include <fmt/format.h>

#include "base/text.h"
#include "proto/limits.h"

namespace weightcast {

std::string_view to_string(Role role) { return role == Role::kOrigin ? "origin" : "worker"; }

Status check_speaks_as(const PeerIdentity& peer, Role role, std::string_view name, std::string_view message) {
  if (peer.role == role && peer.name == name) return {};
  return fail(Errc::kNotAllowed, Op::kVerify,
              fmt::format("{}: it speaks as {} {}, and its certificate is for {} {}", message, to_string(role),
                          printable(cut_text(name, kNameBytesMax)), to_string(peer.role), peer.name));
}

}  // namespace weightcast
