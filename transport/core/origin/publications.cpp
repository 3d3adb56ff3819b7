#include "transport/core/origin/publications.h"

#include <fmt/format.h>

#include <algorithm>
#include <set>

#include "base/units.h"
#include "transport/core/payload_wire.h"

namespace weightcast {
namespace {

// Publications whose plans are still looked after though nobody needs them.
constexpr std::size_t kPublicationsMax = 8;
// Less travels within a socket's buffer.
constexpr std::uint64_t kMeasuredBytesMin = 4 * kMiB;
constexpr double kBetterFactor = 1.25;
// The origin waits no more for members that still lack the version when it has sent next to nothing for so long.
constexpr Duration kStragglersAfter = std::chrono::seconds(10);
constexpr std::string_view kNotMade = "the origin could not complete it";

}  // namespace

Publications::Publications(const OriginConfig& config, Membership& members, Holdings& holdings, Uploads& uploads,
                           ActionQueue& actions, RateProbes& rates)
    : config_(config),
      members_(members),
      payloads_(config, holdings, actions),
      uploads_(uploads),
      actions_(actions),
      faults_(members, uploads, actions, rates),
      context_{config, members, actions, faults_, history_, rates},
      plans_(context_, payloads_),
      assigner_(context_, payloads_, plans_, times_) {}

void Publications::restore(std::shared_ptr<const Manifest> manifest, const std::vector<ContentDigest>& chunk_digests) {
  const Version version = manifest->version;
  if (payloads_.restore(std::move(manifest), chunk_digests)) times_.restore(version);
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

void Publications::handle_publish_begun(Instant now, std::shared_ptr<const Manifest> manifest, double packed_share) {
  const PayloadId payload = manifest->id();
  Status begun = check_version(payload.version);
  if (begun.has_value()) begun = payloads_.begin_version(manifest, packed_share);
  if (!begun.has_value()) {
    actions_.push(
        action::warning(fmt::format("version {} is not begun: {}", payload.version.value, begun.error().detail)));
    return;
  }
  adopt_foreign(*manifest);
  history_.handle_begun(now, *manifest);
  uploads_.handle_known(payload);
  begun_at_ = now;
  assigner_.assign_all(now);
  settle(now);
}

void Publications::handle_publish_grown(Instant now, const MadePayload& grown) {
  if (!payloads_.taking_over() || grown.manifest->id() != payloads_.begun()) return;  // it was withdrawn
  handle_grown(now, grown);
}

void Publications::handle_publish(Instant now, Instant started_at, const MadePayload& made) {
  const PayloadId payload = made.manifest->id();
  const Version version = payload.version;
  const bool begun = payloads_.taking_over() && version == payloads_.latest();
  if (const Status ok = check_version(version); !begun && (!ok.has_value() || payloads_.taking_over())) {
    actions_.push(action::warning(fmt::format("version {} is not published: {}", version.value,
                                              ok.has_value() ? "another one is being taken over" : ok.error().detail)));
    return;
  }
  const auto growth = payloads_.complete_version(made);
  if (!growth.has_value()) {
    actions_.push(
        action::warning(fmt::format("version {} is not published: {}", version.value, growth.error().detail)));
    if (begun) abandon_version(now, version, growth.error().detail);
    return;
  }
  assigner_.handle_made(made);
  forecasts_.handle_made(payload, made.took);
  begun_at_ = now;
  tell(payload, *growth);
  const Version previous = payloads_.newest_before(version);

  judge(now, times_.handle_published(version, started_at));
  history_.handle_published(now, started_at, *made.manifest);
  adopt_foreign(*made.manifest);
  for (const auto& [id, member] : members_.all()) {
    if (member.connected() && member.other_run != kNoRun) invite(member);
  }
  // Also when nobody needs it now: a worker that comes back later can be caught up by what is stored.
  const PayloadId step = patch_of(version, previous);
  if (previous != kNoVersion && step != payload && payloads_.can_make(step)) {
    payloads_.make(step);
    history_.handle_making(now, step);
  }
  assigner_.assign_all(now);
  uploads_.handle_known(payload);
  count_all_ = true;
  settle(now);
}

void Publications::handle_publish_failed(Instant now, Version version, std::string_view why) {
  if (payloads_.taking_over() && version == payloads_.latest()) abandon_version(now, version, why);
}

void Publications::abandon_version(Instant now, Version version, std::string_view why) {
  end_record(now, version, PublicationRecord::End::kGivenUp, fmt::format("{}: {}", kNotMade, why));
  withdraw_version(version, kNotMade);
  for (auto& [id, member] : members_.all()) member.foreign = member.foreign || member.installed > payloads_.last_used();
  assigner_.assign_all(now);
  settle(now);
}

void Publications::handle_damaged(Instant now, PayloadId payload) {
  const auto held = payloads_.held().find(payload);
  const bool is_held = held != payloads_.held().end();
  if (is_held && held->second.open()) return;
  constexpr std::string_view kDamaged = "the origin's copy is damaged";
  if (payload.is_full()) {
    if (payloads_.find_version(payload.version) == nullptr) return;
    end_record(now, payload.version, PublicationRecord::End::kGivenUp, kDamaged);
    withdraw_version(payload.version, kDamaged);
  } else {
    if (!is_held) return;
    withdraw(payload, kDamaged);
    // What was made from it, or would be, leads to other bytes than its digest says.
    payloads_.give_up(payload);
  }
  assigner_.assign_all(now);
  settle(now);
}

// ---- payloads that are made when somebody needs them

void Publications::handle_payload_begun(Instant now, std::shared_ptr<const Manifest> manifest) {
  const PayloadId payload = manifest->id();
  if (const Status begun = payloads_.begin_made(std::move(manifest)); !begun.has_value()) {
    return actions_.push(action::warning(begun.error().message()));
  }
  uploads_.handle_known(payload);
  assigner_.assign_all(now);
  settle(now);
}

void Publications::handle_payload_grown(Instant now, const MadePayload& grown) {
  const PayloadId payload = grown.manifest->id();
  if (payloads_.is_making(payload) && payloads_.holds(payload)) handle_grown(now, grown);
}

void Publications::handle_grown(Instant now, const MadePayload& grown) {
  const PayloadId payload = grown.manifest->id();
  const Result<wire::Message> growth = payloads_.grow(grown);
  if (!growth.has_value()) {
    actions_.push(action::warning(growth.error().message()));
    const bool begun = payloads_.taking_over() && payload == payloads_.begun();
    if (begun) return abandon_version(now, payload.version, growth.error().detail);
    return static_cast<void>(handle_payload_made(now, payload, growth.error()));
  }
  tell(payload, *growth);
  uploads_.handle_known(payload);
}

void Publications::tell(PayloadId payload, const std::optional<wire::Message>& growth) {
  const Publication* publication = plans_.find(payload);
  if (growth && publication != nullptr) publication->tell_all(*growth);
}

void Publications::withdraw(PayloadId payload, std::string_view why) {
  if (!payloads_.holds(payload)) return;
  uploads_.withdraw(payload, why);
  if (const Publication* publication = plans_.find(payload)) {
    wire::Message message;
    set_payload(*message.mutable_not_available(), payload);
    message.mutable_not_available()->set_reason(std::string(why));
    publication->tell_all(message);
  }
  end_publication(payload);
  payloads_.withdraw(payload);
  for (auto& [id, member] : members_.all()) {
    if (member.assigned == payload) member.assigned = {};
  }
}

void Publications::withdraw_version(Version version, std::string_view why) {
  if (version == payloads_.begun().version) withdraw(payloads_.begun(), why);
  withdraw(version, why);
  payloads_.withdraw_version(version);
}

void Publications::end_publication(PayloadId payload) {
  forecasts_.forget(payload);
  plans_.erase(payload);
  faults_.forget(payload);
}

Status Publications::hold_made(PayloadId payload, const Result<MadePayload>& made) {
  if (!made.has_value()) return made.error();
  if (made->manifest->id() != payload) {
    return fail(Errc::kInvalidArgument, Op::kEncode,
                fmt::format("{} was made instead", to_string(made->manifest->id())));
  }
  WC_ASSIGN(const auto growth, payloads_.complete(*made));
  actions_.push(action::info(fmt::format("{}: {}", to_string(payload), format_bytes(made->manifest->payload_bytes))));
  tell(payload, growth);
  uploads_.handle_known(payload);
  return {};
}

Status Publications::handle_payload_made(Instant now, PayloadId payload, const Result<MadePayload>& made) {
  if (!payloads_.end_making(payload)) return {};
  history_.handle_made(now, payload);
  const Status held = hold_made(payload, made);
  if (!held.has_value()) {
    withdraw(payload, kNotMade);
    payloads_.give_up(payload);
    std::string text = fmt::format("no {}: {}", to_string(payload), held.error().detail);
    const bool expected = held.error().code == Errc::kTooLarge || payload.version < payloads_.latest();
    actions_.push(expected ? action::info(std::move(text)) : action::warning(std::move(text)));
  } else {
    // To hash a version that is here is faster than to take one over.
    if (payload.is_encoded()) assigner_.handle_made(*made);
    forecasts_.handle_made(payload, made->took);
    begun_at_ = now;
  }
  assigner_.assign_all(now);
  settle(now);
  return held;
}

// ---- settling

void Publications::handle_timeout(Instant now) {
  if (plans_.settle_due() && now >= *plans_.settle_due()) settle(now);
}

void Publications::settle(Instant now) {
  if (std::exchange(count_all_, false)) judge(now, times_.count(now, members_));
  forget_old_versions();
  plans_.settle(now);
  uploads_.handle_placed();
}

void Publications::adopt_foreign(const Manifest& manifest) {
  for (auto& [id, member] : members_.all()) {
    if (!member.foreign || member.installed > manifest.version) continue;
    const bool same = member.installed == manifest.version;
    if (same && (manifest.open || member.installed_digest != manifest.snapshot_digest)) continue;
    member.foreign = false;
    member.last_error.clear();
    if (!same) member.base_unusable = true;  // this origin has nothing, or something else, under that number
  }
}

// ---- what members say, and what becomes of them

void Publications::handle_joined(Instant now, Member& member, const std::vector<PayloadId>& held) {
  // Over a connection that was still there, too: its place, its address and what it has may be others now.
  plans_.handle_disconnected(now, member.id);
  times_.handle_joined();
  history_.handle_joined(now, member);
  for (const PayloadId payload : held) {
    if (payloads_.holds(payload)) plans_.of(payload).handle_holder(member.id);
  }
  if (member.installed < payloads_.latest() && member.behind != payloads_.latest()) {
    member.behind = payloads_.latest();
    member.behind_since = now;
  }
  assigner_.assign(now, {&member});
  assigner_.resume_receiving(now, member);
  plans_.note_change(now);
}

void Publications::handle_joined_of_other_run(Instant now, const Member& member) {
  // It may have been one of this run, and planned.
  plans_.handle_disconnected(now, member.id);
  plans_.note_change(now);
  // An origin that was started in the wrong directory should not cost its fleet what it has.
  if (payloads_.newest_whole() != kNoVersion) invite(member);
}

void Publications::invite(const Member& member) {
  wire::Message message;
  message.mutable_new_run()->set_run_id(config_.run.value);
  actions_.push(action::Send{member.conn, std::move(message)});
}

void Publications::handle_lost(Instant now, Member& member) {
  faults_.handle_lost(now, member.id);
  plans_.handle_disconnected(now, member.id);
  handle_released(now, member);
}

// Its plans go on without it, but know what it was told: else nobody would serve it the rest, and it would ask again
// and again.
void Publications::handle_released(Instant now, Member& member) {
  history_.handle_left(now, member);
  member.assigned = {};
  plans_.unsettle_all(now);
  count_all_ = true;
  plans_.note_change(now);
}

void Publications::handle_receiving(Instant now, Member& member, PayloadId payload) {
  member.receiving = payload;
  Publication* publication = plans_.find(payload);
  if (publication != nullptr && publication->readmit(member.id)) plans_.unsettle(now, payload);
  // What it took up before it joined again has grown since, or is no more: on this connection it has heard nothing of
  // it.
  if (publication == nullptr || !publication->has_told(member.id)) assigner_.resume_receiving(now, member);
  plans_.note_change(now);
}

void Publications::handle_install_failed(Instant now, Member& member, const wire::InstallFailed& failed) {
  const PayloadId payload = payload_of(failed);
  member.last_error = failed.detail().substr(0, kReasonBytesMax);
  member.failed = payload.version;
  history_.handle_failed(member, payload.version, member.last_error);
  const Error said = about(to_string(payload), fail(Errc::kIo, Op::kInstall, member.last_error));
  // Whoever could not install what is superseded gets a newer version.
  const auto level = payload.version < payloads_.newest_whole() ? action::info : action::warning;
  actions_.push(level(fmt::format("worker {} could not install {}", member.name, said.detail)));
  if (Publication* publication = plans_.find(payload)) {
    publication->handle_failed(member.id);
    plans_.unsettle(now, payload);
  }
  const auto code = static_cast<Errc>(failed.code());
  // What patches lead on from may be older than a version that the worker has had and lost (acceptance.h).
  const bool is_too_old = code == Errc::kNotAllowed && !payload.is_encoded() && payload.version < payloads_.latest();
  if (is_too_old) member.refused = std::max(member.refused, payload.version);
  if (!is_too_old && !asks_for_full(payload, code)) return;
  member.base_unusable = true;
  if (member.assigned == payload) member.assigned = {};
  assigner_.assign(now, {&member});
}

void Publications::handle_progress(Instant now, const Member& member, std::vector<std::uint32_t> stripes_missing) {
  const Publication* publication = plans_.find(member.receiving);
  // While a payload is open its maker sets the pace.
  if (publication == nullptr || publication->manifest().open) return;
  if (faults_.handle_progress(now, publication->plan(), member.receiving, member.id, std::move(stripes_missing))) {
    plans_.unsettle(now, member.receiving);
  }
}

void Publications::handle_installed(Instant now, Member& member, const wire::Installed& installed) {
  const Version version = payload_of(installed).version;
  // A version that was withdrawn is one that a worker may have got to its end before it heard of that.
  if (version > payloads_.last_used()) {
    actions_.push(action::warning(fmt::format(
        "worker {} says that it installed version {}, which is none of this origin's", member.name, version.value)));
    return;
  }
  Publication* publication = plans_.find(payload_of(installed));
  // The digest of a full one is not known yet, and stands as 0.
  const bool is_open = publication != nullptr && publication->manifest().open;
  if (is_open && (publication->id().is_full() || publication->id() == payloads_.begun())) {
    actions_.push(action::warning(fmt::format("worker {} says that it installed version {}, which is still being made",
                                              member.name, version.value)));
    return;
  }
  if (publication != nullptr &&
      checksum_from_wire(installed.snapshot_digest()) != publication->manifest().snapshot_digest) {
    actions_.push(action::warning(fmt::format("worker {} says that it installed version {}, but with another digest",
                                              member.name, version.value)));
    return;
  }
  const std::optional<InstallPhases> phases =
      installed.has_phases() ? install_phases_from_wire(installed.phases()) : std::nullopt;
  if (publication != nullptr && member.installed < version && installed.seconds() > 0) {
    // Forwarding is what is scored: the relays that fed it did well.
    const Rate rate{double(publication->manifest().payload_bytes) / installed.seconds()};
    faults_.handle_fed(now, parents_of(publication->plan(), member.id), rate);
    faults_.handle_received(publication->id(), member.id, publication->manifest().chunk_count() / installed.seconds());
    if (phases) note_received(now, *publication, member, *phases);
  }
  const Version before = member.installed;
  if (version > before) {
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
  history_.handle_installed(now, member, before, version, phases);
  judge(now, times_.handle_installed(now, members_));
  assigner_.assign(now, {&member});
  plans_.note_change(now);
}

void Publications::handle_taken(const Member& member, Version version, double after_s) {
  if (!(after_s >= 0 && after_s <= kPhaseMax_s)) return;  // also what is no number
  history_.handle_taken(member, version, from_seconds(after_s));
}

std::string Publications::name_of(PeerId node) const {
  const Member* member = members_.find(node);
  return member != nullptr ? member->name : config_.name;
}

void Publications::note_received(Instant now, const Publication& publication, Member& member,
                                 const InstallPhases& phases) {
  const std::uint64_t bytes = std::min(phases.bytes, publication.manifest().payload_bytes);
  if (bytes < kMeasuredBytesMin || phases.receiving <= Duration::zero()) return;
  const Rate reached{double(bytes) / to_seconds(phases.receiving)};
  LinkEstimate& downlink = member.estimates.downlink;
  // Its uplink may be another, too.
  if (downlink.known() && reached.bytes_per_s > kBetterFactor * downlink.rate().bytes_per_s) {
    context_.rates.doubt(member.id);
  }
  downlink.handle_reached(reached);
  // The time without a parent is no link's, and the plan is another one by now.
  if (phases.parents_left > 0 || !publication.is_predicted(member.id)) {
    return note_misses(publication.id(), forecasts_.handle_has(now, publication.id(), member.id));
  }
  // While the disk is behind, the link waits for it.
  const Duration took = phases.receiving - std::min(phases.receiving, phases.disk_behind);
  note_misses(publication.id(), forecasts_.handle_received(now, publication.plan(), publication.id(), member.id, bytes,
                                                           to_seconds(took)));
}

void Publications::note_misses(PayloadId payload, const std::vector<ForecastWatch::Miss>& misses) {
  for (const ForecastWatch::Miss& miss : misses) {
    std::string parents;
    for (const PeerId parent : std::set(miss.parents.begin(), miss.parents.end())) {
      parents += (parents.empty() ? "" : ", ") + name_of(parent);
      parent == kOriginId ? context_.rates.doubt_origin() : context_.rates.doubt(parent);
    }
    context_.rates.doubt(miss.member);
    if (!miss.first) continue;
    actions_.push(action::milestone(fmt::format(
        "publishing {}: slower than planned: {} to {} carried {}, planned {}; both links are measured anew",
        to_string(payload), parents, name_of(miss.member), format_rate(miss.reached), format_rate(miss.planned))));
  }
}

RateProbes::Traffic Publications::traffic(Instant now) const {
  if (payloads_.taking_over() || payloads_.is_making_for(payloads_.latest())) return {.published = true, .others = {}};
  const Version latest = payloads_.latest();
  const Publication* publication = plans_.main_publication(latest);
  const Duration predicted = publication == nullptr ? Duration::zero() : publication->plan().predicted_t100;
  const Duration patience = std::max(kStragglersAfter, 2 * predicted);
  const Instant busy_at = std::max(begun_at_, context_.rates.busy_at());
  RateProbes::Traffic traffic;
  for (const auto& [id, member] : members_.all()) {
    if (!member.active() || member.installed >= latest || member.failed == latest) continue;
    const Instant since = member.behind == latest ? std::max(busy_at, member.behind_since) : busy_at;
    if (now - since <= patience) return {.published = true, .others = {}};
    traffic.others.insert(id);
    if (publication == nullptr) continue;
    for (const PeerId parent : parents_of(publication->plan(), id)) traffic.others.insert(parent);
  }
  return traffic;
}

void Publications::handle_parent_fault(Instant now, Member& member, const ParentFault& fault) {
  const bool starves = fault.kind == wire::FAULT_KIND_STARVED || fault.kind == wire::FAULT_KIND_WAITING;
  if (!starves || !fault.stays()) {  // that is said again and again
    const Member* parent = members_.find(fault.parent);
    // Of an older version nobody needs to be fed any more, but damage is damage.
    const bool is_over = fault.kind != wire::FAULT_KIND_CORRUPT && fault.payload.version < payloads_.newest_whole();
    const auto level = is_over ? action::info : action::warning;
    actions_.push(
        level(fmt::format("worker {} {} {} ({})", member.name, fault.stays() ? "is fed slowly by" : "left its parent",
                          parent != nullptr ? parent->name : config_.name, wire::FaultKind_Name(fault.kind))));
  }
  const Publication* publication = plans_.find(fault.payload);
  if (publication == nullptr) {
    // No plan is there to be repaired: who gets nothing more of an older version hears that newer ones are to be had.
    if (starves && fault.payload == member.receiving) assigner_.resume_receiving(now, member);
    return;
  }
  // It gave less than the plan expected. Whoever is to blame, both ends of the edge are measured anew: the child goes
  // on with another parent, and when it has the payload tells nothing of this one any more.
  if (fault.kind == wire::FAULT_KIND_SLOW) {
    context_.rates.doubt(member.id);
    fault.parent == kOriginId ? context_.rates.doubt_origin() : context_.rates.doubt(fault.parent);
  }
  const bool changed = faults_.handle_report(
      now, publication->plan(),
      {fault.payload, member.id, fault.parent, fault.stripe, fault.kind, fault.stays(), fault.starving});
  if (changed) plans_.unsettle(now, fault.payload);
}

void Publications::judge(Instant now, const std::vector<Version>& ended) {
  for (const Version version : ended) {
    faults_.handle_publication_end(version, plans_.planned(version));
    for (const auto& [payload, publication] : plans_.all()) {
      if (payload.version == version) note_misses(payload, forecasts_.end(now, payload));
    }
    ++ended_count_;
    const BroadcastTimes::Times* times = times_.find(version);
    const bool complete = times != nullptr && times->t100;
    end_record(now, version, complete ? PublicationRecord::End::kComplete : PublicationRecord::End::kSuperseded);
  }
  times_.for_each([&](Version version, const BroadcastTimes::Times& times) { history_.handle_times(version, times); });
}

// ---- what is needed

bool Publications::in_use(PayloadId payload) const {
  return uploads_.wanted(payload) || std::ranges::any_of(members_.all(), [&](const auto& entry) {
           const Member& member = entry.second;
           return member.active() && member.installed < payload.version &&
                  (member.assigned == payload || member.receiving == payload);
         });
}

void Publications::forget_old_versions() {
  if (payloads_.taking_over()) return;
  for (const PayloadId payload : payloads_.unneeded([&](PayloadId p) { return in_use(p); })) {
    uploads_.withdraw(payload, "the origin keeps newer versions only");
    end_publication(payload);
    payloads_.forget(payload);
  }
  std::vector<PayloadId> idle;
  for (const auto& [payload, publication] : plans_.all()) {
    if (plans_.all().size() - idle.size() <= kPublicationsMax) break;
    if (payload.version != payloads_.latest() && !in_use(payload)) idle.push_back(payload);
  }
  for (const PayloadId payload : idle) end_publication(payload);
}

}  // namespace weightcast
