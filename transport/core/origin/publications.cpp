#include "transport/core/origin/publications.h"

#include <fmt/format.h>

#include <algorithm>
#include <set>

#include "base/units.h"
#include "transport/core/payload_wire.h"

namespace weightcast {
namespace {

constexpr std::size_t kMissingNamesMax = 8;
// Publications whose plans are still looked after though nobody needs them.
constexpr std::size_t kPublicationsMax = 8;
// Sending has to take longer than this for packing to be tried. Packing takes 3.4 s per GiB of a core of 2.6 GHz, and
// unpacking 2.2 s; both go on while the payload travels, on two threads each, beside what it takes to write and send
// it. So this leaves something to be gained on hosts that have one core to spare, and links that carry more than
// 1.4 Gbit/s to each worker get payloads as they are.
constexpr double kPackSecondsPerByte = 6.0 / double(kGiB);

// Repairing a plan and telling those whom it concerns takes some 2 us for each member of it: so a fleet in which
// somebody comes or goes all the time takes a third of a core at most.
constexpr Duration kSettlingPerMember = std::chrono::microseconds(5);

constexpr std::string_view kNotMade = "it could not be made to its end";

}  // namespace

Publications::Publications(const OriginConfig& config, Membership& members, Holdings& holdings, Uploads& uploads,
                           ActionQueue& actions)
    : config_(config),
      members_(members),
      payloads_(config, holdings, actions),
      uploads_(uploads),
      actions_(actions),
      faults_(members, uploads, actions),
      context_{config, members, actions, faults_} {}

void Publications::restore(std::shared_ptr<const Manifest> manifest, const std::vector<Digest>& chunk_digests) {
  const bool full = manifest->kind == PayloadKind::kFull;
  const Version version = manifest->version;
  if (payloads_.restore(std::move(manifest), chunk_digests) && full) times_.restore(version);
}

Plan Publications::plan_for(Instant now, std::uint64_t payload_bytes) const {
  return make_plan(plan_request(context_, now, payload_bytes, [](const Member&) { return true; }));
}

Status Publications::check_version(Version version) const {
  if (version == kNoVersion || version > kVersionMax) {
    return fail(Errc::kInvalidArgument, Op::kPublish,
                fmt::format("version {}: versions start at 1 and end at {}", version.value, kVersionMax.value));
  }
  if (version <= payloads_.last_used()) {
    return fail(
        Errc::kAlreadyExists, Op::kPublish,
        fmt::format("version {}: the latest is {}; versions must grow", version.value, payloads_.last_used().value));
  }
  return {};
}

// ---- new versions

void Publications::handle_publish_begun(Instant now, std::shared_ptr<const Manifest> manifest, bool packable) {
  if (const Status ok = check_version(manifest->version);
      !ok.has_value() || !manifest->open || payloads_.taking_over()) {
    actions_.push(action::warning(fmt::format("version {} is not begun: {}", manifest->version.value,
                                              ok.has_value() ? "another one is" : ok.error().detail)));
    return;
  }
  adopt_foreign(*manifest);
  payloads_.begin_version(std::move(manifest), packable);
  assign_all(now);
  settle(now);
}

void Publications::handle_publish_grown(const MadePayload& grown) {
  if (!payloads_.taking_over() || grown.manifest->id() != payloads_.latest()) return;  // it was withdrawn
  handle_grown(grown, payloads_.grow(grown));
  uploads_.handle_known(payloads_.latest());
}

void Publications::handle_publish(Instant now, Instant started_at, const MadePayload& made) {
  const Version version = made.manifest->version;
  const bool begun = payloads_.taking_over() && version == payloads_.latest();
  if (const Status ok = check_version(version); !begun && (!ok.has_value() || payloads_.taking_over())) {
    actions_.push(action::warning(fmt::format("version {} is not published: {}", version.value,
                                              ok.has_value() ? "another one is being taken over" : ok.error().detail)));
    return;
  }
  handle_grown(made, payloads_.complete_version(made));
  const Version previous = payloads_.newest_before(version);

  judge(times_.handle_published(version, started_at));
  adopt_foreign(*made.manifest);
  // Also when nobody needs it now: a worker that comes back later can be caught up by what is stored.
  if (const PayloadId step = patch_of(version, previous); previous != kNoVersion && payloads_.can_make(step))
    payloads_.make(step);
  assign_all(now);
  uploads_.handle_known(version);
  count_all_ = true;
  settle(now);
}

void Publications::handle_publish_failed(Instant now, Version version) {
  if (!payloads_.taking_over() || version != payloads_.latest()) return;
  withdraw(version, kNotMade);
  for (auto& [id, member] : members_.all()) member.foreign = member.foreign || member.installed > payloads_.last_used();
  assign_all(now);
  settle(now);
}

void Publications::handle_damaged(Instant now, PayloadId payload) {
  const auto held = payloads_.held().find(payload);
  if (held == payloads_.held().end() || held->second.open()) return;
  withdraw(payload, "the origin's copy is damaged");
  // What was made from it, or would be, leads to other bytes than its digest says.
  if (payload.is_encoded()) payloads_.give_up(payload);
  assign_all(now);
  settle(now);
}

// ---- patches

bool Publications::packing_pays(Instant now) const {
  if (config_.packing == Packing::kAlways) return true;
  const std::uint64_t bytes = payloads_.held().at(payloads_.latest()).manifest().planned_bytes();
  const PlanRequest request =
      plan_request(context_, now, bytes, [&](const Member& member) { return member.installed < payloads_.latest(); });
  // What is not known may be faster than anything.
  const bool known = request.origin_uplink.limited() && std::ranges::all_of(request.members, [](const PlanMember& m) {
                       return m.downlink.limited() && (m.uplink.limited() || !m.can_relay);
                     });
  return known && to_seconds(make_plan(request).predicted_t100) > kPackSecondsPerByte * double(bytes);
}

void Publications::handle_patch_begun(Instant now, std::shared_ptr<const Manifest> manifest) {
  const PayloadId payload = manifest->id();
  if (payloads_.holds(payload)) return;
  if (!payloads_.begin_made(std::move(manifest))) return;
  uploads_.handle_known(payload);
  assign_all(now);
  settle(now);
}

void Publications::handle_patch_grown(const MadePayload& grown) {
  const PayloadId payload = grown.manifest->id();
  if (!payloads_.is_making(payload) || !payloads_.holds(payload)) return;
  handle_grown(grown, payloads_.grow(grown));
  uploads_.handle_known(payload);
}

void Publications::handle_grown(const MadePayload& grown, const std::optional<wire::Message>& growth) {
  Publication* publication = find(grown.manifest->id());
  if (!growth || publication == nullptr) return;
  publication->grow(grown.manifest);
  publication->tell_all(*growth);
}

void Publications::withdraw(PayloadId payload, std::string_view why) {
  if (!payloads_.withdraw(payload)) return;
  uploads_.handle_gone(payload, why);
  Publication* publication = find(payload);
  if (publication == nullptr) return;
  wire::Message message;
  set_payload(*message.mutable_not_available(), payload);
  message.mutable_not_available()->set_reason(std::string(why));
  publication->tell_all(message);
  publications_.erase(payload);
  faults_.forget(payload);
  unsettled_.erase(payload);
  for (auto& [id, member] : members_.all()) {
    if (member.assigned == payload) member.assigned = {};
  }
}

void Publications::handle_patch_made(Instant now, PayloadId payload, const Result<MadePayload>& made) {
  if (!payloads_.end_making(payload)) return;
  if (made.has_value()) {
    actions_.push(action::info(fmt::format("{}: {}", to_string(payload), format_bytes(made->manifest->payload_bytes))));
    handle_grown(*made, payloads_.complete(*made));
    uploads_.handle_known(payload);
  } else {
    withdraw(payload, kNotMade);
    payloads_.give_up(payload);
    std::string text = fmt::format("no {}: {}", to_string(payload), made.error().detail);
    const bool expected = made.error().code == Errc::kTooLarge;
    actions_.push(expected ? action::info(std::move(text)) : action::warning(std::move(text)));
  }
  assign_all(now);
  settle(now);
}

// ---- who gets what

Publication& Publications::publication_of(PayloadId payload) {
  return publications_.try_emplace(payload, context_, payloads_.held().at(payload).shared_manifest()).first->second;
}

Publication* Publications::find(PayloadId payload) {
  const auto found = publications_.find(payload);
  return found == publications_.end() ? nullptr : &found->second;
}

const Publication* Publications::main_publication(Version version) const {
  const Publication* most = nullptr;
  for (const auto& [payload, publication] : publications_) {
    if (payload.version != version) continue;
    if (most == nullptr || publication.plan().members.size() >= most->plan().members.size()) most = &publication;
  }
  return most;
}

void Publications::assign_all(Instant now) {
  std::vector<Member*> all;
  for (auto& [id, member] : members_.all()) all.push_back(&member);
  assign(now, all);
}

void Publications::assign(Instant now, const std::vector<Member*>& members) {
  if (payloads_.latest() == kNoVersion) return;
  std::map<PayloadId, std::vector<Member*>> takers;
  std::optional<bool> pays;  // the same for all
  const auto can = [&](PayloadId payload) {
    if (!payloads_.can_make(payload)) return false;
    if (!payload.is_packed() || payloads_.is_making(payload)) return true;
    if (payload.version != payloads_.latest()) return false;
    if (!pays) pays = packing_pays(now);
    return *pays;
  };
  for (Member* member : members) {
    if (!member->active() || member->installed >= payloads_.latest()) continue;
    CatchUp catch_up = catch_up_to(payloads_.latest(), *member, can);
    // Who was given it as it is goes on with that.
    if (catch_up.next.is_packed() && member->assigned == PayloadId(payloads_.latest())) continue;
    if (catch_up.make && payloads_.taking_over()) {
      if (catch_up.next.is_packed() || member->installed >= payloads_.newest_whole()) continue;
      catch_up = catch_up_to(payloads_.newest_whole(), *member, can);
    }
    if (!payloads_.taking_over()) times_.handle_wanted(now, payloads_.latest());
    if (catch_up.make) {
      payloads_.make(catch_up.next);
    } else if (member->assigned != catch_up.next) {
      takers[catch_up.next].push_back(member);
    }
  }
  for (const auto& [payload, some] : takers) take_in(now, payload, some);
}

CatchUp Publications::catch_up_to(Version version, const Member& member,
                                  const std::function<bool(PayloadId)>& can_make) const {
  return payloads_.catch_up_to(version, member.installed, !member.base_unusable, can_make);
}

CatchUpPath Publications::catch_up_path_of(PayloadId payload, const Member& member) const {
  if (!payload.is_encoded()) return CatchUpPath::kFull;
  if (payload.is_packed()) return CatchUpPath::kPacked;
  // The last of several patches in turn is one of them, too.
  const Version latest = payloads_.newest_whole();
  const bool goes_on =
      member.assigned_path == CatchUpPath::kChain && member.installed < latest && payload.base == member.installed;
  if (payload.version < latest || goes_on) return CatchUpPath::kChain;
  const bool over_others = std::ranges::any_of(payloads_.held(), [&](const auto& held) {
    return held.first.version > payload.base && held.first.version < payload.version;
  });
  return over_others ? CatchUpPath::kFolded : CatchUpPath::kDirect;
}

void Publications::take_in(Instant now, PayloadId payload, const std::vector<Member*>& takers) {
  Publication& publication = publication_of(payload);
  unsettle(now, payload);
  for (Member* member : takers) {
    const PayloadId left = std::exchange(member->assigned, payload);
    if (left.version == payloads_.latest()) unsettle(now, left);
    member->assigned_path = catch_up_path_of(payload, *member);
    publication.handle_assigned(member->id);
  }
}

void Publications::resume_receiving(Instant now, Member& member) {
  const PayloadId payload = member.receiving;
  if (payload.version == kNoVersion || payload == member.assigned) return;
  if (!payloads_.holds(payload) || !member.active()) {
    wire::Message message;
    set_payload(*message.mutable_not_available(), payload);
    message.mutable_not_available()->set_reason("the origin plans newer versions only");
    actions_.push(action::Send{member.conn, std::move(message)});
    return;
  }
  publication_of(payload).handle_resumed(member.id);
  unsettle(now, payload);
  if (Publication* next = find(member.assigned); next != nullptr && payloads_.holds(member.assigned)) {
    next->handle_assigned(member.id);
    unsettle(now, next->id());
  }
}

void Publications::repair_all(Instant now) {
  for (auto& [payload, publication] : publications_) unsettle(now, payload);
}

// ---- settling

void Publications::unsettle(Instant now, PayloadId payload) {
  unsettled_.insert(payload);
  note_settling(now);
}

void Publications::note_settling(Instant now) {
  const Instant earliest =
      settled_at_ ? *settled_at_ + kSettlingPerMember * std::int64_t(members_.connected_count()) : now;
  if (!settle_due_) settle_due_ = std::max(now, earliest);
}

void Publications::handle_timeout(Instant now) {
  if (settle_due_ && now >= *settle_due_) settle(now);
}

void Publications::settle(Instant now) {
  settle_due_.reset();
  settled_at_ = now;
  if (std::exchange(count_all_, false)) judge(times_.count(now, members_));
  forget_old_versions();
  unsettle_outdated();
  std::vector<Publication*> repaired;
  for (const PayloadId payload : std::exchange(unsettled_, {})) {
    Publication* publication = find(payload);
    if (publication == nullptr) continue;
    repaired.push_back(publication);
    const std::size_t before = publication->plan().members.size();
    publication->repair(now);
    ++repair_count_;
    const Plan& plan = publication->plan();
    if (before > 0 || plan.members.empty()) continue;
    actions_.push(action::info(fmt::format(
        "publishing {}: {} to {} workers by {}, chunks of {}, predicted {:.3f} s", to_string(payload),
        format_bytes(publication->manifest().planned_bytes()), plan.members.size(), to_string(plan.topology),
        format_bytes(publication->manifest().chunk_bytes), to_seconds(plan.predicted_t100))));
  }
  // A worker that gives up or finishes what it is in the middle of goes on with what was announced last: that has to be
  // what it is assigned.
  for (const bool to_assigned : {false, true}) {
    for (Publication* publication : repaired) publication->announce(to_assigned);
  }
}

void Publications::unsettle_outdated() {
  for (auto& [payload, publication] : publications_) {
    // take_in() sees to those of the latest.
    if (payload.version != payloads_.latest() && publication.outdated()) unsettled_.insert(payload);
  }
}

std::unordered_set<PeerId> Publications::planned() const {
  std::unordered_set<PeerId> planned;
  for (const auto& [payload, publication] : publications_) {
    planned.insert(publication.plan().members.begin(), publication.plan().members.end());
  }
  return planned;
}

void Publications::adopt_foreign(const Manifest& manifest) {
  for (auto& [id, member] : members_.all()) {
    if (!member.foreign || member.installed > manifest.version) continue;
    const bool same = member.installed == manifest.version;
    if (same && (manifest.open || member.installed_digest != bytes_of(manifest.snapshot_digest))) continue;
    member.foreign = false;
    member.last_error.clear();
    if (!same) member.base_unusable = true;  // this origin has nothing, or something else, under that number
  }
}

// ---- what members say, and what becomes of them

void Publications::handle_joined(Instant now, Member& member, const std::vector<PayloadId>& held) {
  // Over a connection that was still there, too: its place, its address and what it has may be others now.
  for (auto& [payload, publication] : publications_) {
    if (publication.handle_disconnected(member.id)) unsettle(now, payload);
  }
  times_.handle_joined();
  for (const PayloadId payload : held) {
    if (payloads_.holds(payload)) publication_of(payload).handle_holder(member.id);
  }
  assign(now, {&member});
  resume_receiving(now, member);
  note_settling(now);
}

void Publications::handle_lost(Instant now, Member& member) {
  member.assigned = {};
  for (auto& [payload, publication] : publications_) (void)publication.handle_disconnected(member.id);
  repair_all(now);
  count_all_ = true;
  note_settling(now);
}

void Publications::handle_receiving(Instant now, Member& member, PayloadId payload) {
  member.receiving = payload;
  Publication* publication = find(payload);
  if (publication != nullptr && publication->readmit(member.id)) unsettle(now, payload);
  // What it took up before it joined again has grown since, or is no more: on this connection it has heard nothing of
  // it.
  if (publication == nullptr || !publication->has_told(member.id)) resume_receiving(now, member);
  note_settling(now);
}

void Publications::handle_install_failed(Instant now, Member& member, const wire::InstallFailed& failed) {
  const PayloadId payload = payload_of(failed);
  member.last_error = failed.detail().substr(0, kReasonBytesMax);
  member.failed = payload.version;
  actions_.push(action::warning(fmt::format("worker {} could not install version {}: {}", member.name,
                                            payload.version.value, member.last_error)));
  if (Publication* publication = find(payload)) {
    publication->handle_failed(member.id);
    unsettle(now, payload);
  }
  if (!asks_for_full(payload, static_cast<Errc>(failed.code()))) return;
  member.base_unusable = true;
  if (member.assigned == payload) member.assigned = {};
  assign(now, {&member});
}

void Publications::handle_installed(Instant now, Member& member, const wire::Installed& installed) {
  const Version version = payload_of(installed).version;
  // A version that was withdrawn is one that a worker may have got to its end before it heard of that.
  if (version > payloads_.last_used()) {
    actions_.push(action::warning(fmt::format(
        "worker {} says that it installed version {}, which is none of this origin's", member.name, version.value)));
    return;
  }
  Publication* publication = find(payload_of(installed));
  if (publication != nullptr && installed.snapshot_digest() != bytes_of(publication->manifest().snapshot_digest)) {
    actions_.push(action::warning(fmt::format("worker {} says that it installed version {}, but with another digest",
                                              member.name, version.value)));
    return;
  }
  if (publication != nullptr && member.installed < version && installed.seconds() > 0) {
    // Forwarding is what is scored: the relays that fed it did well.
    const Rate rate{double(publication->manifest().payload_bytes) / installed.seconds()};
    faults_.handle_fed(now, parents_of(publication->plan(), member.id), rate);
  }
  if (version > member.installed) {
    member.base_unusable = false;
    const bool as_assigned = publication != nullptr && member.assigned == publication->id();
    member.installed_path = as_assigned ? member.assigned_path : CatchUpPath::kUnknown;
    member.installed_bytes = as_assigned ? publication->manifest().payload_bytes : 0;
    if (version >= payloads_.latest()) member.assigned_path = CatchUpPath::kUnknown;
  }
  member.installed = std::max(member.installed, version);
  member.last_error.clear();
  member.failed = kNoVersion;
  member.receiving = {};
  if (publication != nullptr) publication->handle_holder(member.id);
  judge(times_.handle_installed(now, members_));
  assign(now, {&member});
  note_settling(now);
}

void Publications::handle_parent_fault(Instant now, Member& member, const wire::ParentFault& fault) {
  const PeerId parent_id{fault.parent_id()};
  const bool stays = fault.now_from_id() == fault.parent_id();
  const bool starves = stays && (fault.kind() == wire::FAULT_KIND_STARVED || fault.kind() == wire::FAULT_KIND_WAITING);
  if (!starves) {  // that is said again and again
    const Member* parent = members_.find(parent_id);
    actions_.push(action::warning(
        fmt::format("worker {} {} {} ({})", member.name, stays ? "is fed slowly by" : "left its parent",
                    parent != nullptr ? parent->name : config_.name, wire::FaultKind_Name(fault.kind()))));
  }
  const PayloadId payload = payload_of(fault);
  Publication* publication = find(payload);
  if (publication == nullptr) return;
  const bool changed = faults_.handle_report(now, publication->plan(),
                                             {payload, member.id, parent_id, fault.stripe(), fault.kind(), stays,
                                              std::chrono::milliseconds(fault.starving_ms())});
  if (changed) unsettle(now, payload);
}

void Publications::judge(const std::vector<Version>& ended) {
  for (const Version version : ended) {
    std::set<PeerId> planned;
    for (const auto& [payload, publication] : publications_) {
      if (payload.version != version) continue;
      planned.insert(publication.plan().members.begin(), publication.plan().members.end());
    }
    faults_.handle_publication_end(version, planned);
    ++ended_count_;
  }
}

// ---- what there is

std::optional<PublicationProgress> Publications::progress(Version version) const {
  const BroadcastTimes::Times* times = times_.find(version);
  if (times == nullptr) return std::nullopt;
  PublicationProgress progress;
  progress.version = version;
  progress.t50 = times->t50;
  progress.t90 = times->t90;
  progress.t100 = times->t100;
  const Publication* publication = main_publication(version);
  if (publication != nullptr) {
    progress.kind = publication->id().kind;
    progress.payload_bytes = publication->manifest().planned_bytes();
    progress.topology = publication->plan().topology;
    progress.predicted = publication->plan().predicted_t100;
  } else if (const auto full = payloads_.held().find(version); full != payloads_.held().end()) {
    progress.payload_bytes = full->second.manifest().payload_bytes;
  }
  progress.undecided = publication == nullptr && payloads_.is_making_for(version);
  for (const auto& [id, member] : members_.all()) {
    if (!member.active()) continue;
    ++progress.active;
    if (member.installed >= version) {
      ++progress.installed;
    } else if (progress.missing.size() < kMissingNamesMax) {
      progress.missing.push_back(member.name);
    }
  }
  return progress;
}

const Plan* Publications::latest_plan() const {
  const Publication* publication = main_publication(payloads_.latest());
  return publication == nullptr ? nullptr : &publication->plan();
}

bool Publications::in_use(PayloadId payload) const {
  return uploads_.wanted(payload) || std::ranges::any_of(members_.all(), [&](const auto& entry) {
           const Member& member = entry.second;
           return member.active() && member.installed < payload.version &&
                  (member.assigned == payload || member.receiving == payload);
         });
}

void Publications::forget_old_versions() {
  if (payloads_.taking_over()) return;
  for (const PayloadId payload : payloads_.forget_old([&](PayloadId p) { return in_use(p); })) {
    uploads_.handle_gone(payload, "the origin keeps newer versions only");
  }
  for (auto publication = publications_.begin();
       publications_.size() > kPublicationsMax && publication != publications_.end();) {
    const bool keep = publication->first.version == payloads_.latest() || in_use(publication->first);
    if (keep) {
      ++publication;
    } else {
      faults_.forget(publication->first);
      publication = publications_.erase(publication);
    }
  }
}

}  // namespace weightcast
