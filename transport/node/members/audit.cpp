#include "transport/node/members/audit.h"

#include <fmt/format.h>

#include <algorithm>

#include "transport/core/peer_check.h"
#include "transport/io/log.h"

namespace weightcast {

void Audit::note(Instant now, Refusal reason, const std::optional<PeerIdentity>& who, const std::string& host,
                 const Error& why) {
  Reason& state = of(reason);
  ++state.count;
  state.allowance = std::min(kBurst, state.allowance + kPerSecond * to_seconds(now - state.counted_at));
  state.counted_at = now;
  const bool is_known = who && who->role != Role::kStranger;
  const std::string peer = is_known ? fmt::format("{} {} at {}", to_string(who->role), who->name, host) : host;
  std::string line = fmt::format("refused, {}: {}: {}", to_string(reason), peer, why.detail);
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
