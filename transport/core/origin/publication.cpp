#include "transport/core/origin/publication.h"

#include <algorithm>
#include <utility>

#include "transport/core/payload_wire.h"

namespace weightcast {

PlanRequest plan_request(const PublicationContext& context, Instant now, std::uint64_t payload_bytes,
                         const std::function<bool(const Member&)>& takes_part) {
  PlanRequest request;
  request.origin_uplink = context.config.uplink;
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
    request.members.push_back({member.id, member.uplink, member.downlink, member.can_relay(), member.reaches_nobody});
    for (const auto& [parent, _] : member.cannot_reach) request.apart.push_back({parent, member.id});
  }
  return request;
}

bool Publication::takes_part(const Member& member) const {
  const PayloadId payload = id();
  if (!member.active() || failed_.contains(member.id)) return false;
  if (holders_.contains(member.id)) return true;
  if (member.installed >= payload.version) return false;
  if (member.assigned == payload) return true;
  if (!told_.contains(member.id)) return false;
  return member.receiving == payload || member.receiving == PayloadId{};
}

bool Publication::outdated() const {
  const auto taking =
      std::ranges::count_if(context_.members.all(), [&](const auto& member) { return takes_part(member.second); });
  return std::size_t(taking) != plan_.members.size() ||
         !std::ranges::all_of(plan_.members, [&](PeerId id) { return takes_part(*context_.members.find(id)); });
}

void Publication::repair(Instant now) {
  PlanRequest request =
      plan_request(context_, now, manifest().planned_bytes(), [&](const Member& member) { return takes_part(member); });
  request.chunk_bytes = manifest().chunk_bytes;
  const std::vector<ApartPair> apart = context_.faults.apart(id());
  request.apart.insert(request.apart.end(), apart.begin(), apart.end());
  for (PlanMember& m : request.members) m.can_relay = m.can_relay && !context_.faults.is_leaf(id(), m.id);
  plan_ = plan_.members.empty() ? make_plan(request) : repair_plan(plan_, request);
  ++context_.epoch;
  ++repair_count_;
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
}

void Publication::announce(Instant now, bool to_assigned) {
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

void Publication::tell_all(const wire::Message& message) const {
  for (const auto& [id, _] : told_) context_.actions.push(action::Send{context_.members.find(id)->conn, message});
}

bool Publication::handle_disconnected(PeerId member) {
  const std::size_t known = told_.erase(member) + holders_.erase(member) + to_announce_.erase(member);
  return known > 0;
}

void Publication::handle_assigned(PeerId member) {
  failed_.erase(member);
  told_.erase(member);
  announce_to(member);
}

void Publication::handle_resumed(PeerId member) {
  failed_.erase(member);
  told_.insert_or_assign(member, Assignment());
  announce_to(member);
}

NodeAddress Publication::address_of(PeerId id) const {
  if (id == kOriginId) return {id, context_.config.name, {}, 0};  // everyone knows its address already
  const Member* member = context_.members.find(id);
  WC_CHECK(member != nullptr);
  return {id, member->name, member->host, member->port};
}

Assignment Publication::assignment_for(const PlanIndex& index, const Member& member) const {
  const std::size_t at = index.place_of(member.id);
  std::uint32_t weights = 0;
  for (const StripePlan& stripe : plan_.stripes) weights += stripe.weight;

  Assignment assignment;
  assignment.payload = id();
  for (std::uint32_t s = 0; s < plan_.stripes.size(); ++s) {
    StripeSource& source = assignment.stripes.emplace_back();
    bool rates_known = context_.config.uplink.limited() && member.downlink.limited();
    for (const PeerId ancestor : index.ancestors_of(member.id, s)) {
      if (member.cannot_reach.contains(ancestor)) continue;  // one further up; a plan has it for no parent
      source.ancestors.push_back(address_of(ancestor));
      if (ancestor != kOriginId) rates_known = rates_known && context_.members.find(ancestor)->uplink.limited();
    }
    // A child that does not know what to expect cannot call its parent slow.
    if (rates_known && at < plan_.rates.size()) {
      source.predicted_bytes_per_s = plan_.rates[at].bytes_per_s * plan_.stripes[s].weight / weights;
    }
    assignment.stripe_weights.push_back(plan_.stripes[s].weight);
  }
  return assignment;
}

}  // namespace weightcast
