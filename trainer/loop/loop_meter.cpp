#include "trainer/loop/loop_meter.h"

#include <algorithm>

namespace weightcast {

namespace {

CapacityOptions capacity_options(const LearnerConfig& config) {
  CapacityOptions options;
  options.rollout_batch_size = config.rollout_batch_size;
  options.publish_interval = config.publish_interval;
  options.alpha = config.provision_alpha;
  options.seed = config.seed;
  options.provisions = config.provision != Provision::kNone;
  if (config.provision == Provision::kRandom) options.activation = Activation::kRandom;
  return options;
}

}  // namespace

LoopMeter::LoopMeter(const LearnerConfig& config)
    : capacity_(capacity_options(config)), rollouts_(config.rollout_batch_size) {}

void LoopMeter::handle_workers(Instant now, std::span<const IntakeWorker> workers) {
  for (const IntakeWorker& worker : workers) {
    Instant& heard = heard_[worker.name];
    if (worker.heard == heard) continue;
    heard = worker.heard;
    CapacityReport report;
    report.name = worker.name;
    report.is_active = worker.said.is_active;
    report.generating = worker.said.weights;
    report.generating_since = worker.weights_since;
    report.admitted = worker.admitted;
    report.full_load_s = worker.said.full_load_s;
    report.under_way = worker.said.under_way;
    report.rollouts_per_s = worker.said.rollouts_per_s;
    report.price_per_hour = worker.said.price_per_hour;
    report.mu = worker.said.promised_rollouts_per_s;
    // A worker beyond those that Capacity keeps is one that the table has no room for either.
    static_cast<void>(capacity_.handle_heartbeat(now, report));
  }
  capacity_.handle_time(now);
}

std::vector<std::pair<std::string, bool>> LoopMeter::take_wanted() {
  std::vector<std::pair<std::string, bool>> wanted;
  while (const auto action = capacity_.poll_action()) {
    wanted.emplace_back(action->worker, action->kind == CapacityAction::Kind::kActivate);
  }
  return wanted;
}

void LoopMeter::set_metrics(Metrics& metrics) const {
  const CapacityFigures figures = capacity_.figures();
  metrics["bubble_ratio"] = figures.bubble_ratio;
  if (heard_.empty()) return;
  metrics["workers/alive"] = static_cast<double>(figures.workers_alive);
  metrics["workers/active"] = static_cast<double>(figures.workers_active);
  metrics["mu_eff"] = figures.mu_eff;
  const auto step = metrics.find("perf/time_per_step");
  if (step != metrics.end() && step->second > 0 && figures.mu_eff > 0) {
    metrics["workers/idle_share"] = std::max(0.0, 1 - static_cast<double>(rollouts_) / step->second / figures.mu_eff);
  }
  if (figures.mu_min) metrics["mu_min"] = *figures.mu_min;
  if (figures.bubble_predicted) metrics["bubble_predicted"] = *figures.bubble_predicted;
  if (figures.staleness_bound) metrics["s_max_bound"] = static_cast<double>(*figures.staleness_bound);
  if (figures.t_bcast_s) metrics["t_bcast"] = *figures.t_bcast_s;
}

}  // namespace weightcast
