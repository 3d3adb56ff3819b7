#pragma once

#include <map>
#include <optional>
#include <set>
#include <string>
#include <unordered_set>
#include <vector>

#include "transport/core/edge/uploads.h"
#include "transport/core/origin/broadcast_times.h"
#include "transport/core/origin/fault_attribution.h"
#include "transport/core/origin/origin_payloads.h"
#include "transport/core/origin/publication.h"

namespace weightcast {

/// How far one publication has come. Times count from its start; absent until reached.
struct PublicationProgress {
  Version version{};
  bool undecided = false;                 ///< a patch is being made: it is not known yet what will travel
  PayloadKind kind = PayloadKind::kFull;  ///< of what most workers get
  std::uint64_t payload_bytes = 0;        ///< of that
  std::uint32_t active = 0;               ///< workers that count: connected, not standby
  std::uint32_t installed = 0;            ///< of those
  std::optional<Duration> t50, t90, t100;
  Topology topology = Topology::kStar;
  Duration predicted{};
  std::vector<std::string> missing;  ///< names of active workers that have not installed it, at most 8

  [[nodiscard]] bool reached(double fraction) const {
    return active > 0 && double(installed) >= fraction * double(active) - 1e-9;
  }
};

/// All that an origin publishes: who gets which payload, who has installed what, and what that says of the relays.
/// Pure. Called by the OriginCore that owns it, which knows of connections.
///
/// Several payloads may be under way, of one version and of several: each has a plan of its own, over the members that
/// need it or have it. What changes plans is only noted; settle() then fits each of them once, however many members
/// were lost or joined. Who is behind gets what choose_payload() says; patches and packed payloads are made when
/// somebody needs them, once. The latest version may still be taken over: then its full payload is open, and goes to
/// those who need it whole, unless it is to be packed; to who will take a patch the one before is the latest. Nothing
/// is forgotten before the end, as it may come to nothing. Invariants: versions only grow, but for one that came to
/// nothing; every active member that lacks the latest version has an assignment that leads towards it, or waits for a
/// patch or packed payload that is being made or will be.
class Publications {
 public:
  Publications(const OriginConfig& config, Membership& members, Holdings& holdings, Uploads& uploads,
               ActionQueue& actions);

  /// See OriginCore.
  void restore(std::shared_ptr<const Manifest> manifest, const std::vector<Digest>& chunk_digests);
  [[nodiscard]] Status check_version(Version version) const;
  void handle_publish_begun(Instant now, std::shared_ptr<const Manifest> manifest, bool packable);
  void handle_publish_grown(const MadePayload& grown);
  void handle_publish(Instant now, Instant started_at, const MadePayload& made);
  void handle_publish_failed(Instant now, Version version);
  /// What is held of it was found to be damaged: it is offered to nobody any more. A version of which this was the full
  /// payload is none any more, but its number stays used.
  void handle_damaged(Instant now, PayloadId payload);
  void handle_patch_begun(Instant now, std::shared_ptr<const Manifest> manifest);
  void handle_patch_grown(const MadePayload& grown);
  void handle_patch_made(Instant now, PayloadId payload, const Result<MadePayload>& made);

  /// A member's connection was made, or made anew; it has what it told, and `held` besides.
  void handle_joined(Instant now, Member& member, const std::vector<PayloadId>& held);
  /// A standby member is to serve from now on.
  void handle_activated(Instant now, Member& member) { assign(now, {&member}); }
  /// A member's connection is gone, or it serves no longer.
  void handle_lost(Instant now, Member& member);
  /// Who can be a relay has changed.
  void repair_all(Instant now);

  /// When what has changed is to be settled: at once, or so long after the last time that a fleet which is in motion
  /// leaves the loop time for other things.
  [[nodiscard]] std::optional<Instant> poll_deadline() const { return settle_due_; }
  void handle_timeout(Instant now);

