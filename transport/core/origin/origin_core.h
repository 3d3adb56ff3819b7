#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "transport/core/core.h"
#include "transport/core/origin/membership.h"
#include "transport/core/origin/origin_config.h"
#include "transport/core/origin/publications.h"
#include "transport/core/origin/reachability.h"
#include "transport/core/origin/standby_places.h"

namespace weightcast {

/// What an origin remembers of a worker across its own restarts.
struct PeerRecord {
  std::string name;
  PeerScoreRecord score;
  PeerStandingRecord standing;
};

/// The origin: knows the members and their connections, and serves the first chunk of everything. Who gets what, and by
/// which plan, is the business of its Publications.
/// Invariant: a connection is a member's, a probe, or one that Core knows.
class OriginCore final : public Core {
 public:
  explicit OriginCore(OriginConfig config);

  /// A complete payload that a store recovered; before start(). The newest full one is the latest version.
  void restore(std::shared_ptr<const Manifest> manifest, const std::vector<Digest>& chunk_digests);

  /// What peer_records() gave before a restart; before start().
  void restore_peers(Instant now, const std::vector<PeerRecord>& records);
  [[nodiscard]] std::vector<PeerRecord> peer_records(Instant now) const;
  /// Grows whenever peer_records() has something new that is worth keeping.
  [[nodiscard]] std::uint64_t peer_records_generation() const { return publications_.ended_count(); }

  /// What make_plan() says of a payload of this size for the members of now.
  [[nodiscard]] Plan plan_for(Instant now, std::uint64_t payload_bytes) const {
    return publications_.plan_for(now, payload_bytes);
  }

  /// Whether `version` may be published: greater than any that this origin has published, whatever workers have from
  /// other runs. Errors: kAlreadyExists, kInvalidArgument (0).
  [[nodiscard]] Status check_version(Version version) const { return publications_.check_version(version); }

  /// A new version is being taken over: its open manifest, which is announced at once, then ever more of it, whose
  /// chunks can be read. The manifests continue one another; what is grown has all chunk digests so far. It ends with
  /// handle_publish() or handle_publish_failed(). The manifest's chunk size is kept, whatever a plan would choose now.
  /// `packable`: as far as samples tell packing makes it smaller. If that is worth it, who needs it whole waits for the
  /// end, from which it is packed.
  void handle_publish_begun(Instant now, std::shared_ptr<const Manifest> manifest, bool packable = true) {
    publications_.handle_publish_begun(now, std::move(manifest), packable);
  }
  void handle_publish_grown(Instant now, const MadePayload& grown) { publications_.handle_publish_grown(now, grown); }
  /// A new version is complete in the store, whether or not it was begun. `started_at` is when the publication began,
  /// for T_bcast.
  void handle_publish(Instant now, Instant started_at, const MadePayload& made);
  /// What was begun comes to nothing: it is withdrawn, and its number may be used again. Harmless if nothing was.
  void handle_publish_failed(Instant now, Version version) { publications_.handle_publish_failed(now, version); }

  /// Answers to action::MakePatch, as it is being made: first an open manifest, which is announced at once, then ever
  /// more of it, whose chunks can be read. The manifests continue one another; `chunk_digests` are all so far.
  void handle_patch_begun(Instant now, std::shared_ptr<const Manifest> manifest) {
    publications_.handle_patch_begun(now, std::move(manifest));
  }
  void handle_patch_grown(Instant now, const MadePayload& grown) { publications_.handle_patch_grown(now, grown); }
  /// The last answer to action::MakePatch, whether or not others came before it. An error says that no such patch is to
  /// be had, or none that is worth it (kTooLarge): one that was begun is withdrawn.
  void handle_patch_made(Instant now, PayloadId payload, const Result<MadePayload>& made) {
    publications_.handle_patch_made(now, payload, made);
  }

  [[nodiscard]] std::optional<PublicationProgress> progress(Version version) const {
    return publications_.progress(version);
  }
  /// Of the last publication, be it still being taken over.
  [[nodiscard]] Version latest() const { return publications_.latest(); }
  [[nodiscard]] const Membership& members() const { return members_; }
  [[nodiscard]] const OriginConfig& config() const { return config_; }
  /// How most members get the latest version, for status; null if nobody does.
  [[nodiscard]] const Plan* latest_plan() const { return publications_.latest_plan(); }
  /// Plans were repaired so many times.
  [[nodiscard]] std::uint64_t repair_count() const { return publications_.repair_count(); }
  /// What was last found to be wrong with what this node holds; "" if nothing was.
  [[nodiscard]] const std::string& last_error() const { return last_error_; }

  void start(Instant now) override;
  void stop(std::string_view reason) override;
  void handle_connected(Instant now, ConnId conn) override;
  void handle_closed(Instant now, ConnId conn, const Error& why) override;
  void handle_message(Instant now, ConnId conn, const wire::Message& message) override;
  void handle_chunk(Instant now, ConnId conn, const ChunkArrival& chunk) override;
  void handle_timeout(Instant now) override;
  [[nodiscard]] std::optional<Instant> poll_deadline() const override;

 private:
  void handle_damaged(Instant now, PayloadId payload, const Error& why) override;
  void handle_member_message(Instant now, Member& member, const wire::Message& message);
  void handle_heartbeat(Instant now, Member& member, const wire::Heartbeat& beat);
  void handle_join(Instant now, ConnId conn, const wire::Join& join);
  /// Why that worker cannot join.
  [[nodiscard]] Status check_join(Instant now, const wire::Join& join);
  /// What a worker says of itself as it joins.
  void register_member(Instant now, Member& member, ConnId conn, const wire::Join& join);
  void lose(Instant now, Member& member, std::string_view why);
  /// Of members that have been lost for long, or that are too many.
  void forget_lost(Instant now);
  void look_for_silence(Instant now);
  /// For one who joins now.
  [[nodiscard]] Duration heartbeat_period() const;

  OriginConfig config_;
  Membership members_;
  Reachability reachability_;
  StandbyPlaces standby_places_;
  Publications publications_;
  // A lower bound of when somebody's silence has lasted too long. Heartbeats do not move it, so it may fire early,
  // never late.
  std::optional<Instant> silence_due_;
  std::optional<Instant> forget_due_;
  std::string last_error_;
  std::optional<Instant> watched_at_;  // when silence was looked for last: a stall of our own is not the members'
};

}  // namespace weightcast
