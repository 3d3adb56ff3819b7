#include "trainer/capacity/capacity.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "base/text.h"

namespace weightcast {
namespace {

constexpr std::size_t kStepsOfMedian = 5;
constexpr std::size_t kPublicationsMax = 64;
constexpr std::size_t kReadingsMax = 1024;

/// Of values, at least one.
double median(std::vector<double> values) {
  const auto middle = values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2);
  std::nth_element(values.begin(), middle, values.end());
  if (values.size() % 2 == 1) return *middle;
  return (*middle + *std::max_element(values.begin(), middle)) / 2;
}

}  // namespace

Status Capacity::handle_heartbeat(Instant now, const CapacityReport& report) {
  charge(now);
  auto worker = workers_.find(report.name);
  if (worker == workers_.end()) {
    if (workers_.size() >= options_.workers_max) {
      return fail(Errc::kTooLarge, Op::kJoin,
                  fmt::format("worker '{}': {} workers are known already", printable(report.name), workers_.size()));
    }
    worker = workers_.try_emplace(report.name).first;
  }
  Worker& w = worker->second;
  const bool was_active = w.is_alive && w.last.is_active;
  read(w, now, report);
  w.last = report;
  w.heard = now;
  w.is_alive = true;
  if (report.is_active) w.activated.reset();
  if (was_active != report.is_active) pool_changed();
  measure_broadcasts();
  return {};
}

void Capacity::handle_step(Instant now, Duration training, Duration waiting) {
  charge(now);
  training_s_ += to_seconds(training);
  waiting_s_ += to_seconds(waiting);
  if (steps_since_change_ == 0) steps_s_.clear();
  ++steps_since_change_;
  steps_s_.push_back(to_seconds(training));
  if (steps_s_.size() > kStepsOfMedian) steps_s_.erase(steps_s_.begin());
  if (steps_s_.size() == kStepsOfMedian) step_s_ = median(steps_s_);
}

void Capacity::handle_published(Instant now, Version version) {
  publications_.push_back({version, now});
  if (publications_.size() > kPublicationsMax) publications_.pop_front();
}

void Capacity::handle_time(Instant now) {
  charge(now);
  bool is_urgent = false;
  for (auto at = workers_.begin(); at != workers_.end(); ++at) {
    Worker& worker = at->second;
    if (worker.is_alive && now - worker.heard >= options_.heartbeat_max) {
      is_urgent = is_urgent || counts(worker);
      handle_death(at);
    } else if (worker.activated && now - *worker.activated >= options_.activation_time_max) {
      worker.activated.reset();
      worker.not_before = now + options_.activation_time_max;
      act(CapacityAction::Kind::kRelease, at->first);
      is_urgent = true;
    }
  }
  if (options_.provisions) provision(now, is_urgent);
}

std::optional<CapacityAction> Capacity::poll_action() {
  if (actions_.empty()) return std::nullopt;
  CapacityAction action = std::move(actions_.front());
  actions_.pop_front();
  return action;
}

CapacityFigures Capacity::figures() const {
  CapacityFigures figures;
  figures.step_s = step_s_;
  if (!broadcasts_s_.empty()) figures.t_bcast_s = median({broadcasts_s_.begin(), broadcasts_s_.end()});
  figures.mu_eff = mu_eff();
  double under_way = 0, finished_per_s = 0;
  for (const auto& [name, worker] : workers_) {
    if (!worker.is_alive || !worker.last.is_active || worker.last.rollouts_per_s <= 0) continue;
    under_way += static_cast<double>(worker.last.under_way);
    finished_per_s += worker.last.rollouts_per_s;
  }
  if (finished_per_s > 0) figures.rollout_s = under_way / finished_per_s;
  if (const auto known = rates()) {
    figures.mu_min = mu_min(*known);
    if (figures.mu_eff > 0) {
      figures.staleness_bound = staleness_bound_of_oldest_token(*known, figures.mu_eff, figures.rollout_s);
      figures.bubble_predicted = weightcast::bubble_ratio(*known, figures.mu_eff);
    }
  }
  const double all_s = training_s_ + waiting_s_;
  figures.bubble_ratio = all_s > 0 ? waiting_s_ / all_s : 0;
  figures.cost_total = cost_;
  for (const auto& [name, worker] : workers_) {
    figures.workers_alive += worker.is_alive ? 1 : 0;
    figures.workers_active += worker.is_alive && worker.last.is_active ? 1 : 0;
  }
  return figures;
}

std::optional<double> Capacity::mu_of(const std::string& name) const {
  const auto worker = workers_.find(name);
  return worker == workers_.end() ? std::nullopt : worker->second.mu;
}

void Capacity::read(Worker& worker, Instant now, const CapacityReport& report) {
  auto& readings = worker.readings;
  // A worker that began anew counts from 0. What it did while it was not active, or dead, belongs to no window.
  const bool is_continued = !readings.empty() && worker.is_alive && report.admitted >= readings.back().admitted &&
                            report.full_load_s >= readings.back().full_load_s;
  if (!is_continued || !report.is_active) readings.clear();
  if (!report.is_active) return;
  readings.push_back({now, report.admitted, report.full_load_s});
  while (readings.size() > 2 && (readings[1].at <= now - options_.window || readings.size() > kReadingsMax)) {
    readings.pop_front();
  }
  const double full_load_s = readings.back().full_load_s - readings.front().full_load_s;
  // Half a window of heartbeats, so that the first rollouts alone do not make a rate.
  if (now - readings.front().at < options_.window / 2 || full_load_s <= 0) return;
  worker.mu = static_cast<double>(readings.back().admitted - readings.front().admitted) / full_load_s;
}

