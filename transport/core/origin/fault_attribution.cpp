#include "transport/core/origin/fault_attribution.h"

#include <fmt/format.h>

#include <algorithm>

namespace weightcast {
namespace {

// A child repeats that it starves twice a second: what was not repeated for so long is over.
constexpr Duration kStarvationForgotten = std::chrono::milliseconds(1500);
// Two reports are of the same starvation if they name the same last chunk, but for what messages take.
constexpr Duration kSameStarvation = std::chrono::milliseconds(300);

bool feeds(const Plan& plan, PeerId parent, PeerId child) {
  return std::ranges::count(parents_of(plan, child), parent) > 0;
}

}  // namespace

bool FaultAttribution::handle_report(Instant now, const Plan& plan, const Report& report) {
  const Member* child = members_.find(report.child);
  if (child == nullptr || report.parent == report.child) return false;
  Case& known = cases_[report.payload];
  const bool starves = report.kind == wire::FAULT_KIND_STARVED || report.kind == wire::FAULT_KIND_WAITING;
  if (starves && report.stays) return handle_starvation(now, plan, report, known);
  // Only who was meant to feed it can fail it; a child that wanders has left others of its own accord.
  if (!feeds(plan, report.parent, report.child)) return false;
  switch (report.kind) {
    case wire::FAULT_KIND_SLOW:
    case wire::FAULT_KIND_SILENT: return handle_slow_edge(now, plan, report, known);
    case wire::FAULT_KIND_STARVED: return handle_starved_child_left(now, plan, report, known);
    case wire::FAULT_KIND_NOT_AVAILABLE: break;
    case wire::FAULT_KIND_CORRUPT: blame(now, report.parent, PeerFault::kCorrupt); break;
    case wire::FAULT_KIND_CLOSED: blame(now, report.parent, PeerFault::kClosed); break;
    default: return false;
  }
  return report.parent != kOriginId && make_leaf(plan, known, report.parent);
}

bool FaultAttribution::handle_slow_edge(Instant now, const Plan& plan, const Report& report, Case& known) {
  const bool silent = report.kind == wire::FAULT_KIND_SILENT;
  bool changed = false;
  auto& parents = known.slow_parents[report.child];
  parents.insert(report.parent);
  if (parents.size() >= 2) {
    if (!silent) blame(now, report.child, PeerFault::kSlow);
    changed = make_leaf(plan, known, report.child);
  } else if (report.parent != kOriginId && believes(plan, known, report.child, report.parent)) {
    blame(now, report.parent, PeerFault::kSlow);
    changed = make_leaf(plan, known, report.parent);
  }
  if (silent || !is_relay(plan, report.child)) return changed;
  if (report.parent == kOriginId && origin_is_slow(plan, known, report.payload)) return changed;
  return make_leaf(plan, known, report.child) || changed;
}

bool FaultAttribution::handle_starvation(Instant now, const Plan& plan, const Report& report, Case& known) {
  if (report.stripe >= plan.stripes.size()) return false;
  Starving& starving = note_starving(now, plan, report, known);
  if (report.parent == kOriginId) {
    if (!is_disproved(now, plan, report, starving)) return false;
    blame(now, report.child, PeerFault::kSlow);
    return make_leaf(plan, known, report.child);
  }
  const Member* parent = members_.find(report.parent);
  if (parent == nullptr || !starving.planned || !starving.accuses) return false;
  if (const Starving* own = word_of(now, known, report.parent, report.stripe)) {
    if (!keeps_chunks(*own, starving)) return false;
  }
  if (now - starving.first_at < kStarvedFor || !parent->connected() || parent->heard_at < starving.first_at) {
    return false;
  }
  if (known.leaves.contains(report.parent) || starving.judged) return false;
  starving.judged = true;
  const Member& child = *members_.find(report.child);
  const bool disproved = has_more(plan, report.payload, *parent, child, starving.since) ||
                         starving.parent_was_sent > parent->chunks_verified;
  if (disproved || believes(plan, known, report.child, report.parent)) blame(now, report.parent, PeerFault::kSlow);
  actions_.push(action::warning(fmt::format("worker {} has more than it passes on to {}", parent->name, child.name)));
  return make_leaf(plan, known, report.parent);
}

FaultAttribution::Starving& FaultAttribution::note_starving(Instant now, const Plan& plan, const Report& report,
                                                            Case& known) const {
  const auto stripes = static_cast<std::uint32_t>(plan.stripes.size());
  Starving& starving = known.starving[{report.child, report.stripe}];
  const Instant since = now - report.starving;
  if (starving.parent != report.parent || since > starving.since + kSameStarvation ||
      now - starving.last_at > kStarvationForgotten) {
    starving = {};
    starving.parent = report.parent;
    starving.since = since;
    starving.first_at = starving.checked_at = now;
    starving.parent_was_sent = uploads_.chunks_sent(report.parent, report.payload, report.stripe, stripes);
    starving.was_sent = uploads_.chunks_sent(report.child, report.payload, report.stripe, stripes);
  }
  starving.planned = feeds(plan, report.parent, report.child);
  starving.accuses = report.kind == wire::FAULT_KIND_STARVED;
  starving.last_at = now;
  return starving;
}

bool FaultAttribution::is_disproved(Instant now, const Plan& plan, const Report& report, Starving& starving) const {
  // However often it says so: between two words of one moment nothing leaves.
  if (now - starving.checked_at < kStarvedFor) return false;
  const std::uint64_t sent = uploads_.chunks_sent(report.child, report.payload, report.stripe,
                                                  static_cast<std::uint32_t>(plan.stripes.size()));
  starving.checked_at = now;
  starving.disproved = sent > starving.was_sent ? starving.disproved + 1 : 0;
  starving.was_sent = sent;
  if (starving.disproved < kReportsDisproved) return false;
  starving.disproved = 0;
  return true;
}

const FaultAttribution::Starving* FaultAttribution::word_of(Instant now, const Case& known, PeerId member,
                                                            std::uint32_t stripe) {
  const auto own = known.starving.find({member, stripe});
  return own != known.starving.end() && now - own->second.last_at <= kStarvationForgotten ? &own->second : nullptr;
}

bool FaultAttribution::keeps_chunks(const Starving& parent, Starving& child) {
  // One chunk may be on its way for longer than both have starved, but not one after the other.
  if (parent.since > std::max(child.since, child.parent_since) + kSameStarvation) {
    child.parent_since = parent.since;
    ++child.parent_moves;
  }
  return child.parent_moves >= kMovesDisproved;
}

bool FaultAttribution::handle_starved_child_left(Instant now, const Plan& plan, const Report& report, Case& known) {
  const Member* parent = members_.find(report.parent);
  if (parent == nullptr) return false;
  const Member& child = *members_.find(report.child);
  bool blamed = has_more(plan, report.payload, *parent, child, Instant::min());
  if (!blamed) {
    // A relay that starves has left its own parent by now, unless that starves, too.
    const Starving* own = word_of(now, known, report.parent, report.stripe);
    if (own == nullptr) return false;
    const bool excused =
        own->parent == kOriginId ? own->planned : word_of(now, known, own->parent, report.stripe) != nullptr;
    if (excused) return false;
    blamed = believes(plan, known, report.child, report.parent);
  }
  if (blamed) blame(now, report.parent, PeerFault::kSlow);
  return make_leaf(plan, known, report.parent);
}

void FaultAttribution::handle_fed(Instant now, const std::vector<PeerId>& parents, Rate rate) {
  for (const PeerId id : parents) {
    if (Member* parent = members_.find(id)) parent->score.handle_ok(now, rate);
  }
}

void FaultAttribution::handle_publication_end(Version version, const std::set<PeerId>& planned) {
  for (const PeerId id : planned) {
    Member* member = members_.find(id);
    if (member == nullptr) continue;
    const Standing before = member->standing.standing();
    member->standing.handle_publication_end(member->installed >= version);
    const Standing after = member->standing.standing();
    if (after == before) continue;
    actions_.push(action::info(fmt::format("worker {} is now {}", member->name, to_string(after))));
  }
}

bool FaultAttribution::is_leaf(PayloadId payload, PeerId member) const {
  const auto known = cases_.find(payload);
  return known != cases_.end() && known->second.leaves.contains(member);
}

bool FaultAttribution::believes(const Plan& plan, Case& known, PeerId child, PeerId parent) {
  // One who fails its own children is no witness, and one without children needs a second one: it has helped itself,
  // and nobody waits behind it.
  if (known.leaves.contains(child)) return false;
  auto& witnesses = known.accused_by[parent];
  witnesses.insert(child);
  return is_relay(plan, child) || witnesses.size() >= 2;
}

bool FaultAttribution::make_leaf(const Plan& plan, Case& known, PeerId member) {
  // If most relays seem slow it is not they who are: then the plan stays, and children help themselves.
  const auto leaves =
      std::size_t(std::ranges::count_if(plan.members, [&](PeerId id) { return known.leaves.contains(id); }));
  if (2 * leaves >= plan.members.size()) return false;
  return known.leaves.insert(member).second;
}

bool FaultAttribution::origin_is_slow(const Plan& plan, const Case& known, PayloadId payload) const {
  const auto has_it = [&](PeerId id) {
    const Member* member = members_.find(id);
    return member == nullptr || member->installed >= payload.version;
  };
  std::size_t fed = 0;
  for (std::size_t at = 0; at < plan.members.size(); ++at) {
    if (has_it(plan.members[at])) continue;
    fed += std::ranges::any_of(plan.stripes, [&](const StripePlan& s) { return s.parents[at] == kOriginId; });
  }
  const auto slow = std::size_t(std::ranges::count_if(
      known.slow_parents, [&](const auto& p) { return p.second.contains(kOriginId) && !has_it(p.first); }));
  return slow > 1 && 4 * slow > fed;
}

bool FaultAttribution::has_more(const Plan& plan, PayloadId payload, const Member& parent, const Member& child,
                                Instant since) {
  if (parent.installed == payload.version) return true;
  if (parent.receiving != payload) return false;
  if (plan.stripes.size() > 1) {
    return child.chunks_verified < child.chunks_total && parent.chunks_total >= child.chunks_total &&
           parent.chunks_verified == parent.chunks_total;
  }
  return parent.chunks_verified > child.chunks_verified && child.progress_at >= since;
}

void FaultAttribution::blame(Instant now, PeerId id, PeerFault fault) {
  Member* member = members_.find(id);
  if (member == nullptr) return;  // the origin
  member->score.handle_failed(now);
  member->standing.handle_fault(fault);
}

}  // namespace weightcast
