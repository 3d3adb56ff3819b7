#include "transport/core/origin/relays/fault_attribution.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

namespace weightcast {
namespace {

// A child repeats that it starves twice a second: what was not repeated for so long is over.
constexpr Duration kStarvationForgotten = std::chrono::milliseconds(1500);
// Two reports are of the same starvation if they name the same last chunk, but for what messages take.
constexpr Duration kSameStarvation = std::chrono::milliseconds(300);
// Parents of whom one child complains in one publication, and nobody else: from so many on the child is the suspect.
constexpr std::uint32_t kUnsharedMax = 2;
// For so long after a child was given another parent it may say that the one before sent it damaged bytes.
constexpr Duration kMovedLately = std::chrono::seconds(5);
constexpr std::size_t kMovedMax = 4096;
// A child that moves gets nothing for a moment: for so long a leaf is to get next to nothing.
constexpr Duration kFarBehindFor = std::chrono::seconds(4);
constexpr std::string_view kSendsDamage = "sends damaged bytes";
// A look at all edges costs a microsecond for each, and is not due with every heartbeat.
constexpr Duration kPacePerMember = std::chrono::microseconds(20);
// Parents that one child may have taken from it in one publication without accusing them: each has the plan repaired.
constexpr std::size_t kCutMax = 8;

bool feeds(const Plan& plan, PeerId parent, PeerId child) {
  return std::ranges::count(parents_of(plan, child), parent) > 0;
}

/// Whether the plan gives the child that parent as an ancestor, which it dials by itself when its parent fails.
bool is_above(const Plan& plan, const FaultAttribution::Report& report) {
  if (report.stripe >= plan.stripes.size()) return false;
  PeerId at = report.child;
  for (std::size_t steps = 0; steps < kAncestorsMax && at != kOriginId; ++steps) {
    const std::vector<PeerId> parents = parents_of(plan, at);
    if (report.stripe >= parents.size()) return false;
    at = parents[report.stripe];
    if (at == report.parent) return true;
  }
  return false;
}

}  // namespace

bool FaultAttribution::handle_report(Instant now, const Plan& plan, const Report& report) {
  const Member* child = members_.find(report.child);
  if (child == nullptr || report.parent == report.child) return false;
  Case& known = cases_[report.payload];
  const bool starves = report.kind == wire::FAULT_KIND_STARVED || report.kind == wire::FAULT_KIND_WAITING;
  if (starves && report.stays) return handle_starvation(now, plan, report, known);
  // Damage is damage, also if the plan has changed since: a relay that has itself made a leaf does not get away so.
  const auto moved = known.moved.find({report.parent, report.child});
  const bool lately = moved != known.moved.end() && now - moved->second <= kMovedLately;
  if (report.kind == wire::FAULT_KIND_CORRUPT && (lately || is_above(plan, report))) {
    return complain(now, plan, known, report.child, report.parent, PeerFault::kCorrupt, kSendsDamage);
  }
  // Only who was meant to feed it can fail it; a child that wanders has left others of its own accord.
  if (!feeds(plan, report.parent, report.child)) {
    if ((starves || report.kind == wire::FAULT_KIND_SILENT) && report.stripe < plan.stripes.size()) {
      (void)note_starving(now, plan, report, known);
    }
    return false;
  }
  switch (report.kind) {
    case wire::FAULT_KIND_SLOW:
    case wire::FAULT_KIND_SILENT: return handle_slow_edge(now, plan, report, known);
    case wire::FAULT_KIND_STARVED: return handle_starved_child_left(now, plan, report, known);
    case wire::FAULT_KIND_CLOSED: return handle_closed(now, plan, report, known);
    case wire::FAULT_KIND_NOT_AVAILABLE: return cut(known, report.child, report.parent);
    case wire::FAULT_KIND_CORRUPT:
      return complain(now, plan, known, report.child, report.parent, PeerFault::kCorrupt, kSendsDamage);
    default: return false;
  }
}

bool FaultAttribution::rates_known(const Plan& plan, std::size_t at) const {
  return at < plan.rates.size() && std::ranges::all_of(plan.stripes, [&](const StripePlan& stripe) {
           const Member* parent = members_.find(stripe.parents[at]);
           return (parent == nullptr ? rates_.planned_origin_uplink() : parent->planned_uplink()).limited();
         });
}

void FaultAttribution::handle_received(PayloadId payload, PeerId member, double chunks_per_s) {
  if (std::isfinite(chunks_per_s) && chunks_per_s > 0) cases_[payload].paces.handle_received(member, chunks_per_s);
}

void FaultAttribution::handle_moved(Instant now, PayloadId payload, PeerId parent, PeerId child) {
  auto& moved = cases_[payload].moved;
  if (moved.size() >= kMovedMax) std::erase_if(moved, [&](const auto& m) { return now - m.second > kMovedLately; });
  if (moved.size() < kMovedMax) moved[{parent, child}] = now;
}

bool FaultAttribution::complain(Instant now, const Plan& plan, Case& known, PeerId child, PeerId parent,
                                PeerFault fault, std::string_view what) {
  if (parent == kOriginId) return false;
  // It accuses nobody any more. But it may be right, and then it must not be left to that parent.
  if (known.distrusted.contains(child)) return cut(known, child, parent);
  switch (complaints_.handle_complaint(child, parent, fault)) {
    // Said of another payload, whose plan alone was repaired.
    case Complaints::Weight::kRepeated: return feeds(plan, parent, child);
    case Complaints::Weight::kNoVoice: (void)suspect(plan, known, child); return cut(known, child, parent);
    case Complaints::Weight::kCounts: break;
  }
  actions_.push(action::warning(
      fmt::format("worker {} {}, says {}: they are kept apart", name_of(parent), what, name_of(child))));
  if (complaints_.convicted(parent)) {
    (void)convict(now, plan, known, parent, fault, what);
  } else if (complaints_.unshared(child) >= kUnsharedMax) {
    (void)suspect(plan, known, child);
  }
  return true;
}

bool FaultAttribution::cut(Case& known, PeerId child, PeerId parent) {
  std::set<PeerId>& parents = known.cut[child];
  return parent != kOriginId && parents.size() < kCutMax && parents.insert(parent).second;
}

bool FaultAttribution::convict(Instant now, const Plan& plan, Case& known, PeerId parent, PeerFault fault,
                               std::string_view what) {
  if (fault == PeerFault::kCorrupt && !complaints_.convicted_of_corruption(parent)) fault = PeerFault::kSlow;
  blame(now, parent, fault);
  std::string witnesses;
  for (const PeerId child : complaints_.witnesses(parent)) {
    witnesses += (witnesses.empty() ? "" : ", ") + name_of(child);
  }
  note_offence(parent, fmt::format("{}, by the word of {}", what, witnesses), fault != PeerFault::kCorrupt);
  known.distrusted.insert(parent);
  return make_leaf(plan, known, parent);
}

bool FaultAttribution::suspect(const Plan& plan, Case& known, PeerId child) {
  complaints_.discredit(child);
  known.distrusted.insert(child);
  note_offence(child, "complains of relays of whom nobody else complains; its own link or its word is at fault", true);
  return make_leaf(plan, known, child);
}

bool FaultAttribution::handle_closed(Instant now, const Plan& plan, const Report& report, Case& known) {
  if (report.parent == kOriginId) return false;
  const Member* parent = members_.find(report.parent);
  if (parent == nullptr || parent->connected()) {
    if (known.leaves.contains(report.child)) return false;
    return complain(now, plan, known, report.child, report.parent, PeerFault::kClosed, "closed the connection");
  }
  blame(now, report.parent, PeerFault::kClosed);
  return make_leaf(plan, known, report.parent);
}

void FaultAttribution::handle_lost(Instant now, PeerId member) {
  if (complaints_.closed_on_a_child(member)) blame(now, member, PeerFault::kClosed);
  complaints_.handle_lost(member);
}

bool FaultAttribution::handle_slow_edge(Instant now, const Plan& plan, const Report& report, Case& known) {
  const bool silent = report.kind == wire::FAULT_KIND_SILENT;
  auto& parents = known.slow_parents[report.child];
  const bool another = parents.insert(report.parent).second;
  // Behind a slow edge every parent seems slow.
  bool changed =
      !known.leaves.contains(report.child) && complain(now, plan, known, report.child, report.parent, PeerFault::kSlow,
                                                       silent ? "says nothing" : "sends slowly");
  if (another && parents.size() >= kUnsharedMax) {
    // That two are slow tells of its own link, also if one of them is the origin.
    if (!silent) blame(now, report.child, PeerFault::kSlow);
    changed = make_leaf(plan, known, report.child) || changed;
  }
  if (silent || !is_relay(plan, report.child)) return changed;
  if (report.parent == kOriginId && origin_is_slow(plan, known, report.payload)) return changed;
  return make_leaf(plan, known, report.child) || changed;
}

bool FaultAttribution::handle_starvation(Instant now, const Plan& plan, const Report& report, Case& known) {
  if (report.stripe >= plan.stripes.size()) return false;
  Starving& starving = note_starving(now, plan, report, known);
  if (is_disproved(now, plan, report, known)) {
    blame(now, report.child, PeerFault::kSlow);
    note_offence(report.child, "says that it starves, while the origin's chunks leave to it", true);
    return make_leaf(plan, known, report.child);
  }
  if (report.parent == kOriginId) return false;
  const Member* parent = members_.find(report.parent);
  if (parent == nullptr || !starving.planned) return false;
  if (const Starving* own = word_of(now, known, report.parent, report.stripe)) {
    if (!keeps_chunks(*own, starving)) return false;
  } else if (!starving.accuses) {
    return false;
  }
  if (now - starving.first_at < kStarvedFor || !parent->connected() || parent->heard_at < starving.first_at) {
    return false;
  }
  return complain(now, plan, known, report.child, report.parent, PeerFault::kSlow, "has more than it passes on");
}

bool FaultAttribution::handle_progress(Instant now, const Plan& plan, PayloadId payload, PeerId member,
                                       std::vector<std::uint32_t> missing) {
  if (missing.size() != plan.stripes.size()) return false;
  Case& known = cases_[payload];
  known.paces.handle_progress(now, member, std::move(missing));
  const Duration every = std::max(kPacesEvery, kPacePerMember * static_cast<std::int64_t>(plan.members.size()));
  if (now - known.paced_at < every) return false;
  known.paced_at = now;
  std::vector<PaceWatch::Known> all;
  for (std::size_t at = 0; at < plan.members.size(); ++at) {
    const Member* m = members_.find(plan.members[at]);
    PaceWatch::Known& one = all.emplace_back();
    one.has_all = m == nullptr || m->installed >= payload.version;
    if (m != nullptr && m->last_received.limited()) {
      one.before_chunks_per_s = m->last_received.bytes_per_s / plan.chunk_bytes;
    }
    if (m != nullptr && m->planned_downlink().limited() && rates_known(plan, at)) {
      one.predicted_chunks_per_s = plan.rates[at].bytes_per_s / plan.chunk_bytes;
    }
  }
  bool changed = false;
  for (const PaceWatch::Lag& lag : known.paces.lagging(now, plan, all)) {
    const Member* parent = members_.find(lag.parent);
    if (lag.parent == kOriginId) {
      if (!is_relay(plan, lag.child) || !make_leaf(plan, known, lag.child)) continue;
      note_offence(lag.child, "gets far less from the origin than others do, by its own word", true);
      changed = true;
    } else if (parent != nullptr && parent->connected()) {
      // Behind a slow edge any parent seems to pass on too little; but not next to nothing for long.
      if (known.leaves.contains(lag.child) && !(lag.far_behind && lasts(now, known.far_behind[lag.child]))) continue;
      changed = complain(now, plan, known, lag.child, lag.parent, PeerFault::kSlow, "passes on far less than it has") ||
                changed;
    }
  }
  return changed;
}

bool FaultAttribution::lasts(Instant now, std::pair<Instant, Instant>& seen) {
  if (now - seen.second > kFarBehindFor / 2) seen.first = now;
  seen.second = now;
  return now - seen.first >= kFarBehindFor;
}

FaultAttribution::Starving& FaultAttribution::note_starving(Instant now, const Plan& plan, const Report& report,
                                                            Case& known) {
  Starving& starving = known.starving[{report.child, report.stripe}];
  // Who leaves does not say since when it has starved.
  const bool goes_on = !report.stays && now - starving.last_at <= kStarvationForgotten;
  const Instant since = report.stays ? now - report.starving : goes_on ? starving.since : now;
  if (starving.parent != report.parent || since > starving.since + kSameStarvation ||
      now - starving.last_at > kStarvationForgotten) {
    starving = {};
    starving.parent = report.parent;
    starving.since = since;
    starving.first_at = now;
  }
  starving.planned = feeds(plan, report.parent, report.child);
  starving.accuses = report.kind == wire::FAULT_KIND_STARVED;
  starving.last_at = now;
  return starving;
}

bool FaultAttribution::is_disproved(Instant now, const Plan& plan, const Report& report, Case& known) const {
  const std::uint64_t chunks = uploads_.chunks_sent(report.child, report.payload, report.stripe,
                                                    static_cast<std::uint32_t>(plan.stripes.size()));
  Sent& sent = known.sent.try_emplace({report.child, report.stripe}, Sent{now, chunks}).first->second;
  // However often it says so: between two words of one moment nothing leaves.
  if (now - sent.at < kStarvedFor) return false;
  // A word about less than the time since the last look says nothing of what left meanwhile.
  if (now - report.starving <= sent.at) sent.disproved = chunks > sent.chunks ? sent.disproved + 1 : 0;
  sent.at = now;
  sent.chunks = chunks;
  if (sent.disproved < kReportsDisproved) return false;
  sent.disproved = 0;
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
  if (report.stripe < plan.stripes.size()) (void)note_starving(now, plan, report, known);
  const Member* parent = members_.find(report.parent);
  if (parent == nullptr) return false;
  if (!has_more(plan, report.payload, *parent, *members_.find(report.child))) {
    // A relay that starves has left its own parent by now, unless that starves, too.
    const Starving* own = word_of(now, known, report.parent, report.stripe);
    if (own == nullptr) return false;
    const bool excused =
        own->parent == kOriginId ? own->planned : word_of(now, known, own->parent, report.stripe) != nullptr;
    if (excused) return false;
  }
  return complain(now, plan, known, report.child, report.parent, PeerFault::kSlow, "has more than it passes on");
}

void FaultAttribution::handle_fed(Instant now, const std::vector<PeerId>& parents, Rate rate) {
  for (const PeerId id : parents) {
    if (Member* parent = members_.find(id)) parent->score.handle_ok(now, rate);
  }
}

void FaultAttribution::handle_publication_end(Version version, const std::set<PeerId>& planned) {
  std::set<PeerId> took_part;
  for (const PeerId id : planned) {
    const Member* member = members_.find(id);
    if (member != nullptr && member->installed >= version) took_part.insert(id);
  }
  complaints_.handle_publication_end(took_part);
  for (const PeerId id : planned) {
    Member* member = members_.find(id);
    if (member == nullptr) continue;
    const bool is_blamed = std::exchange(member->offended, false) || member->standing.faulted();
    if (!is_blamed && took_part.contains(id) && std::exchange(member->offence_by_word, false)) member->offence.clear();
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

std::vector<ApartPair> FaultAttribution::apart(PayloadId payload) const {
  std::vector<ApartPair> pairs = complaints_.apart();
  const auto known = cases_.find(payload);
  if (known == cases_.end()) return pairs;
  for (const auto& [child, parents] : known->second.cut) {
    for (const PeerId parent : parents) pairs.push_back({parent, child});
  }
  return pairs;
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

bool FaultAttribution::has_more(const Plan& plan, PayloadId payload, const Member& parent, const Member& child) {
  if (parent.installed == payload.version) return true;
  if (parent.receiving != payload) return false;
  if (plan.stripes.size() > 1) {
    return child.chunks_verified < child.chunks_total && parent.chunks_total >= child.chunks_total &&
           parent.chunks_verified == parent.chunks_total;
  }
  return parent.chunks_verified > child.chunks_verified;
}

void FaultAttribution::note_offence(PeerId id, std::string what, bool by_word) {
  Member* member = members_.find(id);
  if (member == nullptr) return;
  actions_.push(action::warning(fmt::format("worker {} {}", member->name, what)));
  member->offence = std::move(what);
  member->offence_by_word = by_word;
  member->offended = true;
}

std::string FaultAttribution::name_of(PeerId id) const {
  const Member* member = members_.find(id);
  return member == nullptr ? fmt::format("peer {}", id.value) : member->name;
}

void FaultAttribution::blame(Instant now, PeerId id, PeerFault fault) {
  Member* member = members_.find(id);
  if (member == nullptr) return;  // the origin
  member->score.handle_failed(now);
  const bool may_be_its_link = fault == PeerFault::kSlow && !member->planned_uplink().limited();
  member->standing.handle_fault(fault, may_be_its_link ? Standing::kTail : Standing::kRolloutOnly);
}

}  // namespace weightcast
