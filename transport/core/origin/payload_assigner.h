#pragma once

#include <functional>
#include <map>
#include <vector>

#include "transport/core/origin/history/broadcast_times.h"
#include "transport/core/origin/members/membership.h"
#include "transport/core/origin/origin_payloads.h"
#include "transport/core/origin/packing_decision.h"
#include "transport/core/origin/publication_plans.h"

namespace weightcast {

/// Decides who gets which payload. Who is behind gets what choose_payload() says; payloads that are not held are made
/// when somebody needs them, once. While the latest version is taken over, its full payload is open and goes to those
/// who need it whole, unless it is to be packed; for who will take a patch the version before is the latest. Pure.
/// Owned by a Publications.
/// Invariant: every active member that lacks the latest version has an assignment that leads towards it, or waits for a
/// payload that is being made or will be. It waits for the next version alone if the full payload of this one could not
/// be made.
class PayloadAssigner {
 public:
  /// All outlive it.
  PayloadAssigner(PublicationContext& context, OriginPayloads& payloads, PublicationPlans& plans, BroadcastTimes& times)
      : context_(context),
        payloads_(payloads),
        plans_(plans),
        times_(times),
        speeds_(context.config.pack_bytes_per_s) {}

  /// A payload is whole: what it took tells how fast this origin is.
  void handle_made(const MadePayload& made) { speeds_.handle_made(made); }

  /// Gives each of these what it needs to come to the latest version, or has it made.
  void assign(Instant now, const std::vector<Member*>& members);
  void assign_all(Instant now);
  /// Tells a member about the payload that it is in the middle of: a plan for it, or word that there is none. What the
  /// member is assigned remains the last that was announced to it.
  void resume_receiving(Instant now, Member& member);

 private:
  /// The payload's plan is to have `takers`, who are to be told of it.
  void take_in(Instant now, PayloadId payload, const std::vector<Member*>& takers);
  /// What brings `member` to `version`, which is held and newer than what it has.
  [[nodiscard]] CatchUp catch_up_to(Version version, const Member& member,
                                    const std::function<bool(PayloadId)>& can_make) const;
  /// How `member` comes to the payload's version if it takes this payload.
  [[nodiscard]] CatchUpPath catch_up_path_of(PayloadId payload, const Member& member) const;
  /// Whether the latest version would arrive sooner if it was packed, as far as rates and measured speeds tell.
  [[nodiscard]] bool packing_pays(Instant now) const;

  PublicationContext& context_;
  OriginPayloads& payloads_;
  PublicationPlans& plans_;
  BroadcastTimes& times_;
  PackingSpeeds speeds_;
};

}  // namespace weightcast
