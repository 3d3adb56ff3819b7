#pragma once

#include <map>
#include <set>

#include "transport/core/origin/members/membership.h"

namespace weightcast {

/// Decides which standby members serve: in the place of lost ones, or by command. Pure. Called by the OriginCore that
/// owns it.
///
///   what happens                                  what follows
///   a serving member is lost                      the first standby member takes its place, now or when one joins
///   a member that received nothing is lost        nothing: a stranger that comes and goes costs no standby member
///   a waiting standby member is lost              nothing
///   a stand-in is lost                            the next standby member takes that place
///   the lost member joins again                   its stand-in steps back and waits
///   the lost member is forgotten                  its stand-in keeps the place while it is connected
///   a command names a member                      it serves, or waits, also when it joins again
///   somebody else provisions                      none of the above but commands: all stay as they are
///
/// Invariant: Member::standby is set here alone; a place is taken by at most one member.
class StandbyPlaces {
 public:
  explicit StandbyPlaces(Membership& members) : members_(members) {}

  /// `member` has joined, as a standby member or to serve. Returns the stand-in that steps back for it, or null.
  Member* handle_joined(Member& member, bool as_standby);
  /// `member` is not connected any more. `served`: it was active, and had received something of this origin's. Returns
  /// the standby member that serves in its place from now on, or null.
  Member* handle_lost(Member& member, bool served);
  /// `member` serves from now on, or waits as if it had joined on standby, whatever it joins as. True if that is
  /// another state than before.
  bool handle_command(Member& member, bool serves);
  /// From now on somebody else decides by commands who serves, or does so no more. Places of before count no more.
  void set_provisioned(bool provisioned);
  /// Members that Membership does not know any more have no place.
  void forget_lost();

 private:
  Member* fill(PeerId place);

  Membership& members_;
  std::set<PeerId> waiting_;           // connected standby members
  std::map<PeerId, PeerId> taken_by_;  // the places of lost members; kNobody: it waits for a standby member
  std::map<PeerId, bool> commanded_;   // to serve, or to wait
  bool is_provisioned_ = false;
};

}  // namespace weightcast
