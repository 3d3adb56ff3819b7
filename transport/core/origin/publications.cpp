// The list of publications: which versions there are, what is made and held of them, and what is forgotten.
#include "transport/core/origin/publications.h"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>
#include <utility>

#include "transport/core/deadline.h"
#include "transport/core/origin/retention.h"

namespace weightcast {
namespace {

// Plans that are still looked after though nobody needs them.
constexpr std::size_t kPlansMax = 8;
constexpr std::string_view kNotMade = "the origin could not complete it";

Error refused(PayloadId payload, std::string_view why) {
  return fail(Errc::kInvalidArgument, Op::kPublish, fmt::format("{}: {}", to_string(payload), why));
}

}  // namespace

// ---- the list

Version Publications::newest_before(Version version) const {
  for (auto at = publications_.lower_bound(version); at != publications_.begin();) {
    if ((--at)->second.in_store()) return at->first;
  }
  return kNoVersion;
}

void Publications::set_latest(Version version) {
  latest_ = version;
  for (auto& [other, publication] : publications_) {
    if (other != latest_) publication.handle_not_latest();
  }
}

Status Publications::check_version(Version version) const {
  if (version == kNoVersion || version > kVersionMax) {
    return fail(Errc::kInvalidArgument, Op::kPublish,
                fmt::format("version {}: versions start at 1 and end at {}", version.value, kVersionMax.value));
  }
  if (version <= last_used()) {
    return fail(Errc::kAlreadyExists, Op::kPublish,
                fmt::format("version {}: the latest is {}; versions must grow", version.value, last_used().value));
  }
  return {};
}

bool Publications::can_make(PayloadId payload) const {
  const Publication* const publication = find(payload.version);
  if (publication == nullptr || !publication->can_make(payload)) return false;
  return publication->is_making(payload) || !payload.is_patch() || find_version(payload.base) != nullptr;
}

std::set<PeerId> Publications::planned() const {
  std::set<PeerId> planned;
  for (const auto& [version, publication] : publications_) planned.merge(publication.planned());
  return planned;
}

Plan Publications::plan_for(Instant now, std::uint64_t payload_bytes) const {
  return make_plan(plan_request(context_, now, payload_bytes, [](const Member&) { return true; }));
}

// ---- new versions

void Publications::restore(std::shared_ptr<const Manifest> manifest, const std::vector<ContentDigest>& chunk_digests) {
  const Version version = manifest->version;
  if (!at(version).restore(std::move(manifest), chunk_digests)) return;
  latest_ = std::max(latest_, version);
  times_.restore(version);
}

void Publications::restore_patch(std::shared_ptr<const Manifest> manifest,
                                 const std::vector<ContentDigest>& chunk_digests) {
  const Version version = manifest->version;
  at(version);  // makes it one of the versions, even if those digests are wrong
  (void)hold_whole(context_.holdings, std::move(manifest), chunk_digests);
}

void Publications::handle_publish_begun(Instant now, std::shared_ptr<const Manifest> manifest, double packed_share) {
  const PayloadId payload = manifest->id();
  const Version version = payload.version;
  Status ok = check_version(version);
  if (ok.has_value()) ok = check_begun(*manifest);
  if (!ok.has_value()) {
    context_.actions.push(
        action::warning(fmt::format("version {} is not begun: {}", version.value, ok.error().detail)));
    return;
  }
  adopt_foreign(*manifest);
  context_.history.handle_begun(now, *manifest);
  Publication& publication = at(version);
  publication.begin(std::move(manifest));
  // Of a patch's version nobody has looked at what packing would leave: as of the version before.
  if (payload.is_full()) packed_share_ = packed_share;
  if (packed_share_ >= kPackedShareMax) publication.give_up(packed_of(version));
  latest_ = version;
  begun_at_ = now;
  assign_all(now);
  settle(now);
}

void Publications::handle_publish_grown(Instant now, const MadePayload& grown) {
  if (!taking_over() || grown.manifest->id() != begun()) return;  // it was withdrawn
  handle_grown(now, grown);
}

Status Publications::check_begun(const Manifest& manifest) const {
  if (taking_over()) return refused(manifest.id(), "another version is begun");
  if (!manifest.open) return refused(manifest.id(), "its first manifest is not open");
  return check_publication(manifest.id());
}

Status Publications::check_publication(PayloadId payload) const {
  if (payload.is_packed()) return refused(payload, "no version is published by that");
  if (taking_over()) {
    return payload == begun() ? Status{} : refused(payload, fmt::format("{} was begun", to_string(begun())));
  }
  if (payload.is_full() || payload.base == latest_) return {};
  return refused(payload, fmt::format("the latest version is {}", latest_.value));
}

void Publications::handle_publish(Instant now, Instant started_at, const MadePayload& made) {
  const PayloadId payload = made.manifest->id();
  const Version version = payload.version;
  const bool is_begun = taking_over() && version == latest_;
  if (const Status ok = check_version(version); !is_begun && (!ok.has_value() || taking_over())) {
    context_.actions.push(
        action::warning(fmt::format("version {} is not published: {}", version.value,
                                    ok.has_value() ? "another one is being taken over" : ok.error().detail)));
    return;
  }
  Status published = check_publication(payload);
  if (published.has_value()) published = at(version).publish(made);
  if (!published.has_value()) {
    const std::string& why = published.error().detail;
    context_.actions.push(action::warning(fmt::format("version {} is not published: {}", version.value, why)));
    if (is_begun) abandon_version(now, version, why);
    return;
  }
  Publication& publication = at(version);
  set_latest(version);
  // Nobody has looked at what it becomes: as the version before, as far as is known.
  if (payload.is_patch() && packed_share_ >= kPackedShareMax) publication.give_up(packed_of(version));
  speeds_.handle_made(made);
  context_.forecasts.handle_made(payload, made.took);
  begun_at_ = now;
  const Version previous = newest_before(version);

  judge(now, times_.handle_published(version, started_at));
  context_.history.handle_published(now, started_at, *made.manifest);
  adopt_foreign(*made.manifest);
  for (const auto& [id, member] : context_.members.all()) {
    if (member.connected() && member.other_run != kNoRun) invite(member);
  }
  // Also when nobody needs it now: a worker that comes back later can be caught up by what is stored.
  const PayloadId step = patch_of(version, previous);
  if (previous != kNoVersion && step != payload && can_make(step)) publication.make(now, step);
  assign_all(now);
  context_.uploads.handle_known(payload);
  count_all_ = true;
  settle(now);
}

void Publications::handle_publish_failed(Instant now, Version version, std::string_view why) {
  if (taking_over() && version == latest_) abandon_version(now, version, why);
}

void Publications::abandon_version(Instant now, Version version, std::string_view why) {
  end_record(now, version, PublicationRecord::End::kGivenUp, fmt::format("{}: {}", kNotMade, why));
  withdraw_version(version, kNotMade);
  for (auto& [id, member] : context_.members.all()) member.foreign = member.foreign || member.installed > last_used();
  assign_all(now);
  settle(now);
}

void Publications::withdraw_version(Version version, std::string_view why) {
  Publication& publication = at(version);
  if (!publication.open()) last_used_ = std::max(last_used_, version);
  publication.withdraw(why);
  if (version == latest_) set_latest(newest_before(latest_));
}

void Publications::handle_damaged(Instant now, PayloadId payload) {
  const auto held = context_.holdings.find(payload);
  const bool is_held = held != context_.holdings.end();
  if (is_held && held->second.open()) return;
  constexpr std::string_view kDamaged = "the origin's copy is damaged";
  if (payload.is_full()) {
    if (find_version(payload.version) == nullptr) return;
    end_record(now, payload.version, PublicationRecord::End::kGivenUp, kDamaged);
    withdraw_version(payload.version, kDamaged);
  } else {
    if (!is_held) return;
    Publication& publication = at(payload.version);
    publication.withdraw(payload, kDamaged);
    // What was made from it, or would be, leads to other bytes than its digest says.
    publication.give_up(payload);
  }
  assign_all(now);
  settle(now);
}

// ---- payloads that are made when somebody needs them

void Publications::handle_payload_begun(Instant now, std::shared_ptr<const Manifest> manifest) {
  const Version version = manifest->version;
  if (const Status begun = at(version).begin_made(std::move(manifest)); !begun.has_value()) {
    return context_.actions.push(action::warning(begun.error().message()));
  }
  assign_all(now);
  settle(now);
}

void Publications::handle_payload_grown(Instant now, const MadePayload& grown) {
  const PayloadId payload = grown.manifest->id();
  if (at(payload.version).is_making(payload) && context_.holds(payload)) handle_grown(now, grown);
}

void Publications::handle_grown(Instant now, const MadePayload& grown) {
  const PayloadId payload = grown.manifest->id();
  const Status growth = at(payload.version).grow(grown);
  if (growth.has_value()) return;
  context_.actions.push(action::warning(growth.error().message()));
  if (taking_over() && payload == begun()) return abandon_version(now, payload.version, growth.error().detail);
  static_cast<void>(handle_payload_made(now, payload, growth.error()));
}

Status Publications::handle_payload_made(Instant now, PayloadId payload, const Result<MadePayload>& made) {
  Publication& publication = at(payload.version);
  if (!publication.end_making(payload)) return {};
  context_.history.handle_made(now, payload);
  const Status held = [&]() -> Status {
    if (!made.has_value()) return made.error();
    if (made->manifest->id() == payload) return publication.hold_made(*made);
    return fail(Errc::kInvalidArgument, Op::kEncode,
                fmt::format("{} was made instead", to_string(made->manifest->id())));
  }();
  if (!held.has_value()) {
    publication.withdraw(payload, kNotMade);
    if (held.error().code == Errc::kIo || held.error().code == Errc::kNoSpace) {
      publication.put_off(payload);
      if (!make_again_at_)
        make_again_at_ = now + std::exchange(put_off_for_, std::min(2 * put_off_for_, kMakeAgainMax));
    } else {
      publication.give_up(payload);
    }
    std::string text = fmt::format("no {}: {}", to_string(payload), held.error().detail);
    const bool expected = held.error().code == Errc::kTooLarge || payload.version < latest_;
    context_.actions.push(expected ? action::info(std::move(text)) : action::warning(std::move(text)));
  } else {
    // To hash a version that is here is faster than to take one over.
    if (payload.is_encoded()) speeds_.handle_made(*made);
    context_.forecasts.handle_made(payload, made->took);
    begun_at_ = now;
    put_off_for_ = kMakeAgainAfter;
  }
  assign_all(now);
  settle(now);
  return held;
}

// ---- settling

std::optional<Instant> Publications::poll_deadline() const {
  EarliestDeadline earliest;
  earliest.consider(settle_due());
  earliest.consider(make_again_at_);
  return earliest.first();
}

void Publications::handle_timeout(Instant now) {
  if (make_again_at_ && now >= *make_again_at_) {
    make_again_at_.reset();
    for (auto& [version, publication] : publications_) publication.make_again();
    assign_all(now);
    context_.settling.note_change(now);
  }
  if (settle_due() && now >= *settle_due()) settle(now);
}

void Publications::settle(Instant now) {
  if (std::exchange(count_all_, false)) judge(now, times_.count(now, context_.members));
  forget_old_versions(now);
  context_.settling.handle_settled(now);
  std::vector<PayloadPlan*> repaired;
  for_each_plan([&](PayloadPlan& plan) {
    // Some may have gone past an older version's payload. The latest version's plans are unsettled when members are
    // assigned.
    if (!plan.unsettled() && (plan.id().version == latest_ || !plan.outdated())) return;
    plan.repair(now);
    repaired.push_back(&plan);
  });
  // A worker that gives up or finishes what it is in the middle of goes on with what was announced last: that has to be
  // what it is assigned.
  for (const bool to_assigned : {false, true}) {
    for (PayloadPlan* plan : repaired) plan->announce(now, to_assigned);
  }
  context_.uploads.handle_placed();
}

void Publications::repair_all(Instant now) {
  for_each_plan([&](PayloadPlan& plan) { plan.unsettle(now); });
}

bool Publications::in_use(PayloadId payload) const {
  return context_.uploads.wanted(payload) || std::ranges::any_of(context_.members.all(), [&](const auto& entry) {
           const Member& member = entry.second;
           return member.active() && member.installed < payload.version &&
                  (member.assigned == payload || member.receiving == payload);
         });
}

void Publications::forget_old_versions(Instant now) {
  if (taking_over()) return;
  std::vector<Member*> waiting;
  const auto waited_for = [&](PayloadId payload) { return in_use(payload); };
  for (const PayloadId payload :
       unneeded_payloads(context_.config, context_.holdings, publications_, latest_, waited_for)) {
    for (Member* left : at(payload.version).forget(payload)) waiting.push_back(left);
  }
  assign(now, waiting);
  std::size_t plans = 0;
  for (const auto& [version, publication] : publications_) plans += publication.plans().size();
  std::vector<PayloadId> idle;
  for_each_plan([&](PayloadPlan& plan) {
    const bool may_go = plans - idle.size() > kPlansMax && plan.id().version != latest_;
    if (may_go && !in_use(plan.id())) idle.push_back(plan.id());
  });
  for (const PayloadId payload : idle) at(payload.version).end_plan(payload);
  std::erase_if(publications_, [](const auto& entry) { return entry.second.over(); });
}

}  // namespace weightcast
