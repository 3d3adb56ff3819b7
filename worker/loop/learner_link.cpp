#include "worker/loop/learner_link.h"

#include <algorithm>
#include <chrono>
#include <utility>

#include "base/steady_clock.h"

namespace weightcast {
namespace {

using namespace std::chrono_literals;

constexpr Duration kReportInterval = 2s;
constexpr Duration kRetryMin = 50ms;
constexpr Duration kRetryMax = 5s;

}  // namespace

LearnerLink::LearnerLink(LearnerClient& client, std::uint64_t rollouts_per_group, WorkerLog log)
    : client_(client), rollouts_per_group_(rollouts_per_group), log_(std::move(log)), thread_([this] { run(); }) {}

LearnerLink::~LearnerLink() { stop(); }

void LearnerLink::stop() {
  {
    const std::lock_guard lock(mutex_);
    stop_ = true;
  }
  changed_.notify_all();
  if (thread_.joinable()) thread_.join();
}

void LearnerLink::set(std::uint64_t groups_wanted, const WorkerHeartbeat& report) {
  {
    const std::lock_guard lock(mutex_);
    // The learner times its broadcasts by who says first that it generates under a version.
    const bool is_switched = report.weights != report_.weights;
    if (is_switched && failures_ == 0) report_at_ = steady_now();
    // The caller does not know yet of those that were granted while it was busy.
    groups_wanted -= std::min<std::uint64_t>(groups_wanted, news_.groups.size());
    const bool is_more = groups_wanted > wanted_ || is_switched;
    wanted_ = groups_wanted;
    report_ = report;
    if (!is_more) return;
  }
  changed_.notify_all();
}

LearnerNews LearnerLink::take() {
  const std::lock_guard lock(mutex_);
  return std::exchange(news_, {});
}

void LearnerLink::wait(Duration limit) {
  std::unique_lock lock(mutex_);
  has_news_.wait_for(lock, limit, [&] { return !news_.groups.empty() || news_.learner || news_.wrong_run; });
}

void LearnerLink::run() {
  std::unique_lock lock(mutex_);
  while (!stop_) {
    const Instant now = steady_now();
    if (now >= report_at_) {
      report(lock);
    } else if (wanted_ > 0 && now >= ask_at_) {
      ask(lock);
    } else {
      const Instant next = wanted_ > 0 ? std::min(ask_at_, report_at_) : report_at_;
      changed_.wait_for(lock, std::max<Duration>(next - now, 1ms));
    }
  }
}

void LearnerLink::ask(std::unique_lock<std::mutex>& lock) {
  const std::uint64_t groups = wanted_;
  lock.unlock();
  Result<StartedGroups> started = client_.start(groups, rollouts_per_group_);
  lock.lock();
  if (!started.has_value()) return handle_error(started.error());
  // What was granted is not wanted any more, until the caller says so again.
  wanted_ -= std::min<std::uint64_t>(wanted_, started->groups.size());
  ask_at_ = steady_now() + std::max(started->groups.empty() ? kRetryMin : Duration::zero(), started->retry);
  handle_learner(std::move(started->learner));
  news_.groups.insert(news_.groups.end(), started->groups.begin(), started->groups.end());
}

void LearnerLink::report(std::unique_lock<std::mutex>& lock) {
  const WorkerHeartbeat report = report_;
  lock.unlock();
  Result<LearnerState> learner = client_.heartbeat(report);
  lock.lock();
  // A version that came during the call is told of at once, too.
  report_at_ = steady_now() + (report_.weights == report.weights ? kReportInterval : Duration::zero());
  if (!learner.has_value()) return handle_error(learner.error());
  handle_learner(std::move(*learner));
}

void LearnerLink::handle_learner(LearnerState learner) {
  if (failures_ > 0) log_.info("the learner is back");
  failures_ = 0;
  // It has forgotten that it gave these.
  if (learner.has_restarted) news_.groups.clear();
  if (news_.learner) {
    learner.has_restarted = learner.has_restarted || news_.learner->has_restarted;
    learner.abort.insert(learner.abort.end(), news_.learner->abort.begin(), news_.learner->abort.end());
  }
  news_.learner = std::move(learner);
  has_news_.notify_all();
}

void LearnerLink::handle_error(const Error& error) {
  const Duration pause = std::min<Duration>(kRetryMax, kRetryMin * (1 << std::min<std::uint32_t>(failures_, 10)));
  ask_at_ = report_at_ = steady_now() + pause;
  if (failures_++ == 0) log_.warn("the learner does not answer, and is asked again: " + error.message());
  if (error.code != Errc::kWrongBase) return;
  news_.wrong_run = error;
  has_news_.notify_all();
}

}  // namespace weightcast
