#include "worker/loop/worker_metrics.h"

#include <string_view>
#include <utility>

namespace weightcast {
namespace {

using enum MetricsText::Type;

constexpr std::array<std::string_view, 4> kIdleNames = {"version", "learner", "room", "environments"};  // as IdleFor

/// What became of rollouts that had begun.
constexpr std::pair<std::string_view, std::uint64_t SchedulerStats::*> kOutcomes[] = {
    {"sent", &SchedulerStats::sent},   {"forgotten", &SchedulerStats::forgotten}, {"surplus", &SchedulerStats::surplus},
    {"stale", &SchedulerStats::stale}, {"suspended", &SchedulerStats::suspended}, {"failed", &SchedulerStats::failed},
    {"late", &SchedulerStats::late},   {"abandoned", &SchedulerStats::abandoned}};

}  // namespace

void WorkerMetrics::write(MetricsText& text) const {
  const WorkerFigures now = [this] {
    const std::scoped_lock lock(mutex_);
    return figures_;
  }();
  add_version_metrics(text, now.version, now.installs);
  if (now.has_engine) {
    add_engine_metrics(text, now.loop.engine);
  } else {
    text.add("worker_running", kGauge, "Requests that the server has, or that wait for it.", now.answering);
    text.add("worker_answer_tokens_total", kCounter, "Tokens sampled.", now.loop.tokens);
  }
  text.add("worker_wanted", kGauge, "1 if the learner wants it to roll out.", std::uint64_t{now.is_wanted ? 1u : 0u});
  text.add("worker_rollouts_under_way", kGauge, "Rollouts that have begun and are neither sent nor given up.",
           now.under_way);
  text.family("worker_rollouts_total", kCounter,
              "Attempts at rollouts that have ended, by what became of them (docs/METRICS.md).");
  for (const auto& [outcome, of] : kOutcomes) text.sample({{"outcome", outcome}}, now.loop.scheduler.*of);
  text.add("worker_failures_total", kCounter, "Prompts, answers and rewards that failed; the log has the last.",
           now.loop.failures);
  text.add("worker_rollouts_finished_total", kCounter, "Rollouts to be sent to the learner.", now.sent);
  text.add("worker_rollouts_acknowledged_total", kCounter, "Rollouts that the learner has admitted.",
           now.learner.acknowledged);
  text.family("worker_rollouts_refused_total", kCounter, "Rollouts that the learner has refused for good, by reason.");
  for (const auto& [reason, count] : now.learner.refused_by_reason) text.sample({{"reason", reason}}, count);
  text.add("worker_rollouts_lost_total", kCounter,
           "Rollouts that were too old before they were sent, or of a learner that was restarted.",
           now.learner.dropped);
  text.add("worker_waiting_rollouts", kGauge, "Rollouts that the learner has not judged yet.", now.learner.waiting);
  text.add("worker_waiting_bytes", kGauge, "What they take in memory.", now.learner.waiting_bytes);
  text.family("worker_idle_seconds_total", kCounter,
              "Time in which nothing could be generated, by what it waited for.");
  for (std::size_t i = 0; i < kIdleNames.size(); ++i) text.sample({{"for", kIdleNames[i]}}, to_seconds(now.idle[i]));
}

}  // namespace weightcast
