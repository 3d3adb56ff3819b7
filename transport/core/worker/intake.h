#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "transport/core/assignment.h"
#include "transport/core/edge/download.h"
#include "transport/core/edge/links.h"
#include "transport/core/edge/uploads.h"
#include "transport/core/install_phases.h"
#include "transport/core/worker/acceptance.h"
#include "transport/core/worker/announced_versions.h"
#include "transport/core/worker/archive_download.h"
#include "transport/core/worker/held_payloads.h"
#include "transport/core/worker/origin_link.h"
#include "transport/core/worker/origin_reports.h"
#include "transport/core/worker/worker_config.h"

namespace weightcast {

/// The one payload that a worker receives, from announced to installed, and the one that is installed. Pure. Called by
/// the WorkerCore that owns it.
///
/// A worker receives one version at a time, and finishes it before it begins the last one announced meanwhile.
/// Otherwise a trainer that publishes faster than the links carry would leave every worker with nothing. The worker
/// gives a version up in two cases: the origin does not have it any more, or a newer one takes fewer bytes than are
/// missing.
///
/// A patch is taken only if its base is installed. If it does not fit, because the base is damaged or another, the
/// worker tells the origin, and the origin assigns the full payload. Until that is installed, the worker takes no
/// patch. The same holds for a packed payload that cannot be unpacked, or for which there is no room.
///
/// A payload may be open: the origin still makes it, and tells its growth on the control connection. The worker
/// receives, forwards and stores it like any other, and installs it once it is not open any more. Until then a failure
/// or a restart discards what is here of it.
///
/// A manifest is received only if Acceptance has no objection, and so is each growth of it. The origin hears why.
///
/// Invariants: nothing unverified is stored, forwarded or installed; installed_version() goes back only when the store
/// has lost that version.
class Intake {
 public:
  Intake(const WorkerConfig& config, OriginLink& origin, Links& links, HeldPayloads& held, Uploads& uploads,
         ActionQueue& actions)
      : config_(config),
        origin_(origin),
        links_(links),
        held_(held),
        uploads_(uploads),
        actions_(actions),
        reports_(origin, held),
        acceptance_(config),
        run_(config.run) {}

  void stop();

  // What the origin says.

  /// The worker follows `run` from now on.
  void follow(RunId run) {
    if (run != run_) announced_versions_.clear();
    run_ = run;
  }
  /// A version is on the disk for good: from now on no older one of its run is received.
  void note_durable(const Manifest& manifest) { acceptance_.note_durable(manifest, run_); }
  /// A control connection was made anew.
  void handle_rejoined();
  void handle_announce(Instant now, const wire::Announce& announce);
  void handle_assignment(Instant now, const wire::Assignment& message);
  void handle_growth(Instant now, const wire::Growth& growth);
  void handle_not_available(Instant now, PayloadId payload);
  /// Who may vouch for a manifest has changed: what was announced and what arrives is judged anew. What is complete
  /// already is not.
  void handle_revocations(Instant now);

  // What comes from parents.

  void handle_open(Instant now, ConnId conn);
  /// `was_made`: else it was dialled in vain.
  void handle_closed(Instant now, ConnId conn, bool was_made);
  void handle_message(Instant now, ConnId conn, const wire::Message& message);
  void handle_chunk(Instant now, ConnId conn, const ChunkArrival& chunk);

  // What the store says.

  void handle_begun(Instant now, PayloadId payload, Result<RestoredPayload> restored);
  void handle_stored(Instant now, PayloadId payload, ChunkIndex chunk, const Status& status);
  /// `switching`: of the time that it took, what making it the version in use did.
  void handle_finished(Instant now, PayloadId payload, const Status& status, Duration switching);
  /// From now on nothing is read from parents, because the disk has too much to write; or it is read again.
  void handle_disk_behind(Instant now, bool is_behind);

  /// A program on this host, as an engine, has taken `version` up. Whether that says something new: the version is the
  /// one in use, this process installed it, and it is the first program.
  bool handle_taken(Instant now, Version version);

  // What the archive says.

  void handle_archive_found(Instant now, PayloadId payload, std::uint32_t request,
                            Result<std::vector<ContentDigest>> digests);
  void handle_archive_chunk(Instant now, std::uint32_t request, const ChunkArrival& chunk);
  void handle_archive_ended(Instant now, PayloadId payload, std::uint32_t request, const Status& status);

  /// What is here of `payload` was found to be damaged.
  void handle_damaged(Instant now, PayloadId payload, const Error& why);
  /// A complete version is gone. If it was the installed one, `newest` is that now, and the worker joins anew: the
  /// origin then assigns what it lacks.
  void handle_version_lost(Instant now, Version version, std::shared_ptr<const Manifest> newest, const Error& why);

  void handle_timeout(Instant now);
  [[nodiscard]] std::optional<Instant> poll_deadline() const;

  /// Tells the origin how far it is.
  void send_heartbeat(Instant now);
  /// What an origin is told of it by one who joins.
  void describe(wire::Join& join) const;