  /// Plans were repaired so many times.
  [[nodiscard]] std::uint64_t repair_count() const { return repair_count_; }
  /// All members that some plan has.
  [[nodiscard]] std::unordered_set<PeerId> planned() const;
  /// By its own word `member` is in the middle of this payload, and not of that which it told before.
  void handle_receiving(Instant now, Member& member, PayloadId payload);
  void handle_installed(Instant now, Member& member, const wire::Installed& installed);
  void handle_install_failed(Instant now, Member& member, const wire::InstallFailed& failed);
  void handle_parent_fault(Instant now, Member& member, const wire::ParentFault& fault);

  [[nodiscard]] Version latest() const { return payloads_.latest(); }
  /// The greatest number that a whole version ever had, withdrawn ones included.
  [[nodiscard]] Version last_used() const { return payloads_.last_used(); }
  [[nodiscard]] std::optional<PublicationProgress> progress(Version version) const;
  /// How most members get the latest version; null if nobody does.
  [[nodiscard]] const Plan* latest_plan() const;
  [[nodiscard]] Plan plan_for(Instant now, std::uint64_t payload_bytes) const;
  /// How many have ended: only then standings change.
  [[nodiscard]] std::uint64_t ended_count() const { return ended_count_; }

 private:
  /// Gives each of these what it needs to come to the latest version, or has it made.
  void assign(Instant now, const std::vector<Member*>& members);
  void assign_all(Instant now);
  /// How `member` comes to the payload's version if it takes this payload.
  [[nodiscard]] CatchUpPath catch_up_path_of(PayloadId payload, const Member& member) const;
  /// The payload's plan is to have `takers`, who are to be told of it.
  void take_in(Instant now, PayloadId payload, const std::vector<Member*>& takers);
  /// The plan of that payload is to be repaired.
  void unsettle(Instant now, PayloadId payload);
  void note_settling(Instant now);
  /// Repairs plans, counts who has installed what, forgets what nobody needs any more.
  void settle(Instant now);
  /// This origin has a new version, which may be greater than what members have from other runs, or the same by its
  /// digest. An open payload has none yet.
  void adopt_foreign(const Manifest& manifest);
  /// The publication of a payload that is held; made if there is none.
  Publication& publication_of(PayloadId payload);
  [[nodiscard]] Publication* find(PayloadId payload);
  /// The one of that version that most members get.
  [[nodiscard]] const Publication* main_publication(Version version) const;
  /// Whether the latest version would arrive sooner if it was packed, as far as rates tell.
  [[nodiscard]] bool packing_pays(Instant now) const;
  /// A payload that was begun has grown, or has come to its end: tells everyone who was told of it.
  void handle_grown(const MadePayload& grown, const std::optional<wire::Message>& growth);
  /// Nobody gets any more of a payload that was begun.
  void withdraw(PayloadId payload, std::string_view why);
  /// What brings `member` to `version`, which is held and newer than what it has.
  [[nodiscard]] CatchUp catch_up_to(Version version, const Member& member,
                                    const std::function<bool(PayloadId)>& can_make) const;
  /// Tells a member about the payload that it is in the middle of: a plan for it, or word that there is none. What the
  /// member is assigned remains the last that was announced to it.
  void resume_receiving(Instant now, Member& member);
  /// The plans of older versions' payloads that some have gone past are to be repaired.
  void unsettle_outdated();
  /// These publications have ended. Standing changes now, and only now.
  void judge(const std::vector<Version>& ended);
  /// Whether a member still waits for more of it.
  [[nodiscard]] bool in_use(PayloadId payload) const;
  void forget_old_versions();

  const OriginConfig& config_;
  Membership& members_;
  OriginPayloads payloads_;
  Uploads& uploads_;
  ActionQueue& actions_;
  FaultAttribution faults_;
  PublicationContext context_;
  BroadcastTimes times_;
  std::map<PayloadId, Publication> publications_;
  std::set<PayloadId> unsettled_;  // whose plans are to be repaired
  bool count_all_ = false;         // who has installed what is to be counted anew
  std::optional<Instant> settle_due_;
  std::optional<Instant> settled_at_;
  std::uint64_t repair_count_ = 0;
  std::uint64_t ended_count_ = 0;
};

}  // namespace weightcast
