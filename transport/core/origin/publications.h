#pragma once

#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "transport/core/origin/catch_up.h"
#include "transport/core/origin/history/broadcast_times.h"
#include "transport/core/origin/packing_decision.h"
#include "transport/core/origin/publication.h"
#include "transport/core/origin/publication_context.h"

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

/// All that an origin publishes: the list of its publications, who gets which payload of which, and what members say of
/// them. Pure. Called by the OriginCore that owns it, which knows of connections.
///
/// Several payloads may be under way, of one version and of several: each has a plan of its own, over the members that
/// need it or have it. A member that is behind gets what choose_payload() says; a payload that is not held is made when
/// somebody needs it, once. While the latest version is taken over, its full payload is open and goes to those who need
/// it whole, unless it is to be packed; for who will take a patch the version before is the latest. While it is made by
/// changes, its patch is open, and goes to those who have the base. Meanwhile nothing
/// is forgotten, because that version may still be withdrawn.
///
/// Invariants: versions only grow, except after a withdrawal; the latest is one of the versions; every active member
/// that lacks it has an assignment that leads towards it, or waits for a payload that is being made or will be. The
/// origin tries again to make what its disk refused, after kMakeAgainAfter and then less and less often, up to every
/// kMakeAgainMax. A member waits for the next version alone if the full payload of this one cannot be made.
class Publications {
 public:
  static constexpr Duration kMakeAgainAfter = std::chrono::seconds(10);
  static constexpr Duration kMakeAgainMax = std::chrono::minutes(5);

  /// All outlive it. `holdings` is changed here alone.
  Publications(const OriginConfig& config, Membership& members, Holdings& holdings, Uploads& uploads,
               ActionQueue& actions, RateProbes& rates, FaultAttribution& faults)
      : context_{config, members, holdings, uploads, actions, rates, faults}, speeds_(config.pack_bytes_per_s) {}

  // ---- the list

  /// By version; also what is left of versions that the store has no more.
  [[nodiscard]] const std::map<Version, Publication>& all() const { return publications_; }
  /// Null if the store has no such version.
  [[nodiscard]] const Publication* find_version(Version version) const {
    const Publication* const publication = find(version);
    return publication != nullptr && publication->in_store() ? publication : nullptr;
  }
  /// The version of the last publication, also while it is taken over.
  [[nodiscard]] Version latest() const { return latest_; }
  /// The greatest number that a whole version ever had, withdrawn ones included.
  [[nodiscard]] Version last_used() const { return std::max(last_used_, latest_); }
  /// Whether `version` may be published: greater than any that this origin has published, whatever workers have from
  /// other runs. Errors: kAlreadyExists, kInvalidArgument (0).
  [[nodiscard]] Status check_version(Version version) const;
  [[nodiscard]] std::optional<PublicationProgress> progress(Version version) const;
  /// The last publications, as they stand.
  [[nodiscard]] const PublicationHistory& history();
  /// How most members get the latest version, for status; null if nobody does.
  [[nodiscard]] const Plan* latest_plan() const;
  /// What make_plan() says of a payload of this size for the members of now.
  [[nodiscard]] Plan plan_for(Instant now, std::uint64_t payload_bytes) const;
  /// All members that some plan has.
  [[nodiscard]] std::set<PeerId> planned() const;
  /// Plans were repaired so many times.
  [[nodiscard]] std::uint64_t repair_count() const { return context_.epoch.value; }
  /// How many publications have ended. Standings change only then.
  [[nodiscard]] std::uint64_t ended_count() const { return ended_count_; }
  /// Which links are in use: all, while something is being made or members that count lack the latest version. Once the
  /// origin has sent next to nothing for long, only those of the stragglers, who may be lying.
  [[nodiscard]] RateProbes::Traffic traffic(Instant now) const;
  /// Whether the origin serves that payload to `member`: it has told the member of it, on the member's connection of
  /// now.
  [[nodiscard]] bool has_place(const Member& member, PayloadId payload);

  // ---- versions and payloads: see OriginCore

