#include "transport/node/members/log_allowance.h"

#include <iterator>

namespace weightcast {

std::uint64_t LogAllowance::left_out(const std::string& peer) const {
  auto at = peers_.find(peer);
  if (at == peers_.end() && peers_.size() >= kPeersMax) at = peers_.find(std::string());
  return at == peers_.end() ? 0 : at->second.left_out;
}

bool LogAllowance::admit(Instant now, const std::string& peer, std::size_t bytes) {
  auto at = peers_.find(peer);
  if (at == peers_.end() && peers_.size() >= kPeersMax && now >= forgets_at_) {
    forgets_at_ = now + kForgetInterval;
    // Those that would begin anew with what they have.
    for (auto one = peers_.begin(); one != peers_.end();) {
      const bool is_idle = one->second.left_out == 0 && one->second.bytes.is_full(now);
      one = is_idle ? peers_.erase(one) : std::next(one);
    }
  }
  if (at == peers_.end()) at = peers_.try_emplace(peers_.size() < kPeersMax ? peer : std::string()).first;
  Peer& known = at->second;
  if (!known.bytes.spend(now, static_cast<double>(bytes))) {
    ++known.left_out;
    return false;
  }
  known.left_out = 0;
  return true;
}

}  // namespace weightcast
