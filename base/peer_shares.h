#pragma once

#include <cstdint>
#include <map>
#include <string>

namespace weightcast {

/// How much of something that is bounded each peer has taken, so that none takes it from the others. Pure. Nobody is
/// known by the name "": such peers have no share of their own, and are bounded together elsewhere.
/// Invariant: no peer has more than amount_max, and none is kept that has nothing.
class PeerShares {
 public:
  explicit PeerShares(std::uint64_t amount_max) : amount_max_(amount_max) {}

  /// Whether `peer` may take `amount` more; if so, it has.
  [[nodiscard]] bool take(const std::string& peer, std::uint64_t amount) {
    if (peer.empty()) return true;
    const auto found = taken_.find(peer);
    const std::uint64_t before = found == taken_.end() ? 0 : found->second;
    if (amount > amount_max_ - before) return false;
    if (amount > 0) taken_[peer] = before + amount;
    return true;
  }
  /// Gives back what take() gave, or a part.
  void give_back(const std::string& peer, std::uint64_t amount) {
    const auto found = taken_.find(peer);
    if (found == taken_.end()) return;
    if (found->second <= amount) {
      taken_.erase(found);
    } else {
      found->second -= amount;
    }
  }
  [[nodiscard]] std::size_t peers() const { return taken_.size(); }

 private:
  const std::uint64_t amount_max_;
  std::map<std::string, std::uint64_t> taken_;
};

}  // namespace weightcast
