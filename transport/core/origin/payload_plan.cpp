#include "transport/core/origin/payload_plan.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <utility>

#include "base/units.h"
#include "transport/core/manifest/payload_wire.h"

namespace weightcast {
namespace {

constexpr double kBetterFactor = 1.25;

// What was measured is not promised, and fast links end at processors: a child that expects this much calls its parent
// slow where something is wrong.
constexpr double kExpectedOfMeasured = 0.5;
constexpr Rate kExpectedMax = Rate::bits(100e6);

RateSource source_of(Rate cap, Rate planned) {
  if (!planned.limited()) return RateSource::kNone;
  return planned == cap ? RateSource::kConfigured : RateSource::kMeasured;
}

/// The lower one of those with a limit; without one if there are none.
Rate median_of(std::vector<Rate> rates) {
  std::erase_if(rates, [](Rate rate) { return !rate.limited(); });
  if (rates.empty()) return Rate{};
  const auto middle = rates.begin() + static_cast<std::ptrdiff_t>((rates.size() - 1) / 2);
  std::ranges::nth_element(rates, middle);
  return *middle;
}

void doubt(RateProbes& rates, PeerId node) { node == kOriginId ? rates.doubt_origin() : rates.doubt(node); }

void fill_in_unknown(PlanRequest& request) {
  std::vector<Rate> uplinks, downlinks;
  Rate fastest{}, second{};
  for (const PlanMember& member : request.members) {
    uplinks.push_back(member.uplink);
    downlinks.push_back(member.downlink);
    second = std::max(second, std::min(fastest, member.downlink));
    fastest = std::max(fastest, member.downlink);
  }
  Rate uplink = median_of(uplinks), downlink = median_of(downlinks);
  if (!downlink.limited()) downlink = std::max(uplink, request.origin_uplink);
  if (!uplink.limited()) uplink = downlink;
  for (PlanMember& member : request.members) {
    if (!member.uplink.limited()) member.uplink = uplink;
    if (!member.downlink.limited()) member.downlink = downlink;
  }
  // By the word of more than one, where more than one is known.
  if (!request.origin_uplink.limited()) request.origin_uplink = second.limited() ? second : downlink;
}

}  // namespace

RateSource origin_rate_source(const PublicationContext& context) {
  return source_of(context.config.uplink, context.rates.planned_origin_uplink());
}

PlanRequest plan_request(const PublicationContext& context, Instant now, std::uint64_t payload_bytes,
                         const std::function<bool(const Member&)>& takes_part) {
  PlanRequest request;
  request.origin_uplink = context.rates.planned_origin_uplink();
  request.payload_bytes = payload_bytes;
  request.topology = context.config.topology;
  request.hop_delay = context.config.hop_delay;
  std::vector<RankedPeer> ranked;
  for (const auto& [id, member] : context.members.all()) {
    if (!member.active() || !takes_part(member)) continue;
    Standing standing = member.standing.standing();
    if (context.faults.in_dispute(id)) standing = std::max(standing, Standing::kTail);
    ranked.push_back({id, standing, member.score_at(now)});
  }
  rank_peers(ranked);
  for (const RankedPeer& peer : ranked) {
    const Member& member = *context.members.find(peer.id);
    request.members.push_back(
        {member.id, member.planned_uplink(), member.planned_downlink(), member.can_relay(), member.reaches_nobody});
    for (const auto& [parent, _] : member.cannot_reach) request.apart.push_back({parent, member.id});
  }
  std::vector<Rate*> uplinks, downlinks;
  for (PlanMember& planned : request.members) {
    const Member& member = *context.members.find(planned.id);
    if (planned.uplink != member.uplink) uplinks.push_back(&planned.uplink);
    if (planned.downlink != member.downlink) downlinks.push_back(&planned.downlink);
  }
  even_out(uplinks);
  even_out(downlinks);
  fill_in_unknown(request);
  return request;
}

bool PayloadPlan::takes_part(const Member& member) const {
  const PayloadId payload = id();
  if (!member.active() || failed_.contains(member.id)) return false;
  if (holders_.contains(member.id)) return true;
  if (member.installed >= payload.version) return false;
  if (member.assigned == payload) return true;
  // What it is in the middle of it may hear of only now, because it has joined again.
  if (member.receiving == payload) return told_.contains(member.id) || to_announce_.contains(member.id);
  return told_.contains(member.id) && member.receiving == PayloadId{};
}

bool PayloadPlan::outdated() const {
  const auto taking =
      std::ranges::count_if(context_.members.all(), [&](const auto& member) { return takes_part(member.second); });
  return std::size_t(taking) != plan_.members.size() ||
         !std::ranges::all_of(plan_.members, [&](PeerId id) { return takes_part(*context_.members.find(id)); });
}

void PayloadPlan::repair(Instant now) {
  unsettled_ = false;
  PlanRequest request =
      plan_request(context_, now, manifest().planned_bytes(), [&](const Member& member) { return takes_part(member); });
  request.chunk_bytes = manifest().chunk_bytes;
  const std::vector<ApartPair> apart = context_.faults.apart(id());
  request.apart.insert(request.apart.end(), apart.begin(), apart.end());
  for (PlanMember& m : request.members) m.can_relay = m.can_relay && !context_.faults.is_leaf(id(), m.id);
  const bool begins = plan_.members.empty();
  plan_ = begins ? make_plan(request) : repair_plan(plan_, request);
  ++context_.epoch;
  const PlanIndex index(plan_);
  for (const PeerId peer : plan_.members) {
    const Member& member = *context_.members.find(peer);
    if (!member.connected() || member.installed >= manifest().version) continue;
    const auto told = told_.find(peer);
    if (told == told_.end()) continue;  // it was told of another payload, or will be told of this one
    Assignment assignment = assignment_for(index, member);
    if (assignment == told->second) continue;
    for (const StripeSource& before : told->second.stripes) {
      const PeerId parent = before.ancestors.front().id;
      if (parent != kOriginId) context_.faults.handle_moved(now, id(), parent, peer);
    }
    told->second = assignment;
    assignment.epoch = context_.epoch;
    wire::Message message;
    *message.mutable_assignment() = assignment_to_wire(assignment);
    context_.actions.push(action::Send{member.conn, std::move(message)});
  }
  if (!begins || plan_.members.empty()) return;
  context_.actions.push(action::milestone(
      fmt::format("publishing {}: {} to {} workers by {}, chunks of {}, predicted {:.3f} s", to_string(id()),
                  format_bytes(manifest().planned_bytes()), plan_.members.size(), to_string(plan_.topology),
                  format_bytes(manifest().chunk_bytes), to_seconds(plan_.predicted_t100))));
}

void PayloadPlan::announce(Instant now, bool to_assigned) {
  if (to_announce_.empty()) return;
  const PlanIndex index(plan_);
  std::erase_if(to_announce_, [&](PeerId peer) {
    if (!index.contains(peer)) return true;
    const Member& member = *context_.members.find(peer);
    if ((member.assigned == id()) != to_assigned) return false;
    Assignment assignment = assignment_for(index, member);
    told_[peer] = assignment;
    assignment.epoch = context_.epoch;
    wire::Message message;
    *message.mutable_announce()->mutable_manifest() = manifest_to_wire(manifest());
    *message.mutable_announce()->mutable_assignment() = assignment_to_wire(assignment);
    context_.actions.push(action::Send{member.conn, std::move(message)});
    context_.history.handle_told(now, member, id());
    return true;
  });
}

void PayloadPlan::tell_all(const wire::Message& message) const {
  for (const auto& [id, _] : told_) context_.actions.push(action::Send{context_.members.find(id)->conn, message});
}

bool PayloadPlan::handle_disconnected(PeerId member) {
  const std::size_t known = told_.erase(member) + holders_.erase(member) + to_announce_.erase(member);
  return known > 0;
}

void PayloadPlan::handle_assigned(PeerId member) {
  failed_.erase(member);
  told_.erase(member);
  announce_to(member);
}

void PayloadPlan::handle_resumed(PeerId member) {
  failed_.erase(member);
  told_.insert_or_assign(member, Assignment());
  announce_to(member);
}

void PayloadPlan::handle_progress(Instant now, const Member& member, std::vector<std::uint32_t> stripes_missing) {
  // While a payload is open its maker sets the pace.
  if (manifest().open) return;
  if (context_.faults.handle_progress(now, plan_, id(), member.id, std::move(stripes_missing))) unsettle(now);
}

void PayloadPlan::handle_received(Instant now, Member& member, double seconds,
                                  const std::optional<InstallPhases>& phases) {
  // Forwarding is what is scored: the relays that fed it did well.
  const Rate rate{double(manifest().payload_bytes) / seconds};
  context_.faults.handle_fed(now, parents_of(plan_, member.id), rate);
  context_.faults.handle_received(id(), member.id, manifest().chunk_count() / seconds);
  if (manifest().payload_bytes >= kMeasuredBytesMin && std::isfinite(rate.bytes_per_s)) member.last_received = rate;
  if (phases) note_misses(misses(now, member, *phases));
}

std::vector<ForecastWatch::Miss> PayloadPlan::misses(Instant now, Member& member, const InstallPhases& phases) const {
  const std::uint64_t bytes = std::min(phases.bytes, manifest().payload_bytes);
  if (bytes < kMeasuredBytesMin || phases.receiving <= Duration::zero()) return {};
  const Rate reached{double(bytes) / to_seconds(phases.receiving)};
  LinkEstimate& downlink = member.estimates.downlink;
  // Its uplink may be another, too.
  if (downlink.known() && reached.bytes_per_s > kBetterFactor * downlink.rate().bytes_per_s) {
    context_.rates.doubt(member.id);
  }
  downlink.handle_reached(reached);
  // The time without a parent is no link's, and the plan is another one by now.
  if (phases.parents_left > 0 || !is_predicted(member.id)) {
    return context_.forecasts.handle_has(now, id(), member.id);
  }
  // While the disk is behind, the link waits for it.
  const Duration took = phases.receiving - std::min(phases.receiving, phases.disk_behind);
  return context_.forecasts.handle_received(now, plan_, id(), member.id, bytes, to_seconds(took));
}

void PayloadPlan::note_misses(const std::vector<ForecastWatch::Miss>& misses) const {
  for (const ForecastWatch::Miss& miss : misses) {
    std::string parents;
    for (const PeerId parent : std::set(miss.parents.begin(), miss.parents.end())) {
      parents += (parents.empty() ? "" : ", ") + context_.name_of(parent);
      doubt(context_.rates, parent);
    }
    context_.rates.doubt(miss.member);
    if (!miss.first) continue;
    context_.actions.push(action::milestone(
        fmt::format("publishing {}: slower than planned: {} to {} carried {}, planned {}; both links are measured anew",
                    to_string(id()), parents, context_.name_of(miss.member),
                    miss.reached.limited() ? format_rate(miss.reached) : "nothing", format_rate(miss.planned))));
  }
}

void PayloadPlan::handle_parent_fault(Instant now, const Member& member, const ParentFault& fault) {
  // It gave less than the plan expected. Whoever is to blame, both ends of the edge are measured anew: the child goes
  // on with another parent, and when it has the payload tells nothing of this one any more.
  if (fault.kind == wire::FAULT_KIND_SLOW) {
    context_.rates.doubt(member.id);
    doubt(context_.rates, fault.parent);
  }
  const bool changed = context_.faults.handle_report(
      now, plan_, {id(), member.id, fault.parent, fault.stripe, fault.kind, fault.stays(), fault.starving});
  if (changed) unsettle(now);
}

NodeAddress PayloadPlan::address_of(PeerId id) const {
  if (id == kOriginId) return {id, context_.config.name, {}, 0};  // everyone knows its address already
  const Member* member = context_.members.find(id);
  WC_CHECK(member != nullptr);
  return {id, member->name, member->host, member->port};
}

RateSource PayloadPlan::rate_source(const Member& member, const std::vector<PeerId>& ancestors) const {
  RateSource least = std::min(origin_rate_source(context_), source_of(member.downlink, member.planned_downlink()));
  for (const PeerId ancestor : ancestors) {
    if (ancestor == kOriginId) continue;
    const Member& relay = *context_.members.find(ancestor);
    least = std::min(least, source_of(relay.uplink, relay.planned_uplink()));
  }
  return least;
}

bool PayloadPlan::is_predicted(PeerId member) const {
  const auto told = told_.find(member);
  return told != told_.end() && std::ranges::all_of(told->second.stripes, [](const StripeSource& source) {
           return source.predicted_bytes_per_s > 0;
         });
}

Assignment PayloadPlan::assignment_for(const PlanIndex& index, const Member& member) const {
  const std::size_t at = index.place_of(member.id);
  std::uint32_t weights = 0;
  for (const StripePlan& stripe : plan_.stripes) weights += stripe.weight;

  Assignment assignment;
  assignment.payload = id();
  for (std::uint32_t s = 0; s < plan_.stripes.size(); ++s) {
    StripeSource& source = assignment.stripes.emplace_back();
    const std::vector<PeerId> ancestors = index.ancestors_of(member.id, s);
    for (const PeerId ancestor : ancestors) {
      if (member.cannot_reach.contains(ancestor)) continue;  // one further up; a plan has it for no parent
      source.ancestors.push_back(address_of(ancestor));
    }
    const RateSource known = rate_source(member, ancestors);
    // A child that does not know what to expect cannot call its parent slow.
    if (known != RateSource::kNone && at < plan_.rates.size()) {
      double expected = plan_.rates[at].bytes_per_s;
      if (known == RateSource::kMeasured) expected = std::min(expected * kExpectedOfMeasured, kExpectedMax.bytes_per_s);
      source.predicted_bytes_per_s = expected * plan_.stripes[s].weight / weights;
    }
    assignment.stripe_weights.push_back(plan_.stripes[s].weight);
  }
  return assignment;
}

}  // namespace weightcast
