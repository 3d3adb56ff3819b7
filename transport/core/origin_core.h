#pragma once

#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "base/units.h"
#include "transport/core/catch_up.h"
#include "transport/core/core.h"
#include "transport/core/holdings.h"
#include "transport/core/links.h"
#include "transport/core/membership.h"
#include "transport/core/plan.h"
#include "transport/core/plan_repair.h"
#include "transport/core/timeouts.h"
#include "transport/core/uploads.h"

namespace weightcast {

struct OriginConfig {
  std::string name = "origin";
  std::string model_id;  ///< "" accepts workers of any
  Rate uplink{};         ///< B
  Topology topology = Topology::kAuto;
  Duration hop_delay = std::chrono::microseconds(500);
  std::uint32_t versions_kept = 2;
  bool patches = true;                 ///< false: full payloads only
  std::uint32_t anchor_interval = 16;  ///< a worker further behind than this many stored patches gets a full payload
  Timeouts timeouts{};
};

/// What was made of action::MakePatch, or of a part of it.
struct MadePatch {
  std::shared_ptr<const Manifest> manifest;
  std::vector<Digest> chunk_digests;
};

/// What an origin remembers of a worker across its own restarts.
struct PeerRecord {
  std::string name;
  PeerScoreRecord score;
  PeerStandingRecord standing;
};

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

/// The origin: knows the members, makes and repairs the plans, serves the first chunk of everything, counts who has
/// installed what.
///
/// Several payloads may be under way, of one version and of several: each has a plan of its own, over the members that
/// need it or have it. Who is behind gets what choose_payload() says; patches are made when somebody needs them, once.
/// Invariants: versions only grow; an epoch is used once; every active member that lacks the latest version has an
/// assignment that leads towards it, or waits for a patch that is being made.
class OriginCore final : public Core {
 public:
  explicit OriginCore(OriginConfig config);

  /// A complete payload that a store recovered; before start(). The newest full one is the latest version.
  void restore(std::shared_ptr<const Manifest> manifest, const std::vector<Digest>& chunk_digests);

  /// What peer_records() gave before a restart; before start().
  void restore_peers(Instant now, const std::vector<PeerRecord>& records);
  [[nodiscard]] std::vector<PeerRecord> peer_records(Instant now) const;
  /// Grows whenever peer_records() has something new that is worth keeping.
  [[nodiscard]] std::uint64_t peer_records_generation() const { return peer_records_generation_; }
  /// Against its own line rate.
  [[nodiscard]] static double score_of(Instant now, const Member& member);

  /// What make_plan() says of a payload of this size for the members of now.
  [[nodiscard]] Plan plan_for(Instant now, std::uint64_t payload_bytes) const;

  /// Whether `version` may be published: greater than any before. Errors: kAlreadyExists, kInvalidArgument (0).
  [[nodiscard]] Status check_version(Version version) const;

  /// A new version, complete in the store. `started_at` is when the publication began, for T_bcast. The manifest's
  /// chunk size is kept, whatever a plan would choose now.
  void handle_publish(Instant now, Instant started_at, std::shared_ptr<const Manifest> manifest,
                      const std::vector<Digest>& chunk_digests);

  /// Answers to action::MakePatch, as it is being made: first an open manifest, which is announced at once, then ever
  /// more of it, whose chunks can be read. The manifests continue one another; `chunk_digests` are all so far.
  void handle_patch_begun(Instant now, std::shared_ptr<const Manifest> manifest);
  void handle_patch_grown(Instant now, MadePatch grown);
  /// The last answer to action::MakePatch, whether or not others came before it. An error says that no such patch is to
  /// be had, or none that is worth it (kTooLarge): one that was begun is withdrawn.
  void handle_patch_made(Instant now, PayloadId payload, Result<MadePatch> made);

  [[nodiscard]] std::optional<PublicationProgress> progress(Version version) const;
  [[nodiscard]] Version latest() const { return latest_; }
  [[nodiscard]] const Membership& members() const { return members_; }
  [[nodiscard]] const Holdings& holdings() const override { return holdings_; }
  [[nodiscard]] const OriginConfig& config() const { return config_; }
  /// How most members get the latest version, for status; null if nobody does.
  [[nodiscard]] const Plan* latest_plan() const;
  [[nodiscard]] std::vector<std::string> children() const { return uploads_.children(); }

  void start(Instant now) override;
  void stop(std::string_view reason) override;
  [[nodiscard]] ConnId next_conn() override { return conn_ids_.next(); }
  void handle_accepted(Instant now, ConnId conn, std::string_view peer_host) override;
  void handle_connected(Instant now, ConnId conn) override;
  void handle_closed(Instant now, ConnId conn, const Error& why) override;
  void handle_message(Instant now, ConnId conn, const wire::Message& message) override;
  void handle_chunk(Instant now, ConnId conn, const ChunkArrival& chunk) override;
  void handle_chunk_sent(Instant now, ConnId conn) override;
  void handle_payload_begun(Instant now, PayloadId payload, Result<RestoredPayload> restored) override;
  void handle_chunk_stored(Instant now, PayloadId payload, ChunkIndex chunk, Status status) override;
  void handle_finished(Instant now, PayloadId payload, Status status) override;
  void handle_timeout(Instant now) override;
  [[nodiscard]] std::optional<Action> poll_action() override { return actions_.poll(); }
  [[nodiscard]] std::optional<Instant> poll_deadline() const override;

