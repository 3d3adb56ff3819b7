// Who gets which payload, and what members say of that.
#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "base/units.h"
#include "transport/core/manifest/payload_wire.h"
#include "transport/core/origin/publications.h"

namespace weightcast {
namespace {

// The origin waits no more for members that still lack the version when it has sent next to nothing for so long.
constexpr Duration kStragglersAfter = std::chrono::seconds(10);

}  // namespace

// ---- who gets which payload

void Publications::assign_all(Instant now) {
  std::vector<Member*> all;
  for (auto& [id, member] : context_.members.all()) all.push_back(&member);
  assign(now, all);
}

void Publications::assign(Instant now, const std::vector<Member*>& members) {
  if (latest_ == kNoVersion) return;
  const Publication& latest = at(latest_);
  std::map<PayloadId, std::vector<Member*>> takers;
  std::optional<bool> pays;  // the same for all
  const auto can = [&](PayloadId payload) {
    if (!can_make(payload)) return false;
    if (!payload.is_packed() || at(payload.version).is_making(payload)) return true;
    if (payload.version != latest_) return false;
    if (!pays) pays = packing_pays(now);
    return *pays;
  };
  for (Member* member : members) {
    if (!member->active() || member->installed >= latest_) continue;
    CatchUp catch_up = catch_up_to(latest_, *member, can);
    // Who was given it as it is goes on with that.
    if (catch_up.next.is_packed() && member->assigned == PayloadId(latest_)) continue;
    if (catch_up.make && taking_over()) {
      if (catch_up.next.is_packed() || member->installed >= newest_whole()) continue;
      catch_up = catch_up_to(newest_whole(), *member, can);
    }
    if (!taking_over()) {
      times_.handle_wanted(now, latest_);
      context_.history.handle_wanted(now, *latest.manifest());
    }
    if (catch_up.next.version == kNoVersion) continue;
    if (catch_up.make) {
      at(catch_up.next.version).make(now, catch_up.next);
    } else if (member->assigned != catch_up.next) {
      takers[catch_up.next].push_back(member);
    }
  }
  for (const auto& [payload, some] : takers) take_in(now, payload, some);
}

bool Publications::packing_pays(Instant now) const {
  if (context_.config.packing == Packing::kAlways) return true;
  const auto costs = packing_costs(context_, now, publications_.at(latest_), packed_share_, speeds_);
  return costs && weightcast::packing_pays(*costs);
}

CatchUp Publications::catch_up_to(Version version, const Member& member,
                                  const std::function<bool(PayloadId)>& can_make) const {
  CatchUpRequest request{member.installed,
                         version,
                         publications_.at(version).full_bytes(),
                         !member.base_unusable,
                         context_.config.anchor_interval,
                         can_make,
                         {}};
  for (const auto& [older, publication] : publications_) {
    if (older >= version) break;
    if (older <= member.refused || !publication.in_store()) continue;
    if (context_.holds(older) || publication.is_making(older)) request.whole.insert(older);
  }
  return choose_payload(context_.holdings, request);
}

CatchUpPath Publications::catch_up_path_of(PayloadId payload, const Member& member) const {
  if (!payload.is_encoded()) return CatchUpPath::kFull;
  if (payload.is_packed()) return CatchUpPath::kPacked;
  // The last of several patches in turn is one of them, too.
  const Version latest = newest_whole();
  const bool goes_on =
      member.assigned_path == CatchUpPath::kChain && member.installed < latest && payload.base == member.installed;
  if (payload.version < latest || goes_on) return CatchUpPath::kChain;
  const bool over_others = std::ranges::any_of(context_.holdings, [&](const auto& held) {
    return held.first.version > payload.base && held.first.version < payload.version;
  });
  return over_others || newest_before(payload.version) > payload.base ? CatchUpPath::kFolded : CatchUpPath::kDirect;
}

void Publications::take_in(Instant now, PayloadId payload, const std::vector<Member*>& takers) {
  PayloadPlan& plan = at(payload.version).plan_of(payload);
  plan.unsettle(now);
  for (Member* member : takers) {
    const PayloadId left = std::exchange(member->assigned, payload);
    if (PayloadPlan* before = left.version == latest_ ? find_plan(left) : nullptr) before->unsettle(now);
    member->assigned_path = catch_up_path_of(payload, *member);
    plan.handle_assigned(member->id);
  }
}

void Publications::resume_receiving(Instant now, Member& member) {
  const PayloadId payload = member.receiving;
  if (payload.version == kNoVersion || payload == member.assigned) return;
  if (!context_.holds(payload) || !member.active()) {
    return context_.actions.push(
        action::Send{member.conn, not_available(payload, "the origin plans newer versions only")});
  }
  PayloadPlan& plan = at(payload.version).plan_of(payload);
  plan.handle_resumed(member.id);
  plan.unsettle(now);
  if (PayloadPlan* next = find_plan(member.assigned)) {
    next->handle_assigned(member.id);
    next->unsettle(now);
  }
}

bool Publications::has_place(const Member& member, PayloadId payload) {
  const PayloadPlan* plan = find_plan(payload);
  return member.connected() && plan != nullptr && plan->has_told(member.id);
}

RateProbes::Traffic Publications::traffic(Instant now) const {
  if (taking_over() || is_making_for(latest_)) return {.published = true, .others = {}};
  const PayloadPlan* plan = main_plan(latest_);
  const Duration predicted = plan == nullptr ? Duration::zero() : plan->plan().predicted_t100;
  const Duration patience = std::max(kStragglersAfter, 2 * predicted);
  const Instant busy_at = std::max(begun_at_, context_.rates.busy_at());
  RateProbes::Traffic traffic;
  for (const auto& [id, member] : context_.members.all()) {
    if (!member.active() || member.installed >= latest_ || member.failed == latest_) continue;
    const Instant since = member.behind == latest_ ? std::max(busy_at, member.behind_since) : busy_at;
    if (now - since <= patience) return {.published = true, .others = {}};
    traffic.others.insert(id);
    if (plan == nullptr) continue;
    for (const PeerId parent : parents_of(plan->plan(), id)) traffic.others.insert(parent);
  }
  return traffic;
}

// ---- who comes and goes

void Publications::adopt_foreign(const Manifest& manifest) {
  for (auto& [id, member] : context_.members.all()) {
    if (!member.foreign || member.installed > manifest.version) continue;
    const bool same = member.installed == manifest.version;
    if (same && (manifest.open || member.installed_digest != manifest.snapshot_digest)) continue;
    member.foreign = false;
    member.last_error.clear();
    if (!same) member.base_unusable = true;  // this origin has nothing, or something else, under that number
  }
}

void Publications::handle_disconnected(Instant now, PeerId member) {
  for_each_plan([&](PayloadPlan& plan) {
    if (plan.handle_disconnected(member)) plan.unsettle(now);
  });
}

void Publications::handle_joined(Instant now, Member& member, const std::vector<PayloadId>& held) {
  // Over a connection that was still there, too: its place, its address and what it has may be others now.
  handle_disconnected(now, member.id);
  times_.handle_joined();
  context_.history.handle_joined(now, member);
  for (const PayloadId payload : held) {
    if (context_.holds(payload)) at(payload.version).plan_of(payload).handle_holder(member.id);
  }
  if (member.installed < latest_ && member.behind != latest_) {
    member.behind = latest_;
    member.behind_since = now;
  }
  assign(now, {&member});
  resume_receiving(now, member);
  context_.settling.note_change(now);
}

void Publications::handle_joined_of_other_run(Instant now, const Member& member) {
  // It may have been one of this run, and planned.
  handle_disconnected(now, member.id);
  context_.settling.note_change(now);
  // An origin that was started in the wrong directory should not cost its fleet what it has.
  if (newest_whole() != kNoVersion) invite(member);
}

void Publications::invite(const Member& member) {
  wire::Message message;
  message.mutable_new_run()->set_run_id(context_.config.run.value);
  context_.actions.push(action::Send{member.conn, std::move(message)});
}

void Publications::handle_lost(Instant now, Member& member) {
  context_.faults.handle_lost(now, member.id);
  handle_disconnected(now, member.id);
  handle_released(now, member);
}

// Its plans go on without it, but know what it was told: else nobody would serve it the rest, and it would ask again
// and again.
void Publications::handle_released(Instant now, Member& member) {
  context_.history.handle_left(now, member);
  member.assigned = {};
  repair_all(now);
  count_all_ = true;
  context_.settling.note_change(now);
}

// ---- what members say

void Publications::handle_receiving(Instant now, Member& member, PayloadId payload) {
  member.receiving = payload;
  PayloadPlan* const plan = find_plan(payload);
  if (plan != nullptr && plan->readmit(member.id)) plan->unsettle(now);
  // What it took up before it joined again has grown since, or is no more: on this connection it has heard nothing of
  // it.
  if (plan == nullptr || !plan->has_told(member.id)) resume_receiving(now, member);
  context_.settling.note_change(now);
}

void Publications::handle_progress(Instant now, Member& member, std::vector<std::uint32_t> stripes_missing) {
  if (PayloadPlan* plan = find_plan(member.receiving)) {
    return plan->handle_progress(now, member, std::move(stripes_missing));
  }
  // Nobody looks at the edges of a payload that is forgotten, and a relay may pass it on by a chunk now and then. So
  // the origin tells a member that gets far less than its link once carried, or, before its first, than others' do.
  if (!member.is_receiving() || context_.holds(member.receiving)) return member.slow_since.reset();
  const bool has_shown = member.last_received.limited();
  const Rate usual = has_shown ? member.last_received : usually_received();
  const bool is_slow = usual.limited() && PaceWatch::kHoardFactor * member.receive_bytes_per_s < usual.bytes_per_s;
  if (!is_slow) return member.slow_since.reset();
  if (!member.slow_since) member.slow_since = now;
  if (now - *member.slow_since < member.slow_for) return;
  member.slow_since.reset();
  // It may be its link that is slow: then it needs the time, however often something is published.
  if (!has_shown) member.slow_for *= 2;
  resume_receiving(now, member);
}

Rate Publications::usually_received() const {
  std::vector<Rate> rates;
  for (const auto& [id, member] : context_.members.all()) {
    if (member.last_received.limited()) rates.push_back(member.last_received);
  }
  if (rates.empty()) return context_.rates.planned_origin_uplink();
  const auto middle = rates.begin() + static_cast<std::ptrdiff_t>(rates.size() / 2);
  std::ranges::nth_element(rates, middle);
  return *middle;
}

void Publications::handle_install_failed(Instant now, Member& member, const wire::InstallFailed& failed) {
  const PayloadId payload = payload_of(failed);
  member.last_error = failed.detail().substr(0, kReasonBytesMax);
  member.failed = payload.version;
  context_.history.handle_failed(member, payload.version, member.last_error);
  const Error said = about(to_string(payload), fail(Errc::kIo, Op::kInstall, member.last_error));
  // Whoever could not install what is superseded gets a newer version.
  const auto level = payload.version < newest_whole() ? action::info : action::warning;
  context_.actions.push(level(fmt::format("worker {} could not install {}", member.name, said.detail)));
  if (PayloadPlan* plan = find_plan(payload)) {
    plan->handle_failed(member.id);
    plan->unsettle(now);
  }
  const auto code = static_cast<Errc>(failed.code());
  // What patches lead on from may be older than a version that the worker has had and lost (acceptance.h).
  const bool is_too_old = code == Errc::kNotAllowed && !payload.is_encoded() && payload.version < latest_;
  if (is_too_old) member.refused = std::max(member.refused, payload.version);
  if (!is_too_old && !asks_for_full(payload, code)) return;
  member.base_unusable = true;
  if (member.assigned == payload) member.assigned = {};
  assign(now, {&member});
}

void Publications::handle_installed(Instant now, Member& member, const wire::Installed& installed) {
  const PayloadId payload = payload_of(installed);
  const Version version = payload.version;
  PayloadPlan* const plan = find_plan(payload);
  const std::string_view contradiction = [&]() -> std::string_view {
    // A version that was withdrawn is one that a worker may have got to its end before it heard of that.
    if (version > last_used()) return "which is none of this origin's";
    if (plan == nullptr) return "";
    // A packed payload may be made anew while a member that has joined again says how it got it. The digest of a full
    // one is not known yet, and stands as 0.
    const bool is_news = member.installed < version || payload.is_full() || payload == begun();
    if (plan->manifest().open && is_news) return "which is still being made";
    const bool same = checksum_from_wire(installed.snapshot_digest()) == plan->manifest().snapshot_digest;
    return same ? "" : "but with another digest";
  }();
  if (!contradiction.empty()) {
    context_.actions.push(action::warning(
        fmt::format("worker {} says that it installed version {}, {}", member.name, version.value, contradiction)));
    return;
  }
  const std::optional<InstallPhases> phases =
      installed.has_phases() ? install_phases_from_wire(installed.phases()) : std::nullopt;
  if (plan != nullptr && member.installed < version && installed.seconds() > 0) {
    plan->handle_received(now, member, installed.seconds(), phases);
  }
  const Version before = member.installed;
  if (version > before) {
    member.base_unusable = false;
    const bool as_assigned = plan != nullptr && member.assigned == payload;
    member.installed_path = as_assigned ? member.assigned_path : CatchUpPath::kUnknown;
    member.installed_bytes = as_assigned ? plan->manifest().payload_bytes : 0;
    if (version >= latest_) member.assigned_path = CatchUpPath::kUnknown;
  }
  member.installed = std::max(member.installed, version);
  member.last_error.clear();
  member.failed = kNoVersion;
  member.receiving = {};
  if (plan != nullptr) plan->handle_holder(member.id);
  context_.history.handle_installed(now, member, before, version, phases);
  judge(now, times_.handle_installed(now, context_.members));
  assign(now, {&member});
  context_.settling.note_change(now);
}

void Publications::handle_taken(const Member& member, Version version, double after_s) {
  if (!(after_s >= 0 && after_s <= kPhaseMax_s)) return;  // also what is no number
  context_.history.handle_taken(member, version, from_seconds(after_s));
}

namespace {

/// Why a child left its parent, or is fed slowly: for people. A later release may send kinds that this one has not.
std::string_view words_of_fault(wire::FaultKind kind) {
  switch (kind) {
    case wire::FAULT_KIND_CLOSED: return "the connection ended";
    case wire::FAULT_KIND_SLOW: return "it sends more slowly than was planned";
    case wire::FAULT_KIND_CORRUPT: return "a chunk does not match its digest";
    case wire::FAULT_KIND_NOT_AVAILABLE: return "it has not got the version, or cannot be dialled";
    case wire::FAULT_KIND_STARVED: return "it says that it has nothing more";
    case wire::FAULT_KIND_SILENT: return "it says nothing";
    case wire::FAULT_KIND_WAITING: return "nothing has come for a while";
    default: return "for a reason that this release does not know";
  }
}

}  // namespace

void Publications::handle_parent_fault(Instant now, Member& member, const ParentFault& fault) {
  const bool starves = fault.kind == wire::FAULT_KIND_STARVED || fault.kind == wire::FAULT_KIND_WAITING;
  if (!starves || !fault.stays()) {  // that is said again and again
    // Of an older version nobody needs to be fed any more, but damage is damage.
    const bool is_over = fault.kind != wire::FAULT_KIND_CORRUPT && fault.payload.version < newest_whole();
    const auto level = is_over ? action::info : action::warning;
    context_.actions.push(
        level(fmt::format("worker {} {} {} ({})", member.name, fault.stays() ? "is fed slowly by" : "left its parent",
                          context_.name_of(fault.parent), words_of_fault(fault.kind))));
  }
  const Member* silent = fault.kind == wire::FAULT_KIND_SILENT ? context_.members.find(fault.parent) : nullptr;
  if (silent != nullptr) context_.history.handle_silent(*silent, fault.payload.version);
  if (PayloadPlan* plan = find_plan(fault.payload)) return plan->handle_parent_fault(now, member, fault);
  // No plan is there to be repaired: who gets nothing more of an older version hears that newer ones are to be had.
  if (starves && fault.payload == member.receiving) resume_receiving(now, member);
}

}  // namespace weightcast
