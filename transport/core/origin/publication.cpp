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
    ranked.push_back({id, member.standing.standing(), member.score_at(now)});
  }
  rank_peers(ranked);
  for (const RankedPeer& peer : ranked) {
    const Member& member = *context.members.find(peer.id);
    request.members.push_back({member.id, member.uplink, member.downlink, member.can_relay()});
  }
  return request;
}

std::size_t Publication::place_of(PeerId member) const {
  return static_cast<std::size_t>(std::ranges::find(plan_.members, member) - plan_.members.begin());
}

std::vector<PeerId> Publication::parents_of(PeerId member) const {
  std::vector<PeerId> parents;
  const std::size_t at = place_of(member);
  for (const StripePlan& stripe : plan_.stripes) {
    if (at < stripe.parents.size()) parents.push_back(stripe.parents[at]);
  }
  return parents;
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
      plan_request(context_, now, manifest_->planned_bytes(), [&](const Member& member) { return takes_part(member); });
  request.chunk_bytes = manifest_->chunk_bytes;
  for (PlanMember& m : request.members) m.can_relay = m.can_relay && !demoted_.contains(m.id);
  plan_ = plan_.members.empty() ? make_plan(request) : repair_plan(plan_, request);
  ++context_.epoch;
  ++repair_count_;
  const PlanIndex index(plan_);
  for (const PeerId peer : plan_.members) {
    const Member& member = *context_.members.find(peer);
    if (!member.connected() || member.installed >= manifest_->version) continue;
    const auto told = told_.find(peer);
    if (told == told_.end()) continue;  // it was told of another payload, or will be told of this one
    wire::Assignment assignment = assignment_for(index, member);
    std::string text = assignment.SerializeAsString();
    if (text == told->second) continue;
    told->second = std::move(text);
    assignment.set_epoch(context_.epoch.value);
    wire::Message message;
    *message.mutable_assignment() = std::move(assignment);
    context_.actions.push(action::Send{member.conn, std::move(message)});
  }
}

void Publication::announce(bool to_assigned) {
  if (to_announce_.empty()) return;
  const PlanIndex index(plan_);
  std::erase_if(to_announce_, [&](PeerId peer) {
    if (!index.contains(peer)) return true;
    const Member& member = *context_.members.find(peer);
    if ((member.assigned == id()) != to_assigned) return false;
    wire::Assignment assignment = assignment_for(index, member);
    told_[peer] = assignment.SerializeAsString();
    assignment.set_epoch(context_.epoch.value);
    wire::Message message;
    *message.mutable_announce()->mutable_manifest() = manifest_to_wire(*manifest_);
    *message.mutable_announce()->mutable_assignment() = std::move(assignment);
    context_.actions.push(action::Send{member.conn, std::move(message)});
    return true;
  });
}

void Publication::tell_all(const wire::Message& message) {
  for (const auto& [id, _] : told_) context_.actions.push(action::Send{context_.members.find(id)->conn, message});
}

void Publication::handle_gone(PeerId member) {
  told_.erase(member);
  holders_.erase(member);
  to_announce_.erase(member);
}

void Publication::handle_assigned(PeerId member) {
  failed_.erase(member);
  told_.erase(member);
  announce_to(member);
}

void Publication::handle_resumed(PeerId member) {
  failed_.erase(member);
  told_.insert_or_assign(member, std::string());
  announce_to(member);
}

bool Publication::relays(PeerId member) const {
  return std::ranges::any_of(plan_.stripes,
                             [&](const StripePlan& stripe) { return std::ranges::count(stripe.parents, member) > 0; });
}

bool Publication::believes(PeerId child, PeerId parent) {
  // One who fails its own children is no witness, and one without children needs a second one: it has helped itself,
  // and nobody waits behind it.
  if (demoted_.contains(child)) return false;
  auto& witnesses = accused_by_[parent];
  witnesses.insert(child);
  return relays(child) || witnesses.size() >= 2;
}

std::optional<PeerId> Publication::blame_slow(PeerId child, PeerId parent) {
  auto& parents = slow_parents_[child];
  parents.insert(parent);
  // Whom nobody feeds fast enough is slow itself.
  if (parents.size() >= 2) return child;
  return parent != kOriginId && believes(child, parent) ? std::optional(parent) : std::nullopt;
}

bool Publication::pass_by(PeerId child, PeerId parent) {
  if (!relays(child)) return false;
  if (parent == kOriginId) {
    // Where many of those that it feeds say so, it is the origin's own uplink that is slow, and passing them by would
    // have it send even more.
    std::size_t fed = 0;
    for (std::size_t at = 0; at < plan_.members.size(); ++at) {
      if (holders_.contains(plan_.members[at])) continue;
      fed += std::ranges::any_of(plan_.stripes, [&](const StripePlan& s) { return s.parents[at] == kOriginId; });
    }
    const auto slow = std::size_t(std::ranges::count_if(
        slow_parents_, [&](const auto& p) { return p.second.contains(kOriginId) && !holders_.contains(p.first); }));
    if (slow > 1 && 4 * slow > fed) return false;
  }
  return demote(child);
}

bool Publication::demote(PeerId relay) {
  // If most relays seem slow it is not they who are: then the plan stays, and children help themselves.
  if (2 * demoted_.size() >= plan_.members.size()) return false;
  return demoted_.insert(relay).second;
}

wire::NodeAddress Publication::address_of(PeerId id) const {
  wire::NodeAddress address;
  address.set_peer_id(id.value);
  if (id == kOriginId) {
    address.set_name(context_.config.name);  // everyone knows its address already
    return address;
  }
  const Member* member = context_.members.find(id);
  WC_CHECK(member != nullptr);
  address.set_name(member->name);
  address.mutable_address()->set_host(member->host);
  address.mutable_address()->set_port(member->port);
  return address;
}

wire::Assignment Publication::assignment_for(const PlanIndex& index, const Member& member) const {
  const std::size_t at = index.place_of(member.id);
  std::uint32_t weights = 0;
  for (const StripePlan& stripe : plan_.stripes) weights += stripe.weight;

  wire::Assignment assignment;
  set_payload(assignment, id());
  for (std::uint32_t s = 0; s < plan_.stripes.size(); ++s) {
    wire::StripeSource* source = assignment.add_stripes();
    bool rates_known = context_.config.uplink.limited() && member.downlink.limited();
    for (const PeerId ancestor : index.ancestors_of(member.id, s)) {
      *source->add_ancestors() = address_of(ancestor);
      if (ancestor != kOriginId) rates_known = rates_known && context_.members.find(ancestor)->uplink.limited();
    }
    // A child that does not know what to expect cannot call its parent slow.
    if (rates_known && at < plan_.rates.size()) {
      source->set_predicted_bytes_per_s(plan_.rates[at].bytes_per_s * plan_.stripes[s].weight / weights);
    }
    assignment.add_stripe_weights(plan_.stripes[s].weight);
  }
  return assignment;
}

}  // namespace weightcast
