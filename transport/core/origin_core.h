#pragma once

#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "base/units.h"
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
  Timeouts timeouts{};
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
  PayloadKind kind = PayloadKind::kFull;
  std::uint64_t payload_bytes = 0;
  std::uint32_t active = 0;     ///< workers that count: connected, not standby
  std::uint32_t installed = 0;  ///< of those
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
/// Several publications may be under way: each has a plan of its own, and a worker takes the newest when it is done
/// with the one before. Invariants: versions only grow; an epoch is used once; every active member that lacks the
/// latest version has an assignment for it.
class OriginCore final : public Core {
 public:
  explicit OriginCore(OriginConfig config);

  /// A complete version that a store recovered; before start(). The last one becomes the latest publication.
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

  [[nodiscard]] std::optional<PublicationProgress> progress(Version version) const;
  [[nodiscard]] Version latest() const { return latest_; }
  [[nodiscard]] const Membership& members() const { return members_; }
  [[nodiscard]] const Holdings& holdings() const { return holdings_; }
  [[nodiscard]] const OriginConfig& config() const { return config_; }
  /// The plan of the latest publication, for status.
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
  void handle_payload_begun(Instant now, Version version, Result<RestoredPayload> restored) override;
  void handle_chunk_stored(Instant now, Version version, ChunkIndex chunk, Status status) override;
  void handle_finished(Instant now, Version version, Status status) override;
  void handle_timeout(Instant now) override;
  [[nodiscard]] std::optional<Action> poll_action() override { return actions_.poll(); }
  [[nodiscard]] std::optional<Instant> poll_deadline() const override;

 private:
  struct Publication {
    std::shared_ptr<const Manifest> manifest;
    Plan plan;
    bool announced = false;  // false for one that was restored: members are planned as they join
    Instant started_at{};
    std::optional<Duration> t50, t90, t100;
    std::set<PeerId> failed;   // could not store it: neither fed nor relays
    std::set<PeerId> demoted;  // a child left it: a leaf for the rest of this publication
    bool ended = false;        // everyone has it, or a newer one came
    std::uint32_t installs_to_count = 0;  // before so many more no fraction that is asked for can be reached
    std::map<PeerId, std::string> told;  // the assignment that each member was sent last, without its epoch
    std::set<PeerId> holders;            // have it whole
  };

  void handle_join(Instant now, ConnId conn, const wire::Join& join);
  void handle_installed(Instant now, Member& member, const wire::Installed& installed);
  void handle_parent_fault(Instant now, Member& member, const wire::ParentFault& fault);
  void lose(Instant now, Member& member, std::string_view why);
  void refuse(ConnId conn, const Error& why);

  void ensure_planned(Instant now, Member& member);
  /// What to do with the version that a member is in the middle of as it joins: a plan for it, or word that there is none.
  void resume_receiving(Instant now, Member& member);
  /// Whether `member` can get that version, or give it. Of an older one those count who were told of it and have not
  /// gone past it: a worker skips what is superseded before it is begun.
  [[nodiscard]] bool takes_part(const Publication& publication, const Member& member) const;
  /// Repairs the plans of older versions that some have gone past.
  void repair_outdated(Instant now);
  /// Fits the plan to the members of now, and tells those for whom something changed.
  void repair(Instant now, Version version);
  /// Standing changes now, and only now.
  void end(Publication& publication);
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
  void note_progress(Instant now, Publication& publication);
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
  std::map<Version, Publication> publications_;
  Version latest_{};
  Epoch epoch_{};
  std::uint64_t peer_records_generation_ = 0;
  // Not after anybody's silence has lasted too long; too early, at most, as who speaks does not move it.
  std::optional<Instant> silence_due_;
  std::optional<Instant> driven_at_;  // the last time anything was handled: a stall of our own is not the members'
};

}  // namespace weightcast
