#pragma once

#include <cstdint>
#include <optional>
#include <set>
#include <span>
#include <string>

#include "base/ids.h"
#include "base/time.h"
#include "trainer/intake/worker_table.h"

namespace weightcast {

struct SyncCoordinatorOptions {
  std::uint64_t drift_max = 0;                       ///< steps
  Duration sync_time_max = std::chrono::minutes(2);  ///< that workers have to take a version
};

/// Decides when a learner publishes, and workers take its version, by how far they have drifted apart: the
/// asynchronous mode of ECHO (arXiv 2508.05387). The drift is t_train - t_infer: the learner's version less the least
/// version that an active worker generates under. Above drift_max a sync begins: the learner publishes what it has,
/// and workers begin nothing new before they generate under it. It ends when all of them do, or after sync_time_max:
/// who has not taken the version by then does not count until it has. Pure: no I/O, and its caller passes the time.
/// Invariant: at most one sync is under way, and each asks for a later version than the one before.
class SyncCoordinator {
 public:
  explicit SyncCoordinator(const SyncCoordinatorOptions& options) : options_(options) {}

  /// The origin has taken `version`.
  void handle_published(Version version) { published_ = version; }
  /// What is known of the workers. Those that are silent, not active, or without a version do not count. May end a
  /// sync.
  void handle_workers(Instant now, std::span<const IntakeWorker> workers);
  /// The learner has weights of `version`. May begin a sync.
  void handle_step(Version version);

  /// The learner publishes its weights now.
  [[nodiscard]] bool wants_publication() const { return target_ && (!published_ || *published_ < *target_); }
  /// Workers begin nothing under an older version; kNoVersion: they may. Not before the origin has it: a learner that
  /// cannot publish goes on with what workers make.
  [[nodiscard]] Version begin_at_least() const { return has_arrived_ ? *target_ : kNoVersion; }
  /// Absent before the first publication.
  [[nodiscard]] std::optional<std::uint64_t> drift() const;

 private:
  const SyncCoordinatorOptions options_;
  Version learner_{};
  std::optional<Version> published_;
  std::optional<Version> infer_;    // the least version of those that count
  std::optional<Version> target_;   // of the sync that is under way
  bool has_arrived_ = false;        // there is one, and the origin has it
  Instant sync_until_{};            // the same
  std::set<std::string> laggards_;  // that did not take the last sync's version in time
};

}  // namespace weightcast
