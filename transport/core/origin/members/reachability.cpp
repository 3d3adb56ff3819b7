#include "transport/core/origin/members/reachability.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <string>
#include <vector>

#include "base/settings/endpoint.h"
#include "base/text.h"
#include "proto/limits.h"
#include "transport/core/deadline.h"
#include "transport/core/dial_reason.h"

namespace weightcast {
namespace {

// A worker answers when the dial has failed or has taken long; later than this the answer is lost.
constexpr Duration kAnswerWithin = std::chrono::seconds(15);
// How many of those whom others cannot dial a new worker is asked to try.
constexpr std::size_t kAskedOfNewcomer = 16;
constexpr std::size_t kWhyBytesMax = 200;
// Of those who cannot dial a member.
constexpr std::size_t kNamedMax = 2;

std::string address_of(const Member& member) { return Endpoint{member.host, member.port}.to_string(); }

std::size_t count_of(const std::map<PeerId, std::set<PeerId>>& sets, PeerId id) {
  const auto found = sets.find(id);
  return found == sets.end() ? 0 : found->second.size();
}

void erase_of(std::map<PeerId, std::set<PeerId>>& sets, PeerId key, PeerId value) {
  const auto found = sets.find(key);
  if (found == sets.end()) return;
  found->second.erase(value);
  if (found->second.empty()) sets.erase(found);
}

}  // namespace

void Reachability::handle_joined(Instant now, Member& member) {
  member.unreachable = false;
  member.cannot_dial.clear();
  told_.erase(member.id);
  forget_seen(member.id);
  // What was dialled before was where it has been.
  std::erase_if(probes_, [&](const auto& probe) {
    if (probe.second != member.id) return false;
    actions_.push(action::Close{probe.first});
    return true;
  });
  if (!member.leaf_only) {
    const ConnId conn = conn_ids_.next();
    probes_[conn] = member.id;
    actions_.push(action::Connect{conn, member.host, member.port});
  }
  // It may be elsewhere by now, or what was in between may be mended.
  for (auto& [target, unreached] : member.cannot_reach) set_retry({member.id, target}, unreached, now);
  if (const auto diallers = not_reached_by_.find(member.id); diallers != not_reached_by_.end()) {
    for (const PeerId id : diallers->second) {
      set_retry({id, member.id}, members_.find(id)->cannot_reach.at(member.id), now);
    }
  }
  std::size_t asked = 0;
  for (const auto& [id, other] : members_.all()) {
    const bool is_doubtful = other.unreachable || count_of(not_reached_by_, id) > 1;
    if (!is_doubtful || member.cannot_reach.contains(id)) continue;
    if (asked_.size() >= kAskedMax || ++asked > kAskedOfNewcomer) break;
    ask(now, member, other);
  }
  ask_on(now);
}

void Reachability::handle_connected(ConnId conn) {
  if (probes_.erase(conn) > 0) actions_.push(action::Close{conn});
}

bool Reachability::handle_closed(Instant now, ConnId conn, std::string_view why) {
  const auto probe = probes_.extract(conn);
  Member* member = members_.find(probe.mapped());
  if (member == nullptr || !member->connected()) return false;
  member->unreachable = true;
  member->cannot_dial = printable(cut_text(dial_reason(why, address_of(*member)), kWhyBytesMax));
  actions_.push(action::caused_by(
      member->name, action::warning(fmt::format("cannot reach worker {} at {}: {}; unless others can, it receives and "
                                                "does not forward",
                                                member->name, address_of(*member), member->cannot_dial))));
  examine(member->id, false);
  ask_on(now);
  return true;
}

bool Reachability::handle_probed(Instant now, Member& dialler, const wire::Probed& probed) {
  Member* target = members_.find(PeerId{probed.peer_id()});
  const bool was_asked = asked_.erase({dialler.id, PeerId{probed.peer_id()}}) > 0;
  bool changed = false;
  if (target != nullptr && target->id != dialler.id) {
    const wire::Address& at = probed.address();
    // An older release does not say.
    const bool moved = probed.has_address() && (at.host() != target->host || at.port() != target->port);
    if (moved) {
      // What it tried was another address than the one of now.
    } else if (probed.reached()) {
      changed = handle_reached(now, dialler, *target);
    } else {
      std::string why = printable(cut_text(probed.reason(), kWhyBytesMax));
      changed = handle_unreached(now, dialler, *target, why.empty() ? "no connection" : std::move(why), was_asked);
    }
  }
  ask_on(now);
  return changed;
}

bool Reachability::handle_unreached(Instant now, Member& dialler, Member& target, std::string why, bool was_asked) {
  auto known = dialler.cannot_reach.find(target.id);
  const bool is_new = known == dialler.cannot_reach.end();
  if (is_new && dialler.cannot_reach.size() >= kUnreachedMax) return false;
  if (is_new || known->second.why != why) {
    actions_.push(action::warning(
        fmt::format("worker {} cannot reach {} at {}: {}", dialler.name, target.name, address_of(target), why)));
  }
  const Pair pair{dialler.id, target.id};
  if (!is_new) {
    known->second.why = std::move(why);
    if (was_asked) retry_later(now, pair, known->second);
    return false;
  }
  known = dialler.cannot_reach.emplace(target.id, UnreachedPeer{std::move(why), {}, {}, now}).first;
  retry_later(now, pair, known->second);
  not_reached_by_[target.id].insert(dialler.id);
  erase_of(reached_by_, target.id, dialler.id);
  erase_of(reaches_, dialler.id, target.id);
  examine(target.id, false);
  if (reached_by_.contains(target.id)) examine(dialler.id, true);
  dialler.reaches_nobody = !reaches_.contains(dialler.id) && contested(dialler) >= kTellingDials;
  return true;
}

bool Reachability::handle_reached(Instant now, Member& dialler, Member& target) {
  bool changed = dialler.reaches_nobody;
  dialler.reaches_nobody = false;
  reached_by_[target.id].insert(dialler.id);
  reaches_[dialler.id].insert(target.id);
  if (const auto known = dialler.cannot_reach.find(target.id); known != dialler.cannot_reach.end()) {
    set_retry({dialler.id, target.id}, known->second, std::nullopt);
    dialler.cannot_reach.erase(known);
    erase_of(not_reached_by_, target.id, dialler.id);
    actions_.push(action::info(fmt::format("worker {} reaches {} again", dialler.name, target.name)));
    // What was in the way may be gone for all.
    if (const auto others = not_reached_by_.find(target.id); others != not_reached_by_.end()) {
      for (const PeerId id : others->second) {
        UnreachedPeer& unreached = members_.find(id)->cannot_reach.at(target.id);
        // A dialler who says so again and again makes nobody dial more often.
        set_retry({id, target.id}, unreached, std::max(now, unreached.tried_at + kRetryMin));
      }
    }
  }
  if (const auto others = not_reached_by_.find(target.id); others != not_reached_by_.end()) {
    for (const PeerId id : others->second) examine(id, true);
  }
  if (target.unreachable) {
    target.unreachable = false;
    changed = true;
    actions_.push(action::info(fmt::format("worker {} can be dialled by others, though not from here", target.name)));
  }
  return changed;
}

void Reachability::examine(PeerId member, bool dials) {
  if (examined_.insert({member, dials}).second) examinations_.push_back({member, dials, PeerId{}});
}

std::size_t Reachability::contested(const Member& dialler) const {
  return std::size_t(std::ranges::count_if(
      dialler.cannot_reach, [&](const auto& unreached) { return reached_by_.contains(unreached.first); }));
}

bool Reachability::is_examined_enough(const Examination& examination, const Member& member) const {
  if (!member.connected()) return true;
  if (!examination.dials) {
    return count_of(reached_by_, member.id) >= kTellingDials && count_of(not_reached_by_, member.id) <= 1;
  }
  return member.reaches_nobody || member.cannot_reach.size() >= kUnreachedMax ||
         (count_of(reaches_, member.id) >= kTellingDials && contested(member) <= 1);
}

void Reachability::go_on_examining(Instant now) {
  Examination& examination = examinations_.front();
  const Member* member = members_.find(examination.member);
  const auto other = members_.all().lower_bound(examination.next);
  if (member == nullptr || other == members_.all().end() || is_examined_enough(examination, *member)) {
    examinations_.pop_front();
    return;
  }
  examination.next = PeerId{other->first.value + 1};
  const Member& dialler = examination.dials ? *member : other->second;
  const Member& target = examination.dials ? other->second : *member;
  const auto reached = reaches_.find(dialler.id);
  const bool is_known =
      dialler.cannot_reach.contains(target.id) || (reached != reaches_.end() && reached->second.contains(target.id));
  if (!is_known) ask(now, dialler, target);
}

void Reachability::ask_on(Instant now) {
  while (asked_.size() < kAskedMax) {
    if (!retries_.empty() && retries_.begin()->first <= now) {
      const Pair pair = retries_.begin()->second;
      Member& dialler = *members_.find(pair.first);
      set_retry(pair, dialler.cannot_reach.at(pair.second), std::nullopt);
      if (const Member* target = members_.find(pair.second)) ask(now, dialler, *target);
    } else if (!examinations_.empty()) {
      go_on_examining(now);
    } else {
      return;
    }
  }
}

// One that is not connected is tried when it joins.
void Reachability::ask(Instant now, const Member& dialler, const Member& target) {
  if (&dialler == &target || !dialler.connected() || !target.connected() || target.leaf_only) return;
  asked_[{dialler.id, target.id}] = now + kAnswerWithin;
  wire::Message message;
  message.mutable_probe()->set_peer_id(target.id.value);
  message.mutable_probe()->set_name(target.name);
  message.mutable_probe()->mutable_address()->set_host(target.host);
  message.mutable_probe()->mutable_address()->set_port(target.port);
  actions_.push(action::Send{dialler.conn, std::move(message)});
}

void Reachability::set_retry(const Pair& pair, UnreachedPeer& unreached, std::optional<Instant> at) {
  if (unreached.retry_at) retries_.erase({*unreached.retry_at, pair});
  unreached.retry_at = at;
  if (at) retries_.insert({*at, pair});
}

void Reachability::retry_later(Instant now, const Pair& pair, UnreachedPeer& unreached) {
  unreached.tried_at = now;
  unreached.pause = std::clamp(2 * unreached.pause, kRetryMin, kRetryMax);
  set_retry(pair, unreached, now + unreached.pause);
}

void Reachability::handle_timeout(Instant now) {
  for (auto asked = asked_.begin(); asked != asked_.end();) {
    if (now < asked->second) {
      ++asked;
      continue;
    }
    Member* dialler = members_.find(asked->first.first);
    const auto unreached = dialler == nullptr ? std::map<PeerId, UnreachedPeer>::iterator()
                                              : dialler->cannot_reach.find(asked->first.second);
    if (dialler != nullptr && unreached != dialler->cannot_reach.end()) {
      retry_later(now, asked->first, unreached->second);
    }
    asked = asked_.erase(asked);
  }
  ask_on(now);
}

void Reachability::tell(const Member& member) {
  std::string who = undialled(member);
  std::string& told = told_[member.id];
  if (who == told) return;
  told = std::move(who);
  wire::Message message;
  message.mutable_probed()->set_peer_id(member.id.value);
  message.mutable_probed()->set_reached(told.empty());
  message.mutable_probed()->set_reason(std::string(cut_text(told, kReasonBytesMax)));
  actions_.push(action::Send{member.conn, std::move(message)});
}

std::string Reachability::undialled(const Member& target) const {
  std::vector<std::string> who;
  std::string why;
  if (target.unreachable && !target.cannot_dial.empty()) {
    who.emplace_back("the origin");
    why = target.cannot_dial;
  }
  const auto others = not_reached_by_.find(target.id);
  for (const PeerId id : others == not_reached_by_.end() ? std::set<PeerId>() : others->second) {
    const Member* dialler = members_.find(id);
    if (dialler == nullptr) continue;
    who.push_back(dialler->name);
    if (why.empty()) why = dialler->cannot_reach.at(target.id).why;
  }
  if (who.empty()) return "";
  std::string names = fmt::format("{}", fmt::join(who.begin(), who.begin() + std::min(who.size(), kNamedMax), ", "));
  if (who.size() > kNamedMax) names += fmt::format(" and {} more", who.size() - kNamedMax);
  return fmt::format("{} cannot dial it at {}: {}", names, address_of(target), why);
}

std::optional<Instant> Reachability::poll_deadline() const {
  EarliestDeadline earliest;
  for (const auto& [pair, until] : asked_) earliest.consider(until);
  if (asked_.size() < kAskedMax && !retries_.empty()) earliest.consider(retries_.begin()->first);
  return earliest.first();
}

void Reachability::forget_seen(PeerId member) {
  examined_.erase({member, false});
  examined_.erase({member, true});
  std::erase_if(asked_, [&](const auto& a) { return a.first.first == member || a.first.second == member; });
  if (const auto by = reached_by_.extract(member); !by.empty()) {
    for (const PeerId id : by.mapped()) erase_of(reaches_, id, member);
  }
  if (const auto those = reaches_.extract(member); !those.empty()) {
    for (const PeerId id : those.mapped()) erase_of(reached_by_, id, member);
  }
}

void Reachability::forget_lost() {
  const auto is_known = [&](PeerId id) { return members_.find(id) != nullptr; };
  std::set<PeerId> gone;
  for (const auto* sets : {&reached_by_, &reaches_, &not_reached_by_}) {
    for (const auto& [id, _] : *sets) {
      if (!is_known(id)) gone.insert(id);
    }
  }
  for (const auto& [id, _] : examined_) {
    if (!is_known(id)) gone.insert(id);
  }
  std::erase_if(retries_, [&](const auto& retry) { return !is_known(retry.second.first); });
  for (auto& [target, diallers] : not_reached_by_) std::erase_if(diallers, [&](PeerId id) { return !is_known(id); });
  for (const PeerId id : gone) {
    forget_seen(id);
    const auto diallers = not_reached_by_.extract(id);
    if (diallers.empty()) continue;
    for (const PeerId dialler : diallers.mapped()) {
      auto& cannot_reach = members_.find(dialler)->cannot_reach;
      set_retry({dialler, id}, cannot_reach.at(id), std::nullopt);
      cannot_reach.erase(id);
    }
  }
  std::erase_if(not_reached_by_, [](const auto& entry) { return entry.second.empty(); });
  std::erase_if(told_, [&](const auto& told) { return !is_known(told.first); });
}

}  // namespace weightcast
