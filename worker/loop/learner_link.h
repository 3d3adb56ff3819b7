#pragma once

#include <condition_variable>
#include <cstdint>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "base/time.h"
#include "worker/learner/learner_client.h"
#include "worker/loop/worker_log.h"

namespace weightcast {

/// What the learner has said since it was asked last.
struct LearnerNews {
  std::vector<StartedGroup> groups;
  std::optional<LearnerState> learner;  ///< the newest; `abort` has the numbers of all of them
  std::optional<Error> wrong_run;       ///< the learner is at another run: this one is over
};

/// Talks to the learner on a thread of its own, so that generation waits for no answer: asks for groups while some are
/// wanted, and reports every two seconds and at each new version. While the learner is away it tries again, at most
/// every five seconds.
class LearnerLink {
 public:
  /// `client` outlives it. `log` hears when the learner goes away, and when it is back; from the link's thread.
  LearnerLink(LearnerClient& client, std::uint64_t rollouts_per_group, WorkerLog log);
  /// stop()
  ~LearnerLink();
  LearnerLink(const LearnerLink&) = delete;
  LearnerLink& operator=(const LearnerLink&) = delete;

  /// So many groups are wanted now, beside those that were taken, and this is what to report.
  void set(std::uint64_t groups_wanted, const WorkerHeartbeat& report);
  [[nodiscard]] LearnerNews take();
  /// Until there are news, or `limit` is over.
  void wait(Duration limit);
  /// Waits for the call that is running, and makes no more. take() has what it brought. Harmless if repeated.
  void stop();

 private:
  void run();
  void ask(std::unique_lock<std::mutex>& lock);
  void report(std::unique_lock<std::mutex>& lock);
  void handle_error(const Error& error);
  void handle_learner(LearnerState learner);

  LearnerClient& client_;
  const std::uint64_t rollouts_per_group_;
  const WorkerLog log_;
  std::mutex mutex_;
  std::condition_variable changed_, has_news_;
  bool stop_ = false;
  std::uint64_t wanted_ = 0;
  WorkerHeartbeat report_;
  LearnerNews news_;
  Instant ask_at_{};
  Instant report_at_{};
  std::uint32_t failures_ = 0;  // in a row
  std::thread thread_;
};

}  // namespace weightcast