  void restore(std::shared_ptr<const Manifest> manifest, const std::vector<ContentDigest>& chunk_digests);
  void restore_patch(std::shared_ptr<const Manifest> manifest, const std::vector<ContentDigest>& chunk_digests);
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

  // ---- members

  /// A member's connection was made, or made anew. The member can serve `held`.
  void handle_joined(Instant now, Member& member, const std::vector<PayloadId>& held);
  /// The same of a member whose versions are of another run: it is told to begin this one, as soon as this has a
  /// version.
  void handle_joined_of_other_run(Instant now, const Member& member);
  /// A standby member is to serve from now on.
  void handle_activated(Instant now, Member& member) { assign(now, {&member}); }
  /// A member's connection is gone.
  void handle_lost(Instant now, Member& member);
  /// A member does not serve any more. It gets what it is in the middle of to its end, and nothing after that.
  void handle_released(Instant now, Member& member);
  /// `member` says that it receives this payload now.
  void handle_receiving(Instant now, Member& member, PayloadId payload);
  /// A heartbeat of `member`: what it lacks of what it receives, by stripe of the plan.
  void handle_progress(Instant now, Member& member, std::vector<std::uint32_t> stripes_missing);
  void handle_installed(Instant now, Member& member, const wire::Installed& installed);
  /// A heartbeat of `member`: an engine there has taken `version`, so long after the switch. What is no time is passed
  /// over.
  void handle_taken(const Member& member, Version version, double after_s);
  void handle_install_failed(Instant now, Member& member, const wire::InstallFailed& failed);
  void handle_parent_fault(Instant now, Member& member, const ParentFault& fault);

  // ---- time

  /// Who can be a relay has changed: all plans are to be repaired.
  void repair_all(Instant now);
  /// When the plans are to be repaired.
  [[nodiscard]] std::optional<Instant> settle_due() const { return context_.settling.due(); }
  /// That, or when what could not be made is to be tried again.
  [[nodiscard]] std::optional<Instant> poll_deadline() const;
  void handle_timeout(Instant now);

 private:
  // ---- the list

  /// Made if there is none.
  Publication& at(Version version) { return publications_.try_emplace(version, context_, version).first->second; }
  /// Null if there is none.
  [[nodiscard]] const Publication* find(Version version) const {
    const auto found = publications_.find(version);
    return found == publications_.end() ? nullptr : &found->second;
  }
  /// Null if there is none.
  [[nodiscard]] PayloadPlan* find_plan(PayloadId payload) {
    const auto found = publications_.find(payload.version);
    return found == publications_.end() ? nullptr : found->second.find_plan(payload);
  }
  /// By which most members get that version; null if nobody does.
  [[nodiscard]] const PayloadPlan* main_plan(Version version) const {
    const Publication* const publication = find(version);
    return publication == nullptr ? nullptr : publication->main_plan();
  }
  /// Calls `take(plan)` in the order of payloads.
  template <typename Take>
  void for_each_plan(Take take) {
    for (auto& [version, publication] : publications_) {
      for (auto& [payload, plan] : publication.plans()) take(plan);
    }
  }
  /// Whether the latest version is still being taken over, or made.
  [[nodiscard]] bool taking_over() const { return latest_ != kNoVersion && publications_.at(latest_).open(); }
  /// By which payload; PayloadId{} if it is not.
  [[nodiscard]] PayloadId begun() const {
    return latest_ == kNoVersion ? PayloadId{} : publications_.at(latest_).begun();
  }
  /// The newest version that is not being taken over.
  [[nodiscard]] Version newest_whole() const { return taking_over() ? newest_before(latest_) : latest_; }
  /// The newest version that is older than this one; kNoVersion if there is none.
  [[nodiscard]] Version newest_before(Version version) const;
  void set_latest(Version version);
  [[nodiscard]] bool can_make(PayloadId payload) const;
  /// Whether any payload is being made that leads to this version.
  [[nodiscard]] bool is_making_for(Version version) const {
    const Publication* const publication = find(version);
    return publication != nullptr && !publication->making().empty();
  }
  /// Whether a member still waits for more of it.
  [[nodiscard]] bool in_use(PayloadId payload) const;
  /// Assigns anew each member that loses what it was assigned.
  void forget_old_versions(Instant now);
  /// Counts who has installed what, forgets what nobody needs any more, repairs plans.
  void settle(Instant now);

