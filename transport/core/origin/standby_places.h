#pragma once

#include <map>
#include <set>

#include "transport/core/origin/membership.h"

namespace weightcast {

/// Decides which standby members serve in the place of lost ones. Pure. Called by the OriginCore that owns it.
///
///   what happens                                  what follows
///   a member is lost that served                  the first standby member takes its place, now or when one joins
///   a member is lost that had received nothing    nothing: a stranger that comes and goes costs no standby
///   a waiting standby member is lost              nothing
///   one that had taken a place is lost            the next takes that place
///   who was lost joins again                      who took its place steps back and waits
///   who was lost is forgotten                     who took its place keeps it for as long as it is connected
///
/// Invariant: Member::standby is set here alone; a place is taken by at most one member.
class StandbyPlaces {
 public:
  explicit StandbyPlaces(Membership& members) : members_(members) {}

  /// `member` has joined, as a standby one or to serve. Returns who steps back for it, or null.
  Member* handle_joined(Member& member, bool as_standby);
  /// `member` is not connected any more; `served`: it was active, and had received something of this origin's. Returns
  /// who serves from now on in its place, or null.
  Member* handle_lost(Member& member, bool served);
  /// Members that Membership does not know any more have no place.
  void forget_lost();

 private:
  Member* fill(PeerId place);

  Membership& members_;
  std::set<PeerId> waiting_;           // connected standby members
  std::map<PeerId, PeerId> taken_by_;  // the places of lost members; kNobody: it waits for a standby member
};

}  // namespace weightcast
