#include "trainer/tasks/reward_pool.h"

#include <fmt/format.h>

#include <algorithm>
#include <condition_variable>
#include <deque>
#include <map>
#include <mutex>
#include <thread>

namespace weightcast {
namespace {

using Clock = std::chrono::steady_clock;

Status ended(const RewardPool::Job& job) {
  try {
    return job();
  } catch (const std::exception& exception) {
    return fail(Errc::kInvalidArgument, Op::kVerify, fmt::format("the reward threw: {}", exception.what()));
  }
}

}  // namespace

/// What the threads share. They own it together with the pool, as some of them may outlive that.
struct RewardPool::Shared : std::enable_shared_from_this<Shared> {
  std::mutex mutex;
  std::condition_variable work;      // something waits, or the pool ends
  std::condition_variable progress;  // something ended
  std::deque<std::pair<std::uint64_t, Job>> waiting;
  std::map<std::uint64_t, Clock::time_point> running;  // deadlines; a job that is given up is not in it
  std::deque<Outcome> done;
  unsigned threads = 0;  // that are not stuck
  unsigned hanging = 0;
  bool ending = false;

  /// One thread, until the pool ends or another has taken its place.
  void serve(const RewardPoolOptions& options) {
    std::unique_lock lock(mutex);
    for (;;) {
      work.wait(lock, [&] { return ending || !waiting.empty(); });
      if (ending) break;
      const std::uint64_t ticket = waiting.front().first;
      Job job = std::move(waiting.front().second);
      waiting.pop_front();
      running.emplace(ticket, Clock::now() + options.time_max);
      progress.notify_all();  // a deadline more
      lock.unlock();
      Status status = ended(job);
      job = nullptr;  // what it owns goes without the lock
      lock.lock();
      if (running.erase(ticket) != 0) {
        done.push_back({ticket, std::move(status)});
        progress.notify_all();
        continue;
      }
      // It was given up meanwhile, and another thread may have taken this one's place.
      --hanging;
      if (threads >= options.threads_max) return;
      ++threads;
    }
    --threads;
  }

  /// Starts threads for what waits. Called with the lock.
  void add_threads(const RewardPoolOptions& options) {
    const std::size_t wanted = std::min<std::size_t>(options.threads_max, running.size() + waiting.size());
    while (threads < wanted && hanging + threads < options.hanging_max + options.threads_max) {
      try {
        std::thread([self = shared_from_this(), options] { self->serve(options); }).detach();
      } catch (const std::system_error&) {
        break;  // no thread to be had: those that there are go on
      }
      ++threads;
    }
  }
};

RewardPool::RewardPool(const RewardPoolOptions& options) : options_(options), shared_(std::make_shared<Shared>()) {}

RewardPool::~RewardPool() {
  const std::lock_guard lock(shared_->mutex);
  shared_->ending = true;
  shared_->waiting.clear();
  shared_->work.notify_all();
}

std::uint64_t RewardPool::submit(Job job) {
  const std::lock_guard lock(shared_->mutex);
  ++outstanding_;
  shared_->waiting.emplace_back(tickets_, std::move(job));
  shared_->add_threads(options_);
  shared_->work.notify_one();
  return tickets_++;
}

std::optional<RewardPool::Outcome> RewardPool::take(Duration limit) {
  if (outstanding_ == 0) return std::nullopt;
  const Clock::time_point until = Clock::now() + limit;
  std::unique_lock lock(shared_->mutex);
  for (;;) {
    const Clock::time_point now = Clock::now();
    for (auto job = shared_->running.begin(); job != shared_->running.end();) {
      if (job->second > now) {
        ++job;
        continue;
      }
      shared_->done.push_back(
          {job->first,
           fail(Errc::kTimedOut, Op::kVerify,
                fmt::format("the reward took longer than {} ms",
                            std::chrono::duration_cast<std::chrono::milliseconds>(options_.time_max).count()))});
      job = shared_->running.erase(job);
      ++timed_out_;
      --shared_->threads;
      ++shared_->hanging;
    }
    shared_->add_threads(options_);
    if (shared_->threads == 0 && !shared_->waiting.empty()) {
      // No thread is left, and none will be.
      shared_->done.push_back(
          {shared_->waiting.front().first,
           fail(Errc::kBusy, Op::kVerify,
                fmt::format("{} rewards hang, so none can be computed any more; find out why, and begin again",
                            shared_->hanging))});
      shared_->waiting.pop_front();
    }
    if (!shared_->done.empty()) {
      Outcome outcome = std::move(shared_->done.front());
      shared_->done.pop_front();
      --outstanding_;
      return outcome;
    }
    if (now >= until) return std::nullopt;
    Clock::time_point wake = until;
    for (const auto& [ticket, deadline] : shared_->running) wake = std::min(wake, deadline);
    shared_->progress.wait_until(lock, wake);
  }
}

std::vector<Status> RewardPool::run_all(std::vector<Job> jobs) {
  const std::uint64_t first = tickets_;
  std::vector<Status> outcomes(jobs.size());
  for (Job& job : jobs) submit(std::move(job));
  while (outstanding_ > 0) {
    std::optional<Outcome> outcome = take(options_.time_max);
    if (outcome && outcome->ticket >= first) outcomes[outcome->ticket - first] = std::move(outcome->status);
  }
  return outcomes;
}

}  // namespace weightcast