  // ---- versions and payloads

  /// Errors: kInvalidArgument (it is not open; another version is begun; those of check_publication()).
  [[nodiscard]] Status check_begun(const Manifest& manifest) const;
  /// Errors: kInvalidArgument (no version is published by that payload now).
  [[nodiscard]] Status check_publication(PayloadId payload) const;
  /// What was begun of a version comes to nothing.
  void abandon_version(Instant now, Version version, std::string_view why);
  /// The version is none any more. If it was the latest, the one before is the latest again. The number stays used if
  /// the version was complete.
  void withdraw_version(Version version, std::string_view why);
  /// A payload that was begun has grown; one that has not grown as it was announced is withdrawn.
  void handle_grown(Instant now, const MadePayload& grown);

  // ---- members

  /// Gives each of these what it needs to come to the latest version, or has it made.
  void assign(Instant now, const std::vector<Member*>& members);
  void assign_all(Instant now);
  /// Whether the latest version would arrive sooner if it was packed, as far as rates and measured speeds tell.
  [[nodiscard]] bool packing_pays(Instant now) const;
  /// The payload's plan is to have `takers`, who are to be told of it.
  void take_in(Instant now, PayloadId payload, const std::vector<Member*>& takers);
  /// The pace at which half of the members received their last payload, or else that of the origin's uplink; without a
  /// limit: neither is known.
  [[nodiscard]] Rate usually_received() const;
  /// Tells a member about the payload that it is in the middle of: a plan for it, or word that there is none. What the
  /// member is assigned remains the last that was announced to it.
  void resume_receiving(Instant now, Member& member);
  /// What brings `member` to `version`, which is one of the versions and newer than what it has.
  [[nodiscard]] CatchUp catch_up_to(Version version, const Member& member,
                                    const std::function<bool(PayloadId)>& can_make) const;
  /// How `member` comes to the payload's version if it takes this payload.
  [[nodiscard]] CatchUpPath catch_up_path_of(PayloadId payload, const Member& member) const;
  /// Members whose version is from another run take part again, if this origin's new version is greater than theirs, or
  /// the same by its digest. An open full payload has no digest yet.
  void adopt_foreign(const Manifest& manifest);
  /// Tells a member of another run to begin this one.
  void invite(const Member& member);
  /// The plans in which a member was known are to be repaired: its connection is gone, or made anew.
  void handle_disconnected(Instant now, PeerId member);

  // ---- what is told of them

  /// These publications have ended. Standing changes now, and only now.
  void judge(Instant now, const std::vector<Version>& ended);
  /// `times`: of that version, as far as they are known.
  [[nodiscard]] PublicationProgress progress(Version version, const BroadcastTimes::Times& times) const;
  /// Brings the record of a publication that is under way up to date: times, counts, bytes, and who is behind.
  void refresh(PublicationRecord& record);
  /// A publication has ended: the history has that from now on, and the log a line. `why` it was given up.
  void end_record(Instant now, Version version, PublicationRecord::End end, std::string_view why = {});

  PublicationContext context_;
  std::map<Version, Publication> publications_;
  Version latest_{};
  Version last_used_{};
  BroadcastTimes times_;
  PackingSpeeds speeds_;
  double packed_share_ =
      kPackedShareOfWeights;              // what packing leaves, as samples of the last version that was begun say
  Instant begun_at_{};                    // the latest version, or what was made of it last
  std::optional<Instant> make_again_at_;  // what was put off
  Duration put_off_for_ = kMakeAgainAfter;
  bool count_all_ = false;  // who has installed what is to be counted anew
  std::uint64_t ended_count_ = 0;
};

}  // namespace weightcast
