#pragma once

#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "transport/core/burst_meter.h"
#include "transport/core/core.h"
#include "transport/core/worker/intake.h"
#include "transport/core/worker/origin_link.h"
#include "transport/core/worker/peer_dials.h"
#include "transport/core/worker/worker_config.h"

namespace weightcast {

/// A worker: joins its origin, serves its children, and leaves what arrives to its Intake.
/// Invariant: a connection is the origin's, a parent's, a probe, or one that Core knows.
class WorkerCore : public Core {
 public:
  explicit WorkerCore(WorkerConfig config);

  /// A complete version that a store recovered; before start(). The newest is the installed one. Chunk digests that are
  /// not those of a full payload's manifest leave the version out. For other kinds they are ignored.
  void restore(std::shared_ptr<const Manifest> manifest, const std::vector<ContentDigest>& chunk_digests) {
    held_.restore(std::move(manifest), chunk_digests);
  }
  /// A complete patch that a store recovered, for children; before start().
  void restore_patch(std::shared_ptr<const Manifest> manifest, const std::vector<ContentDigest>& chunk_digests) {
    held_.restore_patch(std::move(manifest), chunk_digests);
  }

  void start(Instant now) override;
  void stop(std::string_view reason) override;
  void handle_connected(Instant now, ConnId conn, const std::optional<PeerIdentity>& peer = std::nullopt) override;
  void handle_closed(Instant now, ConnId conn, const Error& why) override;
  void handle_message(Instant now, ConnId conn, const wire::Message& message) override;
  void handle_chunk(Instant now, ConnId conn, const ChunkArrival& chunk) override;
  [[nodiscard]] Speaker speaker_on(ConnId conn) const override;
  void handle_timeout(Instant now) override;
  void handle_version_lost(Instant now, Version version, std::shared_ptr<const Manifest> newest,
                           const Error& why) override {
    intake_.handle_version_lost(now, version, std::move(newest), why);
  }
  [[nodiscard]] std::optional<Instant> poll_deadline() const override;

  /// The answer to action::BeginPayload: what was on disk already, or why there is no room.
  void handle_payload_begun(Instant now, PayloadId payload, Result<RestoredPayload> restored) {
    intake_.handle_begun(now, payload, std::move(restored));
  }
  /// The answer to action::StoreChunk.
  void handle_chunk_stored(Instant now, PayloadId payload, ChunkIndex chunk, const Status& status) {
    intake_.handle_stored(now, payload, chunk, status);
  }
  /// The answer to action::FinishPayload. `switching`: see Intake.
  void handle_finished(Instant now, PayloadId payload, const Status& status, Duration switching = {}) {
    intake_.handle_finished(now, payload, status, switching);
  }
  /// See Intake.
  bool handle_taken(Instant now, Version version) { return intake_.handle_taken(now, version); }
  /// The answer to action::FindArchived: the digests of all chunks, in order.
  void handle_archive_found(Instant now, PayloadId payload, std::uint32_t request,
                            Result<std::vector<ContentDigest>> digests) {
    intake_.handle_archive_found(now, payload, request, std::move(digests));
  }
  /// A chunk of action::ReadArchived.
  void handle_archive_chunk(Instant now, std::uint32_t request, const ChunkArrival& chunk) {
    intake_.handle_archive_chunk(now, request, chunk);
  }
  /// The end of action::ReadArchived.
  void handle_archive_ended(Instant now, PayloadId payload, std::uint32_t request, const Status& status) {
    intake_.handle_archive_ended(now, payload, request, status);
  }
  /// See Intake.
  void handle_disk_behind(Instant now, bool is_behind) { intake_.handle_disk_behind(now, is_behind); }

  /// From now on these count. The origin learns of the rates when this worker joins the next time. `archive`: nothing
  /// without one.
  void set_limits(Rate uplink, Rate downlink, std::uint64_t snapshot_bytes_max, const ArchiveLimits& archive) {
    config_.uplink = uplink;
    config_.downlink = downlink;
    config_.snapshot_bytes_max = snapshot_bytes_max;
    if (config_.archive) config_.archive = archive;
  }

  /// Another list of revoked keys counts from now on; heartbeats tell its number. What arrives by the word of a key on
  /// it is given up.
  void handle_revocations(Instant now, std::uint64_t number);

  /// action::FollowRun failed: it is asked for again, later.
  void handle_run_not_followed(Instant now, const Error& why);

  [[nodiscard]] Version installed_version() const { return held_.installed(); }
  /// Which run its versions are of; kNoRun while that is not known.
  [[nodiscard]] RunId run() const { return run_; }
  [[nodiscard]] bool joined() const { return origin_.joined(); }
  [[nodiscard]] PeerId id() const { return origin_.id(); }
  /// That it speaks with its origin.
  [[nodiscard]] std::uint32_t protocol() const { return protocols().of(origin_.conn()); }
  [[nodiscard]] const std::string& name() const { return config_.name; }
  /// What is arriving and what is installed.
  [[nodiscard]] const Intake& intake() const { return intake_; }
  /// See Intake::note_durable().
  void note_durable(const Manifest& manifest) { intake_.note_durable(manifest); }
  [[nodiscard]] PayloadId receiving() const { return intake_.receiving(); }
  /// Of other workers.
  [[nodiscard]] const PeerDials& dials() const { return dials_; }
  [[nodiscard]] std::uint64_t bytes_received() const { return intake_.bytes_received(); }
  /// Why the worker has not joined; else why it could not install the last version.
  [[nodiscard]] const std::string& last_error() const {
    return origin_.last_error().empty() ? intake_.last_error() : origin_.last_error();
  }

 private:
  void handle_damaged(Instant now, PayloadId payload, const Error& why) override {
    intake_.handle_damaged(now, payload, why);
  }
  void handle_origin_message(Instant now, const wire::Message& message);
  /// Whether who answers on a connection that this node has made is whom it has dialled.
  [[nodiscard]] Status check_dialled(ConnId conn, const std::optional<PeerIdentity>& peer) const;
  void join(Instant now);
  /// The origin's word that what is here counts as its run's.
  void handle_run(RunId run);
  /// The origin's word that what is here is of another run.
  void handle_new_run(RunId run);
  void say_hello(ConnId conn);
  /// The other end's word on what both speak on that connection.
  void take_protocol(ConnId conn, std::uint32_t protocol);
  /// Says how fast the origin's padding came, or sends as much as it asks for.
  void handle_rate_probe(Instant now, const wire::RateProbe& probe);

  WorkerConfig config_;
  Links links_;
  HeldPayloads held_;
  OriginLink origin_;
  Intake intake_;
  PeerDials dials_;
  BurstMeter burst_;
  std::uint32_t burst_probe_ = 0;  // whose burst that is
  RunId run_;
  RunId next_run_{};  // that the origin has, if what is here is of another; this process ends with it
  std::optional<Instant> run_retry_at_;
};

}  // namespace weightcast
