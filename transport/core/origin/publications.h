#pragma once

#include <optional>
#include <string>
#include <unordered_set>
#include <vector>

#include "transport/core/edge/parent_fault.h"
#include "transport/core/edge/uploads.h"
#include "transport/core/origin/history/broadcast_times.h"
#include "transport/core/origin/history/publication_history.h"
#include "transport/core/origin/members/forecast_watch.h"
#include "transport/core/origin/origin_payloads.h"
#include "transport/core/origin/payload_assigner.h"
#include "transport/core/origin/publication_plans.h"
#include "transport/core/origin/relays/fault_attribution.h"

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

/// All that an origin publishes: new versions, what becomes of them, and what members say of it. Pure. Called by the
/// OriginCore that owns it, which knows of connections.
///
/// Several payloads may be under way, of one version and of several: each has a plan of its own, over the members that
/// need it or have it. The PayloadAssigner decides who gets which, PublicationPlans keeps the plans fitted, and
/// FaultAttribution judges the relays. While the latest version is taken over, nothing is forgotten, because that
/// version may still be withdrawn. Invariant: versions only grow, except after a withdrawal.
class Publications {
 public:
  Publications(const OriginConfig& config, Membership& members, Holdings& holdings, Uploads& uploads,
               ActionQueue& actions, RateProbes& rates, FaultAttribution& faults);

  /// See OriginCore.
  void restore(std::shared_ptr<const Manifest> manifest, const std::vector<ContentDigest>& chunk_digests);
  void restore_patch(std::shared_ptr<const Manifest> manifest, const std::vector<ContentDigest>& chunk_digests) {
    payloads_.restore_patch(std::move(manifest), chunk_digests);
  }
  /// Whether `version` may be published: greater than any that this origin has published, whatever workers have from
  /// other runs. Errors: kAlreadyExists, kInvalidArgument (0).
  [[nodiscard]] Status check_version(Version version) const;
  void handle_publish_begun(Instant now, std::shared_ptr<const Manifest> manifest, double packed_share);
  void handle_publish_grown(Instant now, const MadePayload& grown);
  void handle_publish(Instant now, Instant started_at, const MadePayload& made);
  /// `why`: in a few words.
  void handle_publish_failed(Instant now, Version version, std::string_view why);
  /// The origin's copy of a payload is damaged: nobody is offered it any more. If it was a version's full payload, held
  /// or not, that version is withdrawn, and its number stays used.
  void handle_damaged(Instant now, PayloadId payload);
  void handle_payload_begun(Instant now, std::shared_ptr<const Manifest> manifest);
  void handle_payload_grown(Instant now, const MadePayload& grown);
  /// Errors: why there is none, if it was asked for.
  Status handle_payload_made(Instant now, PayloadId payload, const Result<MadePayload>& made);

  /// A member's connection was made, or made anew. The member can serve `held`.
  void handle_joined(Instant now, Member& member, const std::vector<PayloadId>& held);
  /// The same of a member whose versions are of another run: it is told to begin this one, as soon as this has a
  /// version.
  void handle_joined_of_other_run(Instant now, const Member& member);
  /// A standby member is to serve from now on.
  void handle_activated(Instant now, Member& member) { assigner_.assign(now, {&member}); }
  /// A member's connection is gone.
  void handle_lost(Instant now, Member& member);
  /// A member does not serve any more. It gets what it is in the middle of to its end, and nothing after that.
  void handle_released(Instant now, Member& member);
  /// Who can be a relay has changed.
  void repair_all(Instant now) { plans_.unsettle_all(now); }

  /// Whether the origin serves that payload to `member`: it has told the member of it, on the member's connection of
  /// now.
  [[nodiscard]] bool has_place(const Member& member, PayloadId payload) const {
    const Publication* publication = plans_.find(payload);
    return member.connected() && publication != nullptr && publication->has_told(member.id);
  }

  /// When the plans are to be repaired.
  [[nodiscard]] std::optional<Instant> poll_deadline() const { return plans_.settle_due(); }
  void handle_timeout(Instant now);

  /// Plans were repaired so many times.
  [[nodiscard]] std::uint64_t repair_count() const { return plans_.repair_count(); }
  /// All members that some plan has.
  [[nodiscard]] std::unordered_set<PeerId> planned() const { return plans_.planned(); }
  /// `member` says that it receives this payload now.
  void handle_receiving(Instant now, Member& member, PayloadId payload);
  /// A heartbeat of `member`: what it lacks of what it receives, by stripe of the plan.
  void handle_progress(Instant now, const Member& member, std::vector<std::uint32_t> stripes_missing);
  void handle_installed(Instant now, Member& member, const wire::Installed& installed);
  /// A heartbeat of `member`: an engine there has taken `version`, so long after the switch. What is no time is passed
  /// over.
  void handle_taken(const Member& member, Version version, double after_s);
  void handle_install_failed(Instant now, Member& member, const wire::InstallFailed& failed);
  void handle_parent_fault(Instant now, Member& member, const ParentFault& fault);

