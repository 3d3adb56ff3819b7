#include "transport/core/origin/payload_assigner.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "base/units.h"
#include "transport/core/manifest/payload_wire.h"

namespace weightcast {
bool PayloadAssigner::packing_pays(Instant now) const {
  if (context_.config.packing == Packing::kAlways) return true;
  const std::uint64_t bytes = payloads_.full_bytes(payloads_.latest());
  const PlanRequest request =
      plan_request(context_, now, bytes, [&](const Member& member) { return member.installed < payloads_.latest(); });
  // Links of unknown rate may be faster than anything, and ends of unknown speed slower.
  const bool known =
      origin_rate_source(context_) != RateSource::kNone && speeds_.pack_bytes_per_s() > 0 &&
      std::ranges::all_of(request.members, [&](const PlanMember& m) {
        const Member& member = *context_.members.find(m.id);
        return member.planned_downlink().limited() && (member.planned_uplink().limited() || !m.can_relay);
      });
  if (!known) return false;
  PackingCosts costs;
  for (const auto& [id, member] : context_.members.all()) {
    if (!member.active() || member.installed >= payloads_.latest()) continue;
    if (member.unpack_bytes_per_s <= 0) return false;
    costs.unpack_s = std::max(costs.unpack_s, double(bytes) / member.unpack_bytes_per_s);
  }
  costs.as_it_is_s = to_seconds(make_plan(request).predicted_t100);
  costs.packed_share = payloads_.packed_share();
  costs.take_over_s = payloads_.taking_over() ? double(bytes) / speeds_.take_over_bytes_per_s() : 0;
  costs.pack_s = double(bytes) / speeds_.pack_bytes_per_s();
  return weightcast::packing_pays(costs);
}

void PayloadAssigner::assign_all(Instant now) {
  std::vector<Member*> all;
  for (auto& [id, member] : context_.members.all()) all.push_back(&member);
  assign(now, all);
}

void PayloadAssigner::assign(Instant now, const std::vector<Member*>& members) {
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
    if (!payloads_.taking_over()) {
      times_.handle_wanted(now, payloads_.latest());
      context_.history.handle_wanted(now, *payloads_.find_version(payloads_.latest()));
    }
    if (catch_up.next.version == kNoVersion) continue;
    if (catch_up.make) {
      payloads_.make(catch_up.next);
      context_.history.handle_making(now, catch_up.next);
    } else if (member->assigned != catch_up.next) {
      takers[catch_up.next].push_back(member);
    }
  }
  for (const auto& [payload, some] : takers) take_in(now, payload, some);
}

CatchUp PayloadAssigner::catch_up_to(Version version, const Member& member,
                                     const std::function<bool(PayloadId)>& can_make) const {
  return payloads_.catch_up_to(version, member.installed, member.refused, !member.base_unusable, can_make);
}

CatchUpPath PayloadAssigner::catch_up_path_of(PayloadId payload, const Member& member) const {
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
  return over_others || payloads_.newest_before(payload.version) > payload.base ? CatchUpPath::kFolded
                                                                                : CatchUpPath::kDirect;
}

void PayloadAssigner::take_in(Instant now, PayloadId payload, const std::vector<Member*>& takers) {
  Publication& publication = plans_.of(payload);
  plans_.unsettle(now, payload);
  for (Member* member : takers) {
    const PayloadId left = std::exchange(member->assigned, payload);
    if (left.version == payloads_.latest()) plans_.unsettle(now, left);
    member->assigned_path = catch_up_path_of(payload, *member);
    publication.handle_assigned(member->id);
  }
}

void PayloadAssigner::resume_receiving(Instant now, Member& member) {
  const PayloadId payload = member.receiving;
  if (payload.version == kNoVersion || payload == member.assigned) return;
  if (!payloads_.holds(payload) || !member.active()) {
    wire::Message message;
    set_payload(*message.mutable_not_available(), payload);
    message.mutable_not_available()->set_reason("the origin plans newer versions only");
    context_.actions.push(action::Send{member.conn, std::move(message)});
    return;
  }
  plans_.of(payload).handle_resumed(member.id);
  plans_.unsettle(now, payload);
  if (Publication* next = plans_.find(member.assigned); next != nullptr && payloads_.holds(member.assigned)) {
    next->handle_assigned(member.id);
    plans_.unsettle(now, next->id());
  }
}

}  // namespace weightcast