 private:
  /// One payload and those who take part in it.
  struct Publication {
    std::shared_ptr<const Manifest> manifest;
    Plan plan;
    std::set<PeerId> failed;                         // could not store it: neither fed nor relays
    std::set<PeerId> demoted;                        // a child left it: a leaf for the rest of this publication
    std::map<PeerId, std::set<PeerId>> called_slow;  // by which children
    std::map<PeerId, std::string> told;              // the assignment that each member was sent last, without its epoch
    std::set<PeerId> holders;                        // have it whole
  };
  /// One version, by whatever payloads.
  struct Progress {
    bool announced = false;  // false for one that was restored: its time counts from the first who wants it
    bool ended = false;      // everyone has it, or a newer one came
    Instant started_at{};
    std::optional<Duration> t50, t90, t100;
    std::uint32_t installs_to_count = 0;  // before so many more no fraction that is asked for can be reached
  };

  void handle_join(Instant now, ConnId conn, const wire::Join& join);
  void handle_installed(Instant now, Member& member, const wire::Installed& installed);
  void handle_parent_fault(Instant now, Member& member, const wire::ParentFault& fault);
  void lose(Instant now, Member& member, std::string_view why);
  void refuse(ConnId conn, const Error& why);

  void handle_install_failed(Instant now, Member& member, const wire::InstallFailed& failed);
  /// Gives each of these what it needs to come to the latest version, or has it made.
  void assign(Instant now, const std::vector<Member*>& members);
  void assign_all(Instant now);
  /// How `member` comes to the payload's version if it takes this payload.
  [[nodiscard]] Way way_of(PayloadId payload, const Member& member) const;
  /// Makes or repairs the plan of a payload so that `takers` are in it, and tells them.
  void take_in(Instant now, PayloadId payload, const std::vector<Member*>& takers);
  /// The publication of a payload that is held; made if there is none.
  Publication& publication_of(PayloadId payload);
  [[nodiscard]] const Publication* main_publication(Version version) const;
  void make_patch(PayloadId payload);
  /// What is held of a patch that is being made becomes this; tells everyone who was told of it.
  void grow(Instant now, const MadePatch& grown);
  /// Nobody gets any more of a patch that was begun.
  void withdraw(PayloadId payload);
  [[nodiscard]] bool can_make(PayloadId payload) const;
  /// Whether a member still waits for more of it.
  [[nodiscard]] bool in_use(PayloadId payload) const;
  /// What to do with the payload that a member is in the middle of as it joins: a plan for it, or word that there is
  /// none.
  void resume_receiving(Instant now, Member& member);
  /// Whether `member` can get that payload, or give it: those who have it, and those who were told of it and have not
  /// gone past it. A worker skips what is superseded before it is begun.
  [[nodiscard]] bool takes_part(const Publication& publication, const Member& member) const;
  /// Repairs the plans of payloads that some have gone past.
  void repair_outdated(Instant now);
  /// Fits the plan to the members of now, and tells those for whom something changed.
  void repair(Instant now, PayloadId payload);
  /// Standing changes now, and only now.
  void end(Version version);
  void probe(const Member& member);
  /// Has `prober` dial `member`, whom the origin could not reach.
  void ask_to_probe(const Member& prober, const Member& member);
  void handle_probed(Instant now, const wire::Probed& probed);
  void announce(Publication& publication, const Member& member, wire::Assignment assignment);
  [[nodiscard]] wire::Assignment assignment_for(const Publication& publication, const PlanIndex& index,
                                                const Member& member) const;
  [[nodiscard]] wire::NodeAddress address_of(PeerId id) const;
  /// The active members in rank order; of `publication` those who take part in it.
  [[nodiscard]] PlanRequest plan_request(Instant now, std::uint64_t payload_bytes,
                                         const Publication* publication = nullptr) const;
  void note_progress(Instant now, Version version, Progress& progress);
  /// For one who joins now.
  [[nodiscard]] Duration heartbeat_period() const;
  void forget_old_versions();

  OriginConfig config_;
  ActionQueue actions_;
  ConnIds conn_ids_;
  Holdings holdings_;
  Uploads uploads_;
  Membership members_;
  struct Stranger {
    Instant since{};
    std::string host;
  };
  std::map<ConnId, Stranger> strangers_;
  std::map<ConnId, PeerId> probes_;  // dialled to see whether the member can be
  std::set<PeerId> unreachable_;     // whose Member::unreachable is set; some may be lost by now
  std::map<PayloadId, Publication> publications_;
  std::map<Version, Progress> progress_;
  std::set<PayloadId> making_;   // patches that were asked for
  std::set<PayloadId> useless_;  // patches that could not be made, or would not be small
  Version latest_{};
  Epoch epoch_{};
  std::uint64_t peer_records_generation_ = 0;
  // Not after anybody's silence has lasted too long; too early, at most, as who speaks does not move it.
  std::optional<Instant> silence_due_;
  std::optional<Instant> driven_at_;  // the last time anything was handled: a stall of our own is not the members'
};

}  // namespace weightcast
