#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <vector>

#include "base/ids.h"
#include "base/time.h"
#include "transport/core/plan/plan.h"

namespace weightcast {

/// Compares what members received with what the plan expected, and finds the edge at which it went wrong: the one that
/// missed while its parent had not. Pure. Owned by a Publications. Invariant: of an edge below another that missed
/// nothing is said.
class ForecastWatch {
 public:
  /// A miss of less than this is of the noise of short transfers.
  static constexpr Duration kSlack = std::chrono::milliseconds(500);

  struct Miss {
    std::vector<PeerId> parents;
    Rate planned{};
    Rate reached{};
    bool first = false;  ///< of this payload
  };

  /// The origin took so long to make the payload: nobody can have had it sooner.
  void handle_made(PayloadId payload, Duration took) { took_[payload] = took; }
  /// `member` has received `bytes` of the payload in `seconds`. Returns the edge above it, if that missed the plan by
  /// kMissFactor and kSlack.
  [[nodiscard]] std::optional<Miss> handle_received(const Plan& plan, PayloadId payload, PeerId member,
                                                    std::uint64_t bytes, double seconds);
  void forget(PayloadId payload) {
    took_.erase(payload);
    missed_.erase(payload);
  }

 private:
  std::map<PayloadId, Duration> took_;
  std::map<PayloadId, std::set<PeerId>> missed_;
};

}  // namespace weightcast