void Capacity::handle_death(Workers::iterator at) {
  Worker& worker = at->second;
  if (counts(worker)) {
    act(CapacityAction::Kind::kRelease, at->first);
    pool_changed();
  }
  worker.is_alive = false;
  worker.last.is_active = false;
  worker.activated.reset();
  worker.readings.clear();
}

void Capacity::charge(Instant now) {
  if (charged_ && now > *charged_) {
    const double hours = to_seconds(now - *charged_) / 3600;
    cost_ += hours * options_.learner_price_per_hour;
    for (const auto& [name, worker] : workers_) {
      if (counts(worker)) cost_ += hours * worker.last.price_per_hour;
    }
  }
  if (!charged_ || now > *charged_) charged_ = now;
}

void Capacity::measure_broadcasts() {
  while (!publications_.empty()) {
    const Publication& oldest = publications_.front();
    std::size_t active = 0;
    std::vector<Instant> since;
    for (const auto& [name, worker] : workers_) {
      if (!worker.is_alive || !worker.last.is_active) continue;
      ++active;
      if (worker.last.generating >= oldest.version) since.push_back(worker.last.generating_since);
    }
    const auto wanted =
        static_cast<std::size_t>(std::ceil(options_.t_bcast_share * static_cast<double>(active) - 1e-9));
    if (active == 0 || since.size() < wanted) return;
    // The one that completes the share. It may have said so long ago: the caller was busy with a training step.
    const auto last = since.begin() + static_cast<std::ptrdiff_t>(wanted) - 1;
    std::nth_element(since.begin(), last, since.end());
    broadcasts_s_.push_back(std::max(0.0, to_seconds(*last - oldest.at)));
    if (broadcasts_s_.size() > kStepsOfMedian) broadcasts_s_.pop_front();
    publications_.pop_front();
  }
}

std::optional<LoopRates> Capacity::rates() const {
  if (!step_s_) return std::nullopt;
  const double t_bcast_s = broadcasts_s_.empty() ? 0 : median({broadcasts_s_.begin(), broadcasts_s_.end()});
  return LoopRates{*step_s_, static_cast<double>(options_.rollout_batch_size), t_bcast_s, options_.publish_interval};
}

double Capacity::expected_mu(const Worker& worker) const {
  if (worker.mu) return *worker.mu;
  if (worker.last.mu > 0) return worker.last.mu;
  std::vector<double> others;
  for (const auto& [name, other] : workers_) {
    if (other.mu) others.push_back(*other.mu);
  }
  return others.empty() ? 0 : median(others);
}

double Capacity::mu_eff() const {
  double mu = 0;
  for (const auto& [name, worker] : workers_) {
    if (counts(worker)) mu += expected_mu(worker);
  }
  return mu;
}

void Capacity::provision(Instant now, bool is_urgent) {
  const auto known = rates();
  if (!known) {
    // Nothing says yet how few would do, and without rollouts there are no steps to measure.
    activate_until(now, std::numeric_limits<double>::infinity());
    return;
  }
  const double target = options_.alpha * mu_min(*known), mu = mu_eff();
  if (!reaches(mu, target)) {
    excess_since_.reset();
    if (!short_since_) short_since_ = now;
    if (!is_urgent && now - *short_since_ < options_.sustained) return;
    short_since_ = now;  // if this is not enough, there is nobody left: newcomers are taken after another while
    activate_until(now, target);
    return;
  }
  short_since_.reset();
  const double kept = target * (1 + options_.release_margin);
  double rest_max = 0;
  for (const auto& [name, worker] : workers_) {
    if (counts(worker)) rest_max = std::max(rest_max, mu - expected_mu(worker));
  }
  if (rest_max <= 0 || !reaches(rest_max, kept)) {
    excess_since_.reset();
  } else if (!excess_since_) {
    excess_since_ = now;
  } else if (now - *excess_since_ >= options_.sustained) {
    excess_since_ = now;  // one at a time, so that the next decision sees what this one did
    release_one(kept);
  }
}

void Capacity::activate_until(Instant now, double target) {
  std::vector<PoolWorker> standby;
  for (const auto& [name, worker] : workers_) {
    if (!worker.is_alive || counts(worker) || (worker.not_before && now < *worker.not_before)) continue;
    standby.push_back({name, expected_mu(worker), worker.last.price_per_hour});
  }
  double mu = mu_eff();
  for (const std::size_t next : activation_order(standby, options_.activation, options_.seed)) {
    if (reaches(mu, target)) return;
    Worker& worker = workers_.at(standby[next].name);
    worker.activated = now;
    mu += standby[next].mu;
    act(CapacityAction::Kind::kActivate, standby[next].name);
    pool_changed();
    // What nothing is known of is measured first, before another one is paid for.
    if (standby[next].mu <= 0 && std::isfinite(target)) return;
  }
}

void Capacity::release_one(double kept) {
  std::vector<PoolWorker> active;
  for (const auto& [name, worker] : workers_) {
    if (counts(worker)) active.push_back({name, expected_mu(worker), worker.last.price_per_hour});
  }
  const double mu = mu_eff();
  const auto order = activation_order(active, options_.activation, options_.seed);
  for (auto last = order.rbegin(); last != order.rend(); ++last) {
    if (!reaches(mu - active[*last].mu, kept)) continue;
    Worker& worker = workers_.at(active[*last].name);
    worker.activated.reset();
    worker.last.is_active = false;
    worker.readings.clear();
    act(CapacityAction::Kind::kRelease, active[*last].name);
    pool_changed();
    return;
  }
}

}  // namespace weightcast
