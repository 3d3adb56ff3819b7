#include "transport/node/members/audit.h"

#include <fmt/format.h>

#include <algorithm>
#include <string_view>

#include "transport/core/peer_check.h"
#include "transport/io/log.h"

namespace weightcast {
namespace {

/// Connections begin their errors with the host, which the line has already.
std::string_view without_host(std::string_view why, std::string_view host) {
  std::string_view rest = why;
  for (const std::string_view direction : {"from ", "to "}) {
    if (!rest.starts_with(direction)) continue;
    rest.remove_prefix(direction.size());
    break;
  }
  if (!rest.starts_with(host) || !rest.substr(host.size()).starts_with(": ")) return why;
  return rest.substr(host.size() + 2);
}

}  // namespace

void Audit::note(Instant now, Refusal reason, const std::optional<PeerIdentity>& who, const std::string& host,
                 const Error& why) {
  Reason& state = of(reason);
  ++state.count;
  state.allowance = std::min(kBurst, state.allowance + kPerSecond * to_seconds(now - state.counted_at));
  state.counted_at = now;
  const bool is_known = who && who->role != Role::kStranger;
  const std::string peer = is_known ? fmt::format("{} {} at {}", to_string(who->role), who->name, host) : host;
  std::string line = fmt::format("refused, {}: {}: {}", to_string(reason), peer, without_host(why.detail, host));
  if (state.left_out > 0) line += fmt::format(" ({} more since the last line)", state.left_out);
  if (state.allowance < 1 ||
      !allowance_.admit(now, is_known ? who->name : host, log_line_bytes(LogLevel::kWarning, line))) {
    ++state.left_out;
    return;
  }
  state.allowance -= 1;
  state.left_out = 0;
  log_warning("{}", line);
}

}  // namespace weightcast
