#pragma once

#include <functional>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "transport/core/assignment.h"
#include "transport/core/edge/holdings.h"
#include "transport/core/edge/parent_fault.h"
#include "transport/core/install_phases.h"
#include "transport/core/origin/members/membership.h"
#include "transport/core/origin/publication_context.h"
#include "transport/core/plan/plan.h"
#include "transport/core/plan/plan_repair.h"

namespace weightcast {

/// The rates of a node that plans are made of: configured, measured, or neither.
enum class RateSource : std::uint8_t { kNone, kMeasured, kConfigured };
[[nodiscard]] RateSource origin_rate_source(const PublicationContext& context);

/// The active members in rank order, of those for whom `takes_part` holds. What is not known of an uplink or downlink
/// counts as the median of what is known of others', and of the origin's uplink as the fastest member but one: where
/// nobody knows better, links are alike, and then a chain is right, which a star never is.
[[nodiscard]] PlanRequest plan_request(const PublicationContext& context, Instant now, std::uint64_t payload_bytes,
                                       const std::function<bool(const Member&)>& takes_part);

/// The plan of one payload that the origin holds, and those who take part in it. Pure. Owned by the Publication of the
/// payload's version. Invariants: an epoch is used once; a member that was told of the payload hears of every change of
/// its assignment.
class PayloadPlan {
 public:
  /// Both outlive it; the holding may grow.
  PayloadPlan(PublicationContext& context, const Holding& holding) : context_(context), holding_(holding) {}

  [[nodiscard]] const Manifest& manifest() const { return holding_.manifest(); }
  [[nodiscard]] PayloadId id() const { return manifest().id(); }
  [[nodiscard]] const Plan& plan() const { return plan_; }

  /// Whether `member` can receive or serve this payload: it has the payload, or was told of it and has not gone past
  /// it. A worker skips a payload that is superseded before the worker begins it.
  [[nodiscard]] bool takes_part(const Member& member) const;
  /// Whether the plan's members are not those that take part.
  [[nodiscard]] bool outdated() const;
  /// It is to be repaired.
  void unsettle(Instant now) {
    unsettled_ = true;
    context_.settling.note_change(now);
  }
  [[nodiscard]] bool unsettled() const { return unsettled_; }
  /// Fits the plan to the members of now, and sends each changed assignment.
  void repair(Instant now);
  /// `member` is to be given the manifest and its assignment: announce() does so.
  void announce_to(PeerId member) { to_announce_.insert(member); }
  /// Announces the payload to the waiting members of the plan: those assigned this payload, or the others.
  void announce(Instant now, bool to_assigned);
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

  /// A heartbeat of `member`, which receives it: what it lacks, by stripe of the plan.
  void handle_progress(Instant now, const Member& member, std::vector<std::uint32_t> stripes_missing);
  /// `member` has received it, in so many seconds: what does that say of the relays and links on the way?
  void handle_received(Instant now, Member& member, double seconds, const std::optional<InstallPhases>& phases);
  /// `member` complains of a parent.
  void handle_parent_fault(Instant now, const Member& member, const ParentFault& fault);
  /// The publication has ended: what of its edges is left to be decided?
  void handle_end(Instant now) { note_misses(context_.forecasts.end(now, id())); }

 private:
  /// The edges of which it is decided now that they missed what the plan expected.
  [[nodiscard]] std::vector<ForecastWatch::Miss> misses(Instant now, Member& member, const InstallPhases& phases) const;
  void note_misses(const std::vector<ForecastWatch::Miss>& misses) const;
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
  bool unsettled_ = false;
};

}  // namespace weightcast
