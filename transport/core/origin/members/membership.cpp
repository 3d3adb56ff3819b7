#include "transport/core/origin/members/membership.h"

#include <algorithm>

namespace weightcast {

MemberState Member::state(Version latest) const {
  if (!connected()) return MemberState::kLost;
  if (standby) return MemberState::kStandby;
  if (foreign || other_run != kNoRun) return MemberState::kForeign;
  if (failed != kNoVersion && failed == latest) return MemberState::kFailed;
  if (is_receiving()) return MemberState::kReceiving;
  return installed >= latest ? MemberState::kIdle : MemberState::kStale;
}

Member& Membership::by_name(const std::string& name) {
  const auto [known, added] = ids_.try_emplace(name, PeerId{last_id_ + 1});
  if (added) {
    ++last_id_;
    Member& member = members_[known->second];
    member.id = known->second;
    member.name = name;
  }
  return members_.at(known->second);
}

std::optional<PeerId> Membership::id_of(const std::string& name) const {
  const auto found = ids_.find(name);
  return found == ids_.end() ? std::nullopt : std::optional(found->second);
}

Member* Membership::find(PeerId id) {
  const auto found = members_.find(id);
  return found == members_.end() ? nullptr : &found->second;
}

const Member* Membership::find(PeerId id) const {
  const auto found = members_.find(id);
  return found == members_.end() ? nullptr : &found->second;
}

Member* Membership::by_conn(ConnId conn) {
  const auto found = conns_.find(conn);
  return found == conns_.end() ? nullptr : find(found->second);
}

const Member* Membership::by_conn(ConnId conn) const {
  const auto found = conns_.find(conn);
  return found == conns_.end() ? nullptr : find(found->second);
}

void Membership::connect(Member& member, ConnId conn) {
  disconnect(member);
  member.conn = conn;
  conns_[conn] = member.id;
}

void Membership::disconnect(Member& member) {
  conns_.erase(member.conn);  // none of the number zero: those who are not connected have it
  member.conn = ConnId{};
}

void Membership::erase(PeerId id) {
  ids_.erase(members_.at(id).name);
  members_.erase(id);
}

std::uint32_t Membership::active_count() const {
  return static_cast<std::uint32_t>(std::ranges::count_if(members_, [](const auto& m) { return m.second.active(); }));
}

}  // namespace weightcast
