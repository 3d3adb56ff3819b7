#include "transport/core/origin/members/peer_standing.h"

#include <algorithm>
#include <cmath>
#include <tuple>
#include <utility>

namespace weightcast {
namespace {

constexpr double kScoreStep = 0.05;

}  // namespace

PeerStanding::PeerStanding(const PeerStandingRecord& record) : record_(record) {
  if (record_.standing > Standing::kRolloutOnly || barred()) record_.standing = Standing::kRolloutOnly;
  record_.strikes = std::min(record_.strikes, kStrikesToDemote - 1);
}

void PeerStanding::handle_fault(PeerFault fault, Standing at_most) {
  faulted_ = std::max(faulted_.value_or(at_most), at_most);
  if (fault == PeerFault::kCorrupt && !std::exchange(corrupted_, true) && !barred()) ++record_.corrupt;
}

void PeerStanding::handle_publication_end(bool took_part) {
  const std::optional<Standing> faulted = std::exchange(faulted_, std::nullopt);
  corrupted_ = false;
  if (barred()) record_.standing = Standing::kRolloutOnly;
  if (faulted) {
    record_.clean_in_a_row = 0;
    if (++record_.strikes >= kStrikesToDemote) demote(*faulted);
    return;
  }
  if (!took_part) return;
  if (record_.strikes > 0) --record_.strikes;
  if (record_.standing == Standing::kSeed || ++record_.clean_in_a_row < clean_needed()) return;
  record_.clean_in_a_row = 0;
  record_.corrupt = std::min(record_.corrupt, kCorruptToBar - 1);
  record_.standing = record_.standing == Standing::kRolloutOnly ? Standing::kTail : Standing::kSeed;
}

std::uint32_t PeerStanding::clean_needed() const {
  if (barred()) return kCleanBarred;
  std::uint32_t needed = kCleanMin;
  for (std::uint32_t i = 1; i < record_.demotions && needed < kCleanMax; ++i) needed *= 2;
  return needed;
}

void PeerStanding::demote(Standing at_most) {
  record_.strikes = 0;
  if (record_.standing >= at_most) return;
  ++record_.demotions;
  record_.standing = record_.standing == Standing::kSeed ? Standing::kTail : Standing::kRolloutOnly;
}

void rank_peers(std::vector<RankedPeer>& peers) {
  const auto key = [](const RankedPeer& peer) {
    return std::tuple(peer.standing, -std::llround(peer.score / kScoreStep), peer.id);
  };
  std::sort(peers.begin(), peers.end(), [&](const RankedPeer& a, const RankedPeer& b) { return key(a) < key(b); });
}

}  // namespace weightcast