  [[nodiscard]] Version installed_version() const { return held_.installed(); }
  /// The payload that arrives; of kNoVersion if none does.
  [[nodiscard]] PayloadId receiving() const { return incoming_ ? incoming_->id : PayloadId{}; }
  [[nodiscard]] std::uint32_t chunks_verified() const;
  /// See Download::early_bytes().
  [[nodiscard]] std::size_t early_bytes() const { return incoming_ ? incoming_->download->early_bytes() : 0; }
  [[nodiscard]] std::uint32_t chunks_total() const;
  [[nodiscard]] std::vector<std::uint32_t> stripes_missing() const;
  [[nodiscard]] double receive_bytes_per_s() const { return incoming_ ? incoming_->download->bytes_per_s() : 0; }
  [[nodiscard]] std::uint64_t bytes_received() const { return bytes_received_; }
  /// Of these, from the archive.
  [[nodiscard]] std::uint64_t archive_bytes() const { return archive_bytes_; }
  /// Why nothing of what arrives comes from the archive, or did of what arrived last; "" if there is no reason.
  [[nodiscard]] const std::string& archive_trouble() const {
    return incoming_ && incoming_->archive ? incoming_->archive->trouble() : archive_trouble_;
  }
  [[nodiscard]] std::string parent_name() const {
    return incoming_ ? incoming_->download->parent_name() : std::string();
  }
  /// Why the last attempt failed; "" after a success.
  [[nodiscard]] const std::string& last_error() const { return last_error_; }
  /// Announcements and growths that were refused, since the start.
  [[nodiscard]] std::uint64_t refused_manifests() const { return refused_manifests_; }
  [[nodiscard]] const Acceptance& acceptance() const { return acceptance_; }
  /// Of the last installation: from the first chunk until all were stored, and from there on.
  [[nodiscard]] double transfer_s() const { return transfer_s_; }
  [[nodiscard]] double finish_s() const { return finish_s_; }
  /// From the switch until an engine took the version in use; absent if none has, or another process installed it.
  [[nodiscard]] std::optional<Duration> taken_after() const { return taken_after_; }

 private:
  enum class Phase : std::uint8_t { kBeginning, kReceiving, kFinishing };
  struct Announced {
    std::shared_ptr<const Manifest> manifest;
    Assignment assignment;
  };
  struct Incoming {
    PayloadId id{};
    Holding* holding = nullptr;  // held_'s
    Assignment assignment;
    Phase phase = Phase::kBeginning;
    bool begun_open = false;
    std::unique_ptr<Download> download;
    std::unique_ptr<ArchiveDownload> archive;  // of a full payload, where there is an archive
    ChunkSet stored;
    Instant begun_at{};
    std::optional<Instant> verified_at;  // all of it
    Instant stored_at{};                 // all of it
    std::optional<Instant> disk_behind_since;
    Duration disk_behind{};  // in all, before that
  };

  /// A part in the plan of what arrives, or of what was announced.
  void assign(Instant now, Assignment assignment);
  void refuse_announced(const Error& why);
  /// A manifest that Acceptance objects to.
  void refuse(PayloadId payload, const Error& why);
  [[nodiscard]] bool is_incoming(PayloadId payload) const { return incoming_ && incoming_->id == payload; }
  /// What is arriving has grown to `manifest`.
  void grow_incoming(Instant now, std::shared_ptr<const Manifest> manifest);
  void take_up_newest(Instant now);
  void finish_if_complete(Instant now);
  /// The archive may be asked once the payload's end and what the store has of it are known.
  void ask_archive(Instant now);
  /// Leaves parents and archive.
  void cancel_incoming();
  /// Of what is installed now.
  [[nodiscard]] InstallPhases phases_of(Instant now, const Incoming& installed, Duration switching) const;
  void fail_incoming(Instant now, const Error& why, bool discard);
  /// Gives up what arrives, unless that finishes already, and takes up what was announced since, if anything.
  void abandon_incoming(Instant now, std::string_view why);
  /// Whether it could be installed on what is installed now.
  [[nodiscard]] bool fits(const Manifest& manifest) const;
  [[nodiscard]] bool cheaper_than_incoming(const Manifest& manifest) const;
  /// Tells the origin of faults of parents. Gives up a payload that the origin itself sends damaged.
  void report_faults(Instant now);
  void send_installed();

  const WorkerConfig& config_;
  OriginLink& origin_;
  Links& links_;
  HeldPayloads& held_;
  Uploads& uploads_;
  ActionQueue& actions_;
  OriginReports reports_;
  Acceptance acceptance_;
  RunId run_;  // that this worker follows
  std::uint64_t refused_manifests_ = 0;
  std::optional<Announced> announced_;  // what the origin announced last, unless that is installed or arriving
  std::optional<Incoming> incoming_;
  AnnouncedVersions announced_versions_;
  std::optional<Instant> retry_at_;  // after a failure of our own (a full disk)
  PayloadId abandoned_{};            // last, and when: its writes may still be under way
  Instant abandoned_at_{};
  bool base_unusable_ = false;
  double installed_seconds_ = 0;
  std::optional<InstallPhases> installed_phases_;  // of the version that is installed; absent if another process did
  Instant installed_at_{};                         // of the same
  std::optional<Duration> taken_after_;            // of the same
  bool disk_is_behind_ = false;
  double transfer_s_ = 0;
  double finish_s_ = 0;
  std::uint64_t bytes_received_ = 0;
  std::uint64_t archive_bytes_ = 0;
  std::uint32_t archive_requests_ = 0;
  std::string archive_trouble_;  // of what arrived last
  std::string last_error_;
};

}  // namespace weightcast
