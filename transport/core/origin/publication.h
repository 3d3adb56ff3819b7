#pragma once

#include <functional>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "transport/core/action.h"
#include "transport/core/assignment.h"
#include "transport/core/edge/holdings.h"
#include "transport/core/origin/history/publication_history.h"
#include "transport/core/origin/members/membership.h"
#include "transport/core/origin/members/rate_probes.h"
#include "transport/core/origin/origin_config.h"
#include "transport/core/origin/relays/fault_attribution.h"
#include "transport/core/plan/plan.h"
#include "transport/core/plan/plan_repair.h"

namespace weightcast {

/// What the publications of one origin share.
struct PublicationContext {
  const OriginConfig& config;
  Membership& members;
  ActionQueue& actions;
  FaultAttribution& faults;
  PublicationHistory& history;
  RateProbes& rates;
  Epoch epoch{};  ///< of the last plan
};

/// The rates of a node that plans are made of: configured, measured, or neither.
enum class RateSource : std::uint8_t { kNone, kMeasured, kConfigured };
[[nodiscard]] RateSource origin_rate_source(const PublicationContext& context);

/// The active members in rank order, of those for whom `takes_part` holds. What is not known of an uplink or downlink
/// counts as the median of what is known of others', and of the origin's uplink as the fastest member but one: where
/// nobody knows better, links are alike, and then a chain is right, which a star never is.
[[nodiscard]] PlanRequest plan_request(const PublicationContext& context, Instant now, std::uint64_t payload_bytes,
                                       const std::function<bool(const Member&)>& takes_part);

/// One payload that the origin holds, its plan, and those who take part in it. Pure. Called by the Publications that
/// owns it. Invariants: an epoch is used once; a member that was told of the payload hears of every change of its
/// assignment.
class Publication {
 public:
  /// Both outlive it; the holding may grow.
  Publication(PublicationContext& context, const Holding& holding) : context_(context), holding_(holding) {}

  [[nodiscard]] const Manifest& manifest() const { return holding_.manifest(); }
  [[nodiscard]] PayloadId id() const { return manifest().id(); }
  [[nodiscard]] const Plan& plan() const { return plan_; }

  /// Whether `member` can receive or serve this payload: it has the payload, or was told of it and has not gone past
  /// it. A worker skips a payload that is superseded before the worker begins it.
  [[nodiscard]] bool takes_part(const Member& member) const;
  /// Whether the plan's members are not those that take part.
  [[nodiscard]] bool outdated() const;
  /// Fits the plan to the members of now, and sends each changed assignment.
  void repair(Instant now);
  /// `member` is to be given the manifest and its assignment: announce() does so.
  void announce_to(PeerId member) { to_announce_.insert(member); }
  /// Announces the payload to the waiting members of the plan: those assigned this payload, or the others.
  void announce(Instant now, bool to_assigned);
  /// How often the plan was repaired.
  [[nodiscard]] std::uint64_t repair_count() const { return repair_count_; }
  /// Whether a member was told of the payload, on its connection of now.
  [[nodiscard]] bool has_told(PeerId member) const { return told_.contains(member); }
  /// Whether the rates are known of all links on the way to the member, so that the plan predicts something.
  [[nodiscard]] bool is_predicted(PeerId member) const;
  /// Sends it to everyone who was told of the payload.
  void tell_all(const wire::Message& message) const;

  /// Plans `member` again, which could not store the payload. Returns whether that was so.
  bool readmit(PeerId member) { return failed_.erase(member) > 0; }
  /// `member` could not store the payload: the plan neither feeds it nor has it relay.
  void handle_failed(PeerId member) { failed_.insert(member); }
  void handle_holder(PeerId member) { holders_.insert(member); }
  /// Its connection is gone, or made anew. The origin does not know any more what it was told and has. Returns whether
  /// it was known to take part.
  bool handle_disconnected(PeerId member);
  /// It is assigned this payload: repair() and announce() follow.
  void handle_assigned(PeerId member);
  /// It is receiving this payload, and was told nothing of it on this connection. repair() and announce() follow: they
  /// tell it its assignment and the payload's manifest of now.
  void handle_resumed(PeerId member);

 private:
  /// What the rates on the way to `member` in that stripe rest on, the least sure of them.
  [[nodiscard]] RateSource rate_source(const Member& member, const std::vector<PeerId>& ancestors) const;
  [[nodiscard]] Assignment assignment_for(const PlanIndex& index, const Member& member) const;
  [[nodiscard]] NodeAddress address_of(PeerId id) const;

  PublicationContext& context_;
  const Holding& holding_;
  Plan plan_;
  std::set<PeerId> failed_;            // could not store it: neither fed nor relays
  std::map<PeerId, Assignment> told_;  // the assignment that each member was sent last, without its epoch
  std::set<PeerId> holders_;           // have it whole
  std::set<PeerId> to_announce_;
  std::uint64_t repair_count_ = 0;
};

}  // namespace weightcast
