#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "base/ids.h"
#include "base/time.h"
#include "worker/learner/worker_heartbeat.h"

namespace weightcast {

/// What the learner knows of one worker.
struct IntakeWorker {
  std::string name;
  std::string incarnation = {};              ///< another one after each start of the worker
  WorkerHeartbeat said{.is_active = false};  ///< last; before that, that it does not roll out
  Instant weights_since{};  ///< when it was first heard under these weights; without any, when it was first heard
  // By the learner.
  std::uint64_t admitted = 0;                         ///< rollouts, in this life of the learner
  std::map<std::string, std::uint64_t> refused = {};  ///< the same, by the buffer's reasons
  Instant heard{};
  bool is_silent = false;                 ///< for so long that what it had started was given up
  bool knows_end = false;                 ///< it was told that the run has ended
  bool is_wanted = true;                  ///< it is to roll out
  std::vector<std::uint64_t> abort = {};  ///< rollouts that it is to stop, and was not told yet
};

/// The workers that the learner has heard of. Pure. Bounded: a stranger's name takes the place of the one that has been
/// silent longest, if that is silent at all.
class WorkerTable {
 public:
  static constexpr std::size_t kWorkersMax = 10'000;
  static constexpr std::size_t kAbortsMax =
      10'000;  ///< of one worker; further ones are refused as stale when they come

  explicit WorkerTable(Duration silence_max) : silence_max_(silence_max) {}

  /// The row of a worker that says something now; null if there is no room.
  [[nodiscard]] IntakeWorker* handle_heard(Instant now, const std::string& name);
  [[nodiscard]] IntakeWorker* find(const std::string& name);
  /// Names of those that have become silent since the last call.
  [[nodiscard]] std::vector<std::string> poll_silent(Instant now);
  [[nodiscard]] std::vector<IntakeWorker> all() const;
  [[nodiscard]] std::size_t size() const { return workers_.size(); }

 private:
  const Duration silence_max_;
  std::map<std::string, IntakeWorker> workers_;
};

}  // namespace weightcast
