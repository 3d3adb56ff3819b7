#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <vector>

#include "base/result.h"
#include "base/time.h"

namespace weightcast {

struct RewardPoolOptions {
  unsigned threads_max = 4;  ///< that work at a time
  Duration time_max = std::chrono::seconds(10);
  unsigned hanging_max = 16;  ///< threads that may be stuck beyond time_max before jobs are refused
};

/// Runs rewards and steps of environments on a bounded number of threads, each within a time. A job that takes longer
/// is given up: its caller gets an error, and its thread, which nobody can stop, no longer counts. So a job that hangs
/// costs one rollout. What a job touches must therefore belong to the job (shared_ptr), and after an error its caller
/// leaves that alone. One thread uses the pool.
class RewardPool {
 public:
  /// Errors are the job's own; an exception becomes kInvalidArgument. A job must not call the pool.
  using Job = std::function<Status()>;
  struct Outcome {
    std::uint64_t ticket;
    Status status;
  };

  explicit RewardPool(const RewardPoolOptions& options);
  /// Jobs that have not begun are dropped. Threads that are stuck stay behind.
  ~RewardPool();
  RewardPool(const RewardPool&) = delete;
  RewardPool& operator=(const RewardPool&) = delete;

  /// Returns the job's ticket; take() gives its outcome.
  std::uint64_t submit(Job job);
  /// The next outcome, in no order; absent after `limit`, or if none is outstanding. kTimedOut: the job took longer
  /// than time_max. kBusy: it never ran, as hanging_max threads are stuck.
  [[nodiscard]] std::optional<Outcome> take(Duration limit);
  /// Submits all jobs, and returns their outcomes in the jobs' order, after at most as many times time_max as a thread
  /// has jobs.
  [[nodiscard]] std::vector<Status> run_all(std::vector<Job> jobs);

  /// Jobs that were submitted, and whose outcome was not taken yet.
  [[nodiscard]] std::size_t outstanding() const { return outstanding_; }
  /// Jobs that took longer than time_max, so far.
  [[nodiscard]] std::uint64_t timed_out() const { return timed_out_; }

 private:
  struct Shared;

  const RewardPoolOptions options_;
  const std::shared_ptr<Shared> shared_;
  std::uint64_t tickets_ = 0;
  std::size_t outstanding_ = 0;
  std::uint64_t timed_out_ = 0;
};

}  // namespace weightcast