  /// Which links are in use: all, while something is being made or members that count lack the latest version. Once the
  /// origin has sent next to nothing for long, only those of the stragglers, who may be lying.
  [[nodiscard]] RateProbes::Traffic traffic(Instant now) const;
  /// The version of the last publication, also while it is taken over.
  [[nodiscard]] Version latest() const { return payloads_.latest(); }
  /// All versions, each with the manifest that it was published by.
  [[nodiscard]] const std::map<Version, std::shared_ptr<const Manifest>>& versions() const {
    return payloads_.versions();
  }
  /// The greatest number that a whole version ever had, withdrawn ones included.
  [[nodiscard]] Version last_used() const { return payloads_.last_used(); }
  [[nodiscard]] std::optional<PublicationProgress> progress(Version version) const;
  /// The last publications, as they stand.
  [[nodiscard]] const PublicationHistory& history();
  /// How most members get the latest version, for status; null if nobody does.
  [[nodiscard]] const Plan* latest_plan() const;
  /// What make_plan() says of a payload of this size for the members of now.
  [[nodiscard]] Plan plan_for(Instant now, std::uint64_t payload_bytes) const;
  /// How many publications have ended. Standings change only then.
  [[nodiscard]] std::uint64_t ended_count() const { return ended_count_; }

 private:
  /// Counts who has installed what, forgets what nobody needs any more, repairs plans.
  void settle(Instant now);
  /// Members whose version is from another run take part again, if this origin's new version is greater than theirs, or
  /// the same by its digest. An open full payload has no digest yet.
  void adopt_foreign(const Manifest& manifest);
  /// Tells a member of another run to begin this one.
  void invite(const Member& member);
  /// What was begun of a version comes to nothing.
  void abandon_version(Instant now, Version version, std::string_view why);
  /// A payload that was begun has grown; one that has not grown as it was announced is withdrawn.
  void handle_grown(Instant now, const MadePayload& grown);
  /// Tells everyone who was told of the payload that it has grown; nobody, if nobody was.
  void tell(PayloadId payload, const std::optional<wire::Message>& growth);
  /// A payload was made. Errors: why there is none.
  Status hold_made(PayloadId payload, const Result<MadePayload>& made);
  /// Takes a payload back from everybody who was told of it.
  void withdraw(PayloadId payload, std::string_view why);
  /// The same for the full payload, and the version is none any more.
  void withdraw_version(Version version, std::string_view why);
  /// Nobody asks about its plan any more. To be called before it is held no more.
  void end_publication(PayloadId payload);
  /// A member has received a payload: what does that say of the links on the way?
  void note_received(Instant now, const Publication& publication, Member& member, const InstallPhases& phases);
  /// These edges missed what the plan expected.
  void note_misses(PayloadId payload, const std::vector<ForecastWatch::Miss>& misses);
  [[nodiscard]] std::string name_of(PeerId node) const;
  /// These publications have ended. Standing changes now, and only now.
  void judge(Instant now, const std::vector<Version>& ended);
  /// `times`: of that version, as far as they are known.
  [[nodiscard]] PublicationProgress progress(Version version, const BroadcastTimes::Times& times) const;
  /// Brings the record of a publication that is under way up to date: times, counts, bytes, and who is behind.
  void refresh(PublicationRecord& record);
  /// A publication has ended: the history has that from now on, and the log a line. `why` it was given up.
  void end_record(Instant now, Version version, PublicationRecord::End end, std::string_view why = {});
  /// Whether a member still waits for more of it.
  [[nodiscard]] bool in_use(PayloadId payload) const;
  void forget_old_versions();

  const OriginConfig& config_;
  Membership& members_;
  OriginPayloads payloads_;
  Uploads& uploads_;
  ActionQueue& actions_;
  FaultAttribution& faults_;
  PublicationHistory history_;
  PublicationContext context_;
  BroadcastTimes times_;
  PublicationPlans plans_;
  PayloadAssigner assigner_;
  ForecastWatch forecasts_;
  Instant begun_at_{};      // the latest version, or what was made of it last
  bool count_all_ = false;  // who has installed what is to be counted anew
  std::uint64_t ended_count_ = 0;
};

}  // namespace weightcast
