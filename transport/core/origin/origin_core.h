#pragma once

#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "transport/core/core.h"
#include "transport/core/origin/members/membership.h"
#include "transport/core/origin/members/rate_probes.h"
#include "transport/core/origin/members/reachability.h"
#include "transport/core/origin/members/standby_places.h"
#include "transport/core/origin/origin_config.h"
#include "transport/core/origin/publications.h"

namespace weightcast {

/// What an origin remembers of a worker across its own restarts.
struct PeerRecord {
  /// One that it made, of a member of that name.
  struct Complaint {
    std::string of;
    PeerFault fault{};
    std::uint32_t age = 0;
    bool discredited = false;
    bool parent_cleared = false;
    bool child_cleared = false;
    bool operator==(const Complaint&) const = default;
  };

  std::string name;
  PeerScoreRecord score;
  PeerStandingRecord standing;
  std::string offence;
  bool offence_by_word = false;
  /// Of its link, as measured; without a limit: not known. The record of the origin's own name has its uplink, and else
  /// nothing.
  Rate uplink{};
  Rate downlink{};
  std::vector<Complaint> complaints;
  std::uint32_t voice = Complaints::kVoiceMax;
  std::uint32_t since_regained = 0;
};

/// The origin: knows the members and their connections, serves the first copy of each chunk, and hands each input to
/// the object that it concerns. Its Publications decide who gets what, and by which plan; its FaultAttribution judges
/// the relays. Invariant: a connection is a member's, a probe, or one that Core knows.
class OriginCore final : public Core {
 public:
  explicit OriginCore(OriginConfig config);

  /// A complete version that a store recovered; before start(). The newest is the latest. A version that was published
  /// by its patch has that one's manifest, and no digests.
  void restore(std::shared_ptr<const Manifest> manifest, const std::vector<ContentDigest>& chunk_digests) {
    publications_.restore(std::move(manifest), chunk_digests);
  }
  /// A complete patch that a store recovered; before start().
  void restore_patch(std::shared_ptr<const Manifest> manifest, const std::vector<ContentDigest>& chunk_digests) {
    publications_.restore_patch(std::move(manifest), chunk_digests);
  }

  /// What peer_records() gave before a restart; before start().
  void restore_peers(Instant now, const std::vector<PeerRecord>& records);
  [[nodiscard]] std::vector<PeerRecord> peer_records(Instant now) const;
  /// Grows when peer_records() has changed enough to be written.
  [[nodiscard]] std::uint64_t peer_records_generation() const {
    return publications_.ended_count() + faults_.complaints_made() + forgotten_count_ + rates_.ended_count();
  }

  /// From now on these count, for what is planned and for who joins.
  void set_limits(Rate uplink, std::vector<std::string> addresses_allowed) {
    config_.uplink = uplink;
    config_.addresses_allowed = std::move(addresses_allowed);
    rates_.set_origin_cap(uplink);
  }

  /// The list of revoked keys that counts here. A worker that knows an older one gets it with its next heartbeat.
  void set_revocations(std::uint64_t number, std::string list);

  /// The worker `name` serves from now on: it receives versions, and counts. Or it waits on standby. Either holds when
  /// it joins again, until this origin ends. Errors: kNotFound (no worker of that name, with the nearest).
  [[nodiscard]] Status set_serving(Instant now, std::string_view name, bool serves);
  /// The lost worker `name` is known no more, nor anything that is held against it: status and peer_records() are
  /// without it at once. If it joins again it is new. Errors: kNotFound (no worker of that name, with the nearest),
  /// kBusy (it is connected).
  [[nodiscard]] Status forget_worker(Instant now, std::string_view name);
  /// While somebody else decides by set_serving(), no standby worker takes a lost one's place.
  void set_provisioned(bool provisioned) { standby_places_.set_provisioned(provisioned); }

  /// The answer to action::Enroll. The machine is told of errors with Op::kVerify alone; others are the origin's own.
  void handle_enrolled(ConnId conn, const Result<EnrolledWorker>& enrolled);

  /// Takes a new version over, or makes it: first the open manifest of its full payload, or of the patch from the
  /// latest version, which the origin announces at once, then ever more chunks, which can be read. Each manifest
  /// continues the one before, and `grown` has all chunk digests so far. The take-over ends with handle_publish() or
  /// handle_publish_failed(). The plan keeps the manifest's chunk size. `packed_share`: what packing leaves of its
  /// bytes, as samples tell. If packing pays, workers that need the whole version wait for the end, because the origin
  /// packs its own copy. A manifest that breaks these rules is logged, and the version withdrawn.
  void handle_publish_begun(Instant now, std::shared_ptr<const Manifest> manifest,
                            double packed_share = kPackedShareOfWeights);
  void handle_publish_grown(Instant now, const MadePayload& grown) { publications_.handle_publish_grown(now, grown); }
  /// A new version is complete in the store: `made` is its full payload or the patch from the latest version, whether
  /// or not that was begun. Members that have the base get such a patch at once; the full payload is made when
  /// somebody needs it. T_bcast counts from `started_at`. A version out of order, a patch from another version, and
  /// digests that are not the manifest's are logged and not published.
  void handle_publish(Instant now, Instant started_at, const MadePayload& made);
  /// Withdraws the version that was begun; its number may be used again. Harmless if none was begun.
  void handle_publish_failed(Instant now, Version version, std::string_view why) {
    publications_.handle_publish_failed(now, version, why);
  }

