#pragma once

#include <cstdint>
#include <optional>
#include <string_view>
#include <vector>

#include "base/ids.h"
#include "base/result.h"
#include "base/settings/words.h"
#include "base/time.h"
#include "base/units.h"

namespace weightcast {

/// Who receives from whom. The words are those of ECHO-2 (arXiv 2602.02192, section on peer-assisted broadcast) and
/// SplitStream (SOSP 2003).
enum class Topology : std::uint8_t { kAuto, kStar, kChain, kTree, kStriped };
constexpr Words<5> words_of(Topology) { return {"auto", "star", "chain", "tree", "striped"}; }

/// Errors: kInvalidArgument, listing the names.
[[nodiscard]] Result<Topology> parse_topology(std::string_view text);

/// One worker as the planner sees it. A rate that is not limited() counts as kRateWhenUnknown.
struct PlanMember {
  PeerId id{};
  Rate uplink{};
  Rate downlink{};
  bool can_relay = true;          ///< false: cannot be dialled, or demoted; placed as a leaf
  bool only_from_origin = false;  ///< it cannot dial any other member
};

/// No plan has `parent` feed `child`: one of them has complained of the other, or the child cannot dial the parent.
struct ApartPair {
  PeerId parent{};
  PeerId child{};
  bool operator==(const ApartPair&) const = default;
};

inline constexpr Rate kRateWhenUnknown = Rate::bits(10e9);

struct PlanRequest {
  std::vector<PlanMember> members;  ///< in rank order, the best first
  Rate origin_uplink{};             ///< B
  std::uint64_t payload_bytes = 0;  ///< M
  Topology topology = Topology::kAuto;
  Duration hop_delay = std::chrono::microseconds(500);  ///< one way, plus handling
  std::optional<std::uint32_t> chunk_bytes;             ///< chosen by the planner if absent
  /// Members that are not in the request do not matter. Who is apart from more than 7/8 of the others is a leaf.
  std::vector<ApartPair> apart;
};

/// One stripe: `parents[i]` feeds `members[i]` of the request.
struct StripePlan {
  std::uint32_t weight = 1;  ///< share of the chunks, relative to the other stripes; see stripes.h
  std::vector<PeerId> parents;
};

struct Plan {
  Topology topology = Topology::kStar;
  std::uint32_t chunk_bytes = 0;
  std::vector<PeerId> members;  ///< as in the request
  std::vector<StripePlan> stripes;
  std::vector<Rate> rates;       ///< predicted receive rate of each member, all stripes together
  std::vector<Duration> finish;  ///< predicted time of each member's last chunk after the first is offered
  Duration predicted_t100{};     ///< the latest of `finish`; zero without members
  Duration bound{};              ///< no topology can be faster: M / min(B, min down, (B + sum up) / n)

  /// Predicted time until a fraction rho in (0, 1] of the members has finished.
  [[nodiscard]] Duration predicted(double rho) const;
};

/// Who feeds `member`, one for each stripe; none if it is not in the plan.
[[nodiscard]] std::vector<PeerId> parents_of(const Plan& plan, PeerId member);
/// Whether the plan has `member` feed others.
[[nodiscard]] bool is_relay(const Plan& plan, PeerId member);

/// Makes a plan. Pure and deterministic: the same request gives the same plan on every machine. kAuto is the least
/// predicted_t100; of those within 1 % of it the least mean of `finish`, so that one slow member does not decide for
/// all; of those within 1 % of that the simplest. The free number of a topology (how many chains, what fan-out, how
/// many stripes) is chosen in the same way. Without members: an empty plan.
/// Cost: O(n log n) per topology that is considered.
[[nodiscard]] Plan make_plan(const PlanRequest& request);

}  // namespace weightcast
