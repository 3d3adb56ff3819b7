#pragma once

#include <cstdint>
#include <vector>

#include "transport/core/manifest/manifest_trust.h"
#include "transport/core/worker/worker_config.h"

namespace weightcast {

/// Decides which of the versions that are announced a worker may receive, and remembers which it had. Pure.
/// Owned by an Intake.
///
///   refused                                                        because
///   a manifest that its origin does not vouch for                  ManifestTrust says so
///   another model than the worker was told                         a mistake, or somebody mixes models
///   another run than the worker follows                            versions of two runs have no order
///   a version older than one that was durable, of its run           somebody replays it, or the origin has lost
///   versions
///   a file tree, unless config.takes_files                         programs execute what it may hold
///   files that are neither weights, tokenizer nor configuration    engines execute some of them
///   a snapshot above the limit                                     the disk
///
/// Invariant: the version that is remembered of a run only grows.
class Acceptance {
 public:
  /// Runs that are remembered: those that were followed last.
  static constexpr std::size_t kRunsMax = 64;

  /// `config` outlives it.
  explicit Acceptance(const WorkerConfig& config) : config_(config), accepted_(config.accepted) {}

  /// `followed` is the run that the worker follows, or kNoRun. Errors: those of ManifestTrust::check(); kNotAllowed;
  /// kTooLarge; kWrongBase (an older version that a patch or packed payload brings: the latest one may be newer).
  [[nodiscard]] Status check(const Manifest& manifest, RunId followed) const;
  /// The version is installed, and survives a power cut.
  void note_durable(const Manifest& manifest, RunId followed);

  /// The greatest version that was accepted of each run, the run of the last one at the end.
  [[nodiscard]] const std::vector<AcceptedVersion>& accepted() const { return accepted_; }

 private:
  [[nodiscard]] Version accepted_of(RunId run) const;

  const WorkerConfig& config_;
  std::vector<AcceptedVersion> accepted_;
};

}  // namespace weightcast
