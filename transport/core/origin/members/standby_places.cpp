#include "transport/core/origin/members/standby_places.h"

#include <algorithm>

namespace weightcast {
namespace {

constexpr PeerId kNobody = kOriginId;

}  // namespace

Member* StandbyPlaces::handle_joined(Member& member, bool as_standby) {
  waiting_.erase(member.id);
  if (const auto command = commanded_.find(member.id); command != commanded_.end()) as_standby = !command->second;
  const auto own = taken_by_.extract(member.id);
  if (!as_standby) {
    member.standby = false;
    if (own.empty() || own.mapped() == kNobody) return nullptr;
    Member* stand_in = members_.find(own.mapped());
    if (stand_in == nullptr || !stand_in->connected()) return nullptr;
    stand_in->standby = true;
    waiting_.insert(stand_in->id);
    return stand_in;
  }
  const bool has_place = std::ranges::any_of(taken_by_, [&](const auto& p) { return p.second == member.id; });
  const auto empty = std::ranges::find(taken_by_, kNobody, [](const auto& p) { return p.second; });
  member.standby = !has_place && empty == taken_by_.end();
  if (member.standby) {
    waiting_.insert(member.id);
  } else if (!has_place) {
    empty->second = member.id;
  }
  return nullptr;
}

Member* StandbyPlaces::handle_lost(Member& member, bool served) {
  if (waiting_.erase(member.id) > 0 || is_provisioned_) return nullptr;
  const auto taken = std::ranges::find(taken_by_, member.id, [](const auto& p) { return p.second; });
  if (taken != taken_by_.end()) return fill(taken->first);
  return served ? fill(member.id) : nullptr;
}

Member* StandbyPlaces::fill(PeerId place) {
  taken_by_[place] = kNobody;
  if (waiting_.empty()) return nullptr;
  Member* stand_in = members_.find(*waiting_.begin());
  waiting_.erase(waiting_.begin());
  taken_by_[place] = stand_in->id;
  stand_in->standby = false;
  return stand_in;
}

bool StandbyPlaces::handle_command(Member& member, bool serves) {
  commanded_[member.id] = serves;
  // Neither does anybody step back for it now, nor does it for anybody.
  std::erase_if(taken_by_, [&](const auto& place) { return place.first == member.id || place.second == member.id; });
  const bool changes = member.standby == serves;
  member.standby = !serves;
  waiting_.erase(member.id);
  if (member.standby && member.connected()) waiting_.insert(member.id);
  return changes;
}

void StandbyPlaces::set_provisioned(bool provisioned) {
  is_provisioned_ = provisioned;
  taken_by_.clear();
}

void StandbyPlaces::forget_lost() {
  std::erase_if(commanded_, [&](const auto& command) { return members_.find(command.first) == nullptr; });
  std::erase_if(taken_by_, [&](const auto& place) { return members_.find(place.first) == nullptr; });
}

}  // namespace weightcast