  /// Answers to action::MakePayload while the payload is made: first an open manifest, which the origin announces at
  /// once, then ever more chunks, which can be read. Each manifest continues the one before; `chunk_digests` are all so
  /// far.
  void handle_payload_begun(Instant now, std::shared_ptr<const Manifest> manifest) {
    publications_.handle_payload_begun(now, std::move(manifest));
  }
  void handle_payload_grown(Instant now, const MadePayload& grown) { publications_.handle_payload_grown(now, grown); }
  /// The last answer to action::MakePayload, whether or not others came before it. After an error the origin withdraws
  /// what was begun. kTooLarge: the payload would not be worth sending. A full payload that ends with kCorrupt or kIo
  /// is a damaged version, which is withdrawn.
  void handle_payload_made(Instant now, PayloadId payload, const Result<MadePayload>& made);

  [[nodiscard]] const Publications& publications() const { return publications_; }
  [[nodiscard]] const FaultAttribution& faults() const { return faults_; }
  [[nodiscard]] const Membership& members() const { return members_; }
  /// What plans take for the origin's own uplink; without a limit: not known.
  [[nodiscard]] Rate planned_uplink() const { return rates_.planned_origin_uplink(); }
  [[nodiscard]] const OriginConfig& config() const { return config_; }
  /// The last publications, as they stand; for status.
  [[nodiscard]] const PublicationHistory& history() { return publications_.history(); }
  /// The last damage that this node found in what it holds; "" if there was none.
  [[nodiscard]] const std::string& last_error() const { return last_error_; }

  void start(Instant now) override;
  void stop(std::string_view reason) override;
  void handle_connected(Instant now, ConnId conn, const std::optional<PeerIdentity>& peer = std::nullopt) override;
  void handle_closed(Instant now, ConnId conn, const Error& why) override;
  void handle_message(Instant now, ConnId conn, const wire::Message& message) override;
  void handle_chunk(Instant now, ConnId conn, const ChunkArrival& chunk) override;
  [[nodiscard]] Speaker speaker_on(ConnId conn) const override;
  [[nodiscard]] std::string name_on(ConnId conn) const override;
  void handle_excess(std::string_view name) override;
  void handle_timeout(Instant now) override;
  void handle_version_lost(Instant now, Version version, std::shared_ptr<const Manifest> newest,
                           const Error& why) override;
  [[nodiscard]] std::optional<Instant> poll_deadline() const override;
  [[nodiscard]] std::vector<PayloadId> retained() const override;

 private:
  void handle_damaged(Instant now, PayloadId payload, const Error& why) override;
  void handle_refused(Instant now, ConnId conn, const Error& why) override;
  void handle_placeless(Instant now, ConnId conn) override;
  /// Children that have taken a payload again and again: their status says so.
  void note_greedy();
  void handle_parent_fault(Instant now, Member& member, const ParentFault& fault);
  void handle_member_message(Instant now, Member& member, const wire::Message& message);
  void handle_heartbeat(Instant now, Member& member, const wire::Heartbeat& beat);
  void handle_enroll(ConnId conn, const wire::Enroll& request);
  void send_revocations(Member& member, std::uint64_t known);
  void handle_join(Instant now, ConnId conn, const wire::Join& join);
  /// The protocol version that both ends speak, or why that worker cannot join.
  [[nodiscard]] Result<std::uint32_t> check_join(Instant now, ConnId conn, const wire::Join& join);
  /// Of one whose name is proven: the number of the member of that name, whatever it says.
  [[nodiscard]] PeerId child_id(const wire::Hello& hello) const override;
  /// Where others dial a worker that joins.
  [[nodiscard]] std::string host_of(ConnId conn, const wire::Join& join);
  /// What a connection without an introduction did, if a member's keys made it: the member's status says so.
  void note_stranger(ConnId conn, std::string what);
  /// Who that connection proved to be asked to join under another name: its status says so.
  void note_impostor(ConnId conn, const std::string& name);
  /// What a worker says of itself as it joins.
  void register_member(Instant now, Member& member, ConnId conn, const wire::Join& join, std::uint32_t protocol);
  /// `left`: it said goodbye, as a clean stop does.
  void lose(Instant now, Member& member, std::string_view why, bool left = false);
  /// Errors: kNotFound, with the nearest.
  [[nodiscard]] Result<Member*> known_worker(std::string_view name);
  /// Closes a member's connection without a word.
  void drop(ConnId conn);
  /// Of members that have been lost for long, or that are too many.
  void forget_lost(Instant now);
  void look_for_silence(Instant now);
  /// Links are probed while nothing is published.
  void probe_rates(Instant now);
  /// For one who joins now.
  [[nodiscard]] Duration heartbeat_period() const;

  OriginConfig config_;
  Membership members_;
  Reachability reachability_;
  RateProbes rates_;
  FaultAttribution faults_;
  StandbyPlaces standby_places_;
  Publications publications_;
  // A lower bound of when somebody's silence has lasted too long. Heartbeats do not move it, so it may fire early,
  // never late.
  std::optional<Instant> silence_due_;
  std::optional<Instant> forget_due_;
  std::uint64_t forgotten_count_ = 0;  // by command
  std::string last_error_;
  std::uint64_t revocations_number_ = 0;  // 0: there is no list
  std::string revocations_;
  std::set<ConnId> enrolling_;         // unidentified ones that wait for their certificates
  Instant probing_at_{};               // when it was looked whether links are free
  std::optional<Instant> watched_at_;  // when silence was looked for last: a stall of our own is not the members'
};

}  // namespace weightcast
