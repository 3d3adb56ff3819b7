#pragma once

#include <map>
#include <set>
#include <string_view>

#include "transport/core/action.h"
#include "transport/core/edge/links.h"
#include "transport/core/origin/membership.h"

namespace weightcast {

/// Finds out which members can be dialled, because only those can be relays. The origin dials each member once after it
/// joined, and has others try those that it cannot reach itself. Pure. Called by the OriginCore that owns it.
/// Invariant: Member::unreachable is set here alone.
class Reachability {
 public:
  Reachability(Membership& members, ConnIds& conn_ids, ActionQueue& actions)
      : members_(members), conn_ids_(conn_ids), actions_(actions) {}

  /// `member` has joined. It counts as reachable, is dialled unless it is `leaf_only`, and is asked to try unreachable
  /// members.
  void handle_joined(Member& member);
  void handle_connected(ConnId conn);
  /// Whether `conn` was a probe.
  [[nodiscard]] bool is_probe(ConnId conn) const { return probes_.contains(conn); }
  /// A probe failed. Returns whether a member is unreachable now, so that plans have to be repaired.
  [[nodiscard]] bool handle_closed(ConnId conn, std::string_view why);
  /// A member has tried another one. Returns whether a member that was unreachable is reachable now.
  [[nodiscard]] bool handle_probed(const wire::Probed& probed);
  /// Keeps nothing of members that are not connected.
  void forget_lost();

 private:
  void ask_to_probe(const Member& prober, const Member& member);

  Membership& members_;
  ConnIds& conn_ids_;
  ActionQueue& actions_;
  std::map<ConnId, PeerId> probes_;  // dialled to see whether the member can be
  std::set<PeerId> unreachable_;     // whose Member::unreachable is set; some may be lost by now
};

}  // namespace weightcast
