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
/// missed while its parent had not. So a miss is decided when the member's parents have received the payload, too, or
/// when the publication ends. Pure. Owned by a Publications. Invariants: of an edge below another that missed nothing
/// is said; an edge that missed as it had before is not said again within kKnownFor.
class ForecastWatch {
 public:
  /// A miss of less than this is of the noise of short transfers.
  static constexpr Duration kSlack = std::chrono::milliseconds(500);
  static constexpr Duration kKnownFor = std::chrono::hours(1);

  struct Miss {
    PeerId member{};
    std::vector<PeerId> parents;
    Rate planned{};
    Rate reached{};
    bool first = false;  ///< of this payload
  };

  /// Of payloads of more than so many versions the oldest are forgotten.
  static constexpr std::size_t kPayloadsMax = 64;

  /// The origin took so long to make the payload: nobody can have had it sooner.
  void handle_made(PayloadId payload, Duration took) { watched(payload).made = took; }
  /// `member` has received `bytes` of the payload in `seconds`. Returns the edges of which it is decided now that they
  /// missed the plan by kMissFactor and kSlack.
  [[nodiscard]] std::vector<Miss> handle_received(Instant now, const Plan& plan, PayloadId payload, PeerId member,
                                                  std::uint64_t bytes, double seconds);
  /// `member` has the payload, and when it received it tells nothing of the plan.
  [[nodiscard]] std::vector<Miss> handle_has(Instant now, PayloadId payload, PeerId member);
  /// The publication ends. Returns what is left to be decided.
  [[nodiscard]] std::vector<Miss> end(Instant now, PayloadId payload);
  void forget(PayloadId payload) { payloads_.erase(payload); }

 private:
  struct Watched {
    Duration made{};
    std::set<PeerId> received;
    std::map<PeerId, Miss> missed;
    std::set<PeerId> undecided;  // of those
    bool said = false;
  };
  struct Known {
    Rate planned{};
    Rate reached{};
    Instant at{};
  };
  [[nodiscard]] Watched& watched(PayloadId payload);
  /// Of those that are undecided, the ones whose parents have received it; `all` of them at the end.
  [[nodiscard]] std::vector<Miss> decide(Instant now, Watched& watched, bool all);
  [[nodiscard]] bool is_known(Instant now, const Miss& miss) const;

  std::map<PayloadId, Watched> payloads_;
  std::map<PeerId, Known> known_;  // the last miss of the edge above a member
};

}  // namespace weightcast
