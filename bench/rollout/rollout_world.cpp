#include "bench/rollout/rollout_world.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <numbers>
#include <optional>
#include <queue>
#include <utility>

#include "base/random.h"
#include "bench/rollout/ablated_schedulers.h"
#include "bench/rollout/simulated_engine.h"
#include "bench/rollout/world_options.h"
#include "trainer/replay/replay_buffer.h"

namespace weightcast::bench {
namespace {

/// Numbers that follow from what they are for, not from the order in which they are drawn: so all ways of scheduling
/// see the same responses and environments.
Random random_for(std::uint64_t seed, const RolloutKey& rollout, std::uint64_t turn, std::uint64_t purpose) {
  Random random(seed);
  std::uint64_t mixed = random.next();
  for (const std::uint64_t part :
       {rollout.group, std::uint64_t{rollout.member}, std::uint64_t{rollout.attempt}, turn, purpose}) {
    mixed = Random(mixed ^ (part + 1)).next();
  }
  return Random(mixed);
}

double gaussian(Random& random) {
  const double u = 1 - random.unit(), v = random.unit();
  return std::sqrt(-2 * std::log(u)) * std::cos(2 * std::numbers::pi * v);
}

SchedulerStats sum_of(SchedulerStats a, const SchedulerStats& b) {
  for (const auto member :
       {&SchedulerStats::begun, &SchedulerStats::sent, &SchedulerStats::forgotten, &SchedulerStats::surplus,
        &SchedulerStats::stale, &SchedulerStats::suspended, &SchedulerStats::failed, &SchedulerStats::late,
        &SchedulerStats::abandoned, &SchedulerStats::groups_done, &SchedulerStats::groups_filtered,
        &SchedulerStats::groups_dropped}) {
    a.*member += b.*member;
  }
  return a;
}

template <typename Scheduler>
class World {
 public:
  World(const RolloutWorldOptions& options, const std::vector<Scheduler>& schedulers, ReplayBuffer buffer)
      : o_(options), buffer_(std::move(buffer)), width_(o_.scheduler.group_size + o_.scheduler.group_size_redundancy) {
    Random random(o_.seed ^ 0x5eed);
    for (std::uint32_t w = 0; w < o_.workers; ++w) {
      Worker& worker = workers_.emplace_back(Worker{.name = fmt::format("w{}", w), .scheduler = schedulers[w]});
      for (std::uint32_t e = 0; e < o_.scheduler.engines; ++e) {
        const double factor = random.chance(o_.slow_gpu_share) ? o_.slow_gpu_factor : 1;
        worker.engines.push_back({SimulatedEngine(o_.token_slowdown, factor), 0, factor});
      }
    }
    for (const WorkerChange& change : o_.changes) {
      if (change.kind == WorkerChange::Kind::kJoins) workers_[change.worker].is_there = false;
    }
  }

  Result<RolloutWorldResult> run() {
    for (std::uint64_t i = 0; i < o_.changes.size(); ++i) schedule(o_.changes[i].at_s, Kind::kChange, {}, i);
    buffer_.handle_step(version());
    buffer_.handle_published(version());
    for (Worker& worker : workers_) tell_version(worker);
    tell_step();
    buffer_.handle_broadcast_time(o_.t_bcast_s);
    buffer_.handle_wanted(instant());
    work();
    while (steps_.size() < o_.warm_up_steps + o_.steps) {
      std::optional<Instant> deadline;
      for (const Worker& worker : workers_) {
        const auto its = worker.is_there ? worker.scheduler.poll_deadline() : std::nullopt;
        if (its) deadline = deadline ? std::min(*deadline, *its) : *its;
      }
      if (deadline && (events_.empty() || to_seconds(deadline->time_since_epoch()) < events_.top().at)) {
        move_to(to_seconds(deadline->time_since_epoch()));
        for (Worker& worker : workers_) {
          if (worker.is_there) worker.scheduler.handle_time(*deadline);
        }
      } else if (!events_.empty() && !is_stuck()) {
        const Event event = events_.top();
        events_.pop();
        move_to(event.at);
        handle(event);
      } else {
        return fail(Errc::kTimedOut, Op::kVerify,
                    fmt::format("after {} steps nothing happens any more", steps_.size()));
      }
      if (now_ > to_seconds(kWorldTimeMax)) {
        return fail(Errc::kTimedOut, Op::kVerify, fmt::format("{} steps take more than ten years", steps_.size() + 1));
      }
      work();
    }
    return result();
  }

 private:
  enum class Kind { kEngine, kObserved, kFinished, kTrained, kInstalled, kAsk, kLost, kChange };
  struct Event {
    double at = 0;
    std::uint64_t order = 0;
    Kind kind{};
    RolloutKey rollout;        // of kObserved, kFinished
    std::uint64_t what = 0;    // the engine, the version that is installed, or the change
    std::uint64_t epoch = 0;   // of the engine, when this was foreseen
    std::uint32_t worker = 0;  // of kEngine, kAsk, kLost

    bool operator<(const Event& other) const { return std::pair(at, order) > std::pair(other.at, other.order); }
  };
  struct Running {
    double since = 0;
    std::uint32_t engine = 0;
  };
  struct Made {
    double slot_s = 0;
    std::uint32_t turn = 0;
    std::uint64_t version = 0;  // under which it began
    bool is_dead = false;
  };
  struct Engine {
    SimulatedEngine engine;
    std::uint64_t epoch = 0;
    double factor = 1;
  };
  struct Worker {
    std::string name;
    Scheduler scheduler;
    std::vector<Engine> engines = {};
    bool is_there = true;
    bool will_ask = false;  // there is an event for it
    std::uint64_t next_sequence = 0;
  };
  struct Granted {
    std::uint32_t worker = 0;
    std::uint64_t first_sequence = 0;
    double leased_at = 0, whole_at = 0;
    double slot_s = 0;   // of what was sent
    double alone_s = 0;  // the longest of these, if nothing had kept it waiting
  };

  // As weightcast-engine asks again, and as the learner's port takes a worker for dead.
  static constexpr double kRetryMin_s = 0.05, kRetryPerWorker_s = 0.002, kRetryMax_s = 2, kSilence_s = 20;

  [[nodiscard]] bool is_synchronous() const { return o_.train_share == 0; }
  [[nodiscard]] Version version() const { return Version{1 + step_}; }
  [[nodiscard]] Instant instant() const { return Instant(from_seconds(now_)); }
  void schedule(double at, Kind kind, const RolloutKey& rollout = {}, std::uint64_t what = 0, std::uint64_t epoch = 0,
                std::uint32_t worker = 0) {
    // In whole nanoseconds, as the scheduler sees it.
    events_.push({to_seconds(from_seconds(at)), next_order_++, kind, rollout, what, epoch, worker});
    asks_ += kind == Kind::kAsk ? 1 : 0;
  }
  /// Nothing but workers that ask in vain, while the learner waits for a version that nobody will publish.
  [[nodiscard]] bool is_stuck() const {
    return asks_ == events_.size() && !is_training_ && buffer_.supply() == Supply::kExhausted;
  }
  void move_to(double at) {
    const double span = at - now_;
    if (!is_suspended_) {
      for (const Worker& worker : workers_) {
        if (worker.is_there) open_slot_s_ += span * static_cast<double>(worker.scheduler.slots());
      }
    }
    now_ = at;
  }
  void foresee(std::uint32_t worker, std::uint32_t engine) {
    Engine& one = workers_[worker].engines[engine];
    ++one.epoch;
    if (const auto next = one.engine.next()) {
      schedule(std::max(now_, next->first), Kind::kEngine, next->second, engine, one.epoch, worker);
    }
  }
  [[nodiscard]] Worker& worker_of(const RolloutKey& rollout) { return workers_[granted_.at(rollout.group).worker]; }

  void tell_version(Worker& worker) {
    for (std::uint32_t e = 0; e < worker.engines.size(); ++e) {
      if (worker.is_there) worker.scheduler.handle_version(instant(), e, Version{installs_.back().second});
    }
  }
  void tell_step() {
    for (Worker& worker : workers_) {
      if (worker.is_there) worker.scheduler.handle_step(instant(), version());
    }
  }

  void handle(const Event& event) {
    const auto is_gone = [&] {
      const auto granted = granted_.find(event.rollout.group);
      return granted == granted_.end() || !workers_[granted->second.worker].is_there;
    };
    switch (event.kind) {
      case Kind::kEngine:
        if (event.epoch != workers_[event.worker].engines[event.what].epoch) return;
        end_generation(event.rollout);
        last_generated_ = now_;
        worker_of(event.rollout).scheduler.handle_generated(instant(), event.rollout);
        break;
      case Kind::kObserved:
        if (is_gone()) return;
        if (const auto made = made_.find(event.rollout); made != made_.end()) ++made->second.turn;
        worker_of(event.rollout).scheduler.handle_observation(instant(), event.rollout);
        break;
      case Kind::kFinished:
        if (is_gone()) return;
        worker_of(event.rollout).scheduler.handle_finished(instant(), event.rollout, reward_of(event.rollout));
        break;
      case Kind::kTrained: end_step(); break;
      case Kind::kInstalled:
        installs_.emplace_back(now_, std::max(installs_.back().second, event.what));
        if (--broadcasts_ == 0) pause(false);
        for (Worker& worker : workers_) tell_version(worker);
        if (is_synchronous()) resume();
        break;
      case Kind::kAsk:
        --asks_;
        workers_[event.worker].will_ask = false;
        break;
      case Kind::kLost: buffer_.handle_worker_lost(workers_[event.worker].name); break;
      case Kind::kChange: change(o_.changes[event.what]); break;
    }
  }

  void change(const WorkerChange& what) {
    Worker& worker = workers_[what.worker];
    switch (what.kind) {
      case WorkerChange::Kind::kJoins:
        worker.is_there = true;
        tell_version(worker);
        worker.scheduler.handle_step(instant(), version());
        break;
      case WorkerChange::Kind::kDies: {
        std::vector<RolloutKey> lost;
        for (const auto& [rollout, made] : made_) {
          if (granted_.at(rollout.group).worker == what.worker) lost.push_back(rollout);
        }
        for (const RolloutKey& rollout : lost) waste(rollout);
        worker.is_there = false;
        schedule(now_ + kSilence_s, Kind::kLost, {}, 0, 0, what.worker);
        break;
      }
      case WorkerChange::Kind::kSlows:
        for (std::uint32_t e = 0; e < worker.engines.size(); ++e) {
          worker.engines[e].engine.set_factor(now_, worker.engines[e].factor * what.factor);
          foresee(what.worker, e);
        }
        break;
    }
  }

  /// Does what the schedulers say, leases groups and takes batches, until nothing changes.
  void work() {
    for (bool is_changed = true; is_changed;) {
      is_changed = false;
      for (std::uint32_t w = 0; w < workers_.size(); ++w) {
        if (!workers_[w].is_there) continue;
        while (const auto action = workers_[w].scheduler.poll_action()) {
          perform(w, *action);
          is_changed = true;
        }
      }
      while (const auto id = buffer_.poll_abort()) abort(*id);
      if (!is_training_) is_changed = take_batch() || is_changed;
      // In another order each time, as they would ask.
      first_to_ask_ = (first_to_ask_ + 1) % workers_.size();
      for (std::size_t i = 0; i < workers_.size(); ++i) {
        is_changed = ask(static_cast<std::uint32_t>((first_to_ask_ + i) % workers_.size())) || is_changed;
      }
    }
  }

  /// Asks for groups, as a worker does that has room for them.
  bool ask(std::uint32_t w) {
    Worker& worker = workers_[w];
    if (!worker.is_there || is_suspended_) return false;
    const std::uint64_t wanted = worker.scheduler.groups_wanted();
    if (wanted == 0 || worker.will_ask) return false;
    const std::uint64_t granted = buffer_.leasable(instant(), worker.name, wanted);
    for (std::uint64_t i = 0; i < granted; ++i) {
      const Version least = buffer_.lease(instant(), worker.name, next_group_, worker.next_sequence, width_);
      granted_[next_group_] = {.worker = w, .first_sequence = worker.next_sequence, .leased_at = now_};
      worker.next_sequence += width_;
      worker.scheduler.handle_groups(instant(), next_group_++, 1, least);
    }
    // One worker stands for a scheduler that sees the buffer: it knows at once.
    if (granted == 0 && (workers_.size() > 1 || !o_.scheduler.async_generation_ratio) && !is_synchronous()) {
      worker.will_ask = true;
      const double retry_s =
          std::clamp(kRetryPerWorker_s * static_cast<double>(workers_.size()), kRetryMin_s, kRetryMax_s);
      schedule(now_ + retry_s, Kind::kAsk, {}, 0, 0, w);
    }
    return granted > 0;
  }

  void abort(const RolloutId& id) {
    for (const auto& [group, granted] : granted_) {
      const Worker& worker = workers_[granted.worker];
      if (worker.name != id.first || id.second < granted.first_sequence ||
          id.second >= granted.first_sequence + width_) {
        continue;
      }
      if (worker.is_there) workers_[granted.worker].scheduler.handle_group_abandoned(instant(), group);
      return;
    }
  }

  void perform(std::uint32_t w, const RolloutAction& action) {
    const RolloutKey& rollout = action.rollout;
    switch (action.kind) {
      case RolloutAction::Kind::kGenerate: {
        Made& made = made_[rollout];
        if (made.turn == 0) {
          made.version = installs_.back().second;
          made.is_dead = random_for(o_.seed, rollout, 0, 3).chance(o_.dead_environment_share);
        }
        running_[rollout] = {now_, action.engine};
        workers_[w].engines[action.engine].engine.begin(now_, rollout, o_.token_s * tokens_of(rollout, made.turn));
        foresee(w, action.engine);
        break;
      }
      case RolloutAction::Kind::kStep: {
        const Made& made = made_.at(rollout);
        const bool is_last = made.turn + 1 >= o_.turns;
        if (made.is_dead) return;  // it never answers
        const double answer_s = environment_s(rollout, made.turn);
        schedule(now_ + answer_s + (is_last ? o_.reward_s : 0), is_last ? Kind::kFinished : Kind::kObserved, rollout);
        break;
      }
      case RolloutAction::Kind::kAbort:
      case RolloutAction::Kind::kForget: waste(rollout); break;
      case RolloutAction::Kind::kSend: send(w, rollout); break;
      case RolloutAction::Kind::kGroupDone:
      case RolloutAction::Kind::kGroupDropped: {
        // A worker tells what it will not send.
        const Granted& granted = granted_.at(rollout.group);
        for (std::uint64_t i = 0; i < width_; ++i) {
          buffer_.handle_abandoned({workers_[w].name, granted.first_sequence + i});
        }
        break;
      }
    }
  }

  void send(std::uint32_t w, const RolloutKey& rollout) {
    const auto made = made_.find(rollout);
    Granted& granted = granted_.at(rollout.group);
    Trajectory t;
    t.worker = workers_[w].name;
    t.sequence = granted.first_sequence + rollout.member;
    t.group = fmt::format("#{}", rollout.group);
    t.tokens = {1, 2};
    t.response_mask = {0, 1};
    t.logprobs = {-1};
    t.oldest_version = Version{made->second.version};
    t.version_runs = {{t.oldest_version, 1}};
    t.reward = reward_of(rollout);
    if (buffer_.handle_trajectory(instant(), std::move(t)).admission == AdmissionOutcome::kAdmitted) {
      granted.slot_s += made->second.slot_s;
      granted.alone_s = std::max(granted.alone_s, alone_s(rollout));
      granted.whole_at = now_;
    } else {
      wasted_s_ += made->second.slot_s;
    }
    made_.erase(made);
  }

  void end_generation(const RolloutKey& rollout) {
    const auto running = running_.find(rollout);
    const double seconds = now_ - running->second.since;
    made_.at(rollout).slot_s += seconds;
    step_record_.slot_s += seconds;
    step_record_.longest_s = std::max(step_record_.longest_s, seconds);
    const std::uint32_t engine = running->second.engine;
    worker_of(rollout).engines[engine].engine.stop(now_, rollout);
    running_.erase(running);
    foresee(granted_.at(rollout.group).worker, engine);
  }

  void waste(const RolloutKey& rollout) {
    if (running_.contains(rollout)) end_generation(rollout);
    const auto made = made_.find(rollout);
    wasted_s_ += made->second.slot_s;
    made_.erase(made);
  }

  bool take_batch() {
    const auto batch = buffer_.take_batch(instant());
    if (!batch) return false;
    double lag_sum = 0, floor_sum = 0, seconds = 0;
    for (const RolloutGroup& group : *batch) {
      for (const Trajectory& t : group.rollouts) {
        const std::uint64_t lag = version().value - t.oldest_version.value;
        lag_sum += static_cast<double>(lag);
        step_record_.staleness_max = std::max(step_record_.staleness_max, lag);
      }
      Granted& granted = granted_.at(std::stoull(group.tag.substr(1)));
      granted.slot_s = 0;  // it was of use
      seconds += granted.whole_at - granted.leased_at;
      const std::uint64_t newest = installed_at(now_ - granted.alone_s);
      floor_sum += static_cast<double>((version().value - newest) * group.rollouts.size());
    }
    step_record_.staleness_mean = lag_sum / static_cast<double>(o_.rollout_batch_size);
    step_record_.staleness_floor = floor_sum / static_cast<double>(o_.rollout_batch_size);
    step_record_.group_s = seconds / static_cast<double>(batch->size());
    step_record_.waited_s = now_ - step_begin_;
    step_record_.generate_s = last_generated_ - step_begin_;
    is_training_ = true;
    const double gpus = is_synchronous() ? o_.gpus : std::round(o_.train_share * o_.gpus);
    Random random(o_.seed + step_);
    const double share = 1 + o_.train_jitter * (2 * random.unit() - 1);
    const double trains_s = o_.train_gpu_s_per_rollout * static_cast<double>(o_.rollout_batch_size) / gpus;
    schedule(now_ + share * trains_s, Kind::kTrained);
    if (is_synchronous()) {
      is_suspended_ = true;
      for (Worker& worker : workers_) worker.scheduler.handle_suspended(instant());
    }
    return true;
  }

  void end_step() {
    ++step_;
    step_record_.trained_s = now_ - step_begin_ - step_record_.waited_s;
    step_record_.seconds = now_ - step_begin_;
    step_begin_ = now_;
    steps_.push_back(std::exchange(step_record_, {}));
    if (steps_.size() == o_.warm_up_steps) {
      open_slot_s_ = wasted_s_ = 0;
      before_ = buffer_.stats();
    }
    is_training_ = false;
    buffer_.handle_step(version());
    if (step_ % o_.publish_interval == 0) {
      buffer_.handle_published(version());
      ++broadcasts_;
      if (o_.pauses_for_broadcast) pause(true);
      schedule(now_ + o_.t_bcast_s, Kind::kInstalled, {}, version().value);
    }
    tell_step();
    buffer_.handle_wanted(instant());
  }

  void pause(bool is_paused) {
    for (std::uint32_t w = 0; w < workers_.size(); ++w) {
      for (std::uint32_t e = 0; e < workers_[w].engines.size(); ++e) {
        workers_[w].engines[e].engine.set_paused(now_, is_paused);
        foresee(w, e);
      }
    }
  }

  void resume() {
    is_suspended_ = false;
    for (Worker& worker : workers_) worker.scheduler.handle_resumed(instant());
  }

  [[nodiscard]] double tokens_of(const RolloutKey& rollout, std::uint32_t turn) const {
    Random random = random_for(o_.seed, rollout, turn, 1);
    // Log-normal with that mean and standard deviation.
    const double variance = std::log(1 + (o_.tokens_sd / o_.tokens_mean) * (o_.tokens_sd / o_.tokens_mean));
    const double tokens = std::exp(std::log(o_.tokens_mean) - variance / 2 + std::sqrt(variance) * gaussian(random));
    return std::clamp(tokens, 1.0, o_.tokens_max);
  }
  [[nodiscard]] double environment_s(const RolloutKey& rollout, std::uint32_t turn) const {
    Random random = random_for(o_.seed, rollout, turn, 2);
    const double seconds = std::max(0.0, o_.environment_s_mean + o_.environment_s_sd * gaussian(random));
    return turn == 0 && is_slow(rollout) ? seconds + o_.slow_environment_s : seconds;
  }
  [[nodiscard]] bool is_slow(const RolloutKey& rollout) const {
    return random_for(o_.seed, rollout, 0, 4).chance(o_.slow_environment_share) ||
           random_for(o_.seed, {rollout.group, 0, 0}, 0, 6).chance(o_.slow_group_share);
  }
  /// Of a rollout whose environment answers, in an engine of its own at full speed.
  [[nodiscard]] double alone_s(const RolloutKey& rollout) const {
    double seconds = o_.reward_s;
    for (std::uint32_t turn = 0; turn < o_.turns; ++turn) {
      seconds += o_.token_s * tokens_of(rollout, turn) + environment_s(rollout, turn);
    }
    return seconds;
  }
  /// The version that engines had then.
  [[nodiscard]] std::uint64_t installed_at(double at) const {
    const auto later = std::upper_bound(installs_.begin(), installs_.end(), at + 1e-6,
                                        [](double time, const auto& install) { return time < install.first; });
    return std::prev(later)->second;
  }
  [[nodiscard]] double reward_of(const RolloutKey& rollout) const {
    if (random_for(o_.seed, {rollout.group, 0, 0}, 0, 5).chance(o_.no_signal_share)) return 0;
    return rollout.member % 2;
  }

  [[nodiscard]] RolloutWorldResult result() {
    RolloutWorldResult r;
    for (const Worker& worker : workers_) r.scheduler = sum_of(r.scheduler, worker.scheduler.stats());
    steps_.erase(steps_.begin(), steps_.begin() + static_cast<std::ptrdiff_t>(o_.warm_up_steps));
    double waited = 0, trained = 0, slot_s = 0, all = 0, longest = 0;
    for (const SimulatedStep& step : steps_) {
      all += step.seconds;
      waited += step.waited_s;
      trained += step.trained_s;
      slot_s += step.slot_s;
      longest = std::max(longest, step.longest_s);
      r.staleness_mean += step.staleness_mean;
      r.staleness_floor += step.staleness_floor;
      r.group_s += step.group_s;
      r.staleness_max = std::max(r.staleness_max, step.staleness_max);
    }
    const auto count = static_cast<double>(steps_.size());
    r.step_s = all / count;
    r.rollouts_per_s = static_cast<double>(o_.rollout_batch_size) * count / all;
    r.bubble_ratio = waited / (waited + trained);
    r.busy_share = open_slot_s_ > 0 ? slot_s / open_slot_s_ : 0;
    r.wasted_share = slot_s > 0 ? wasted_s_ / slot_s : 0;
    r.staleness_mean /= count;
    r.staleness_floor /= count;
    const ReplayStats stats = buffer_.stats();
    const auto stale = [](const ReplayStats& of) {
      const auto found = of.refused.find("stale");
      return found == of.refused.end() ? 0 : found->second;
    };
    const auto dropped = static_cast<double>(stats.expired + stats.given_up + stats.aborted + stale(stats) -
                                             before_.expired - before_.given_up - before_.aborted - stale(before_));
    r.dropped_share = dropped / (dropped + static_cast<double>(stats.taken - before_.taken));
    r.group_s /= count;
    r.staleness_target = 1 + (r.group_s + o_.t_bcast_s) / r.step_s;
    set_bounds(r, slot_s, longest, count);
    r.steps = std::move(steps_);
    return r;
  }

  void set_bounds(RolloutWorldResult& r, double slot_s, double longest_s, double count) const {
    const SchedulerOptions& s = o_.scheduler;
    const bool is_plain = o_.scheduling == Scheduling::kQueue && o_.turns == 1 && o_.reward_s == 0 &&
                          o_.environment_s_mean == 0 && o_.environment_s_sd == 0 && !s.filter_equal_rewards &&
                          o_.dead_environment_share == 0 && o_.slow_environment_share == 0 && o_.slow_group_share == 0;
    if (!is_plain) return;
    const double gpus = o_.gpus, trains = std::round(o_.train_share * gpus);
    r.work = {slot_s / count, longest_s, o_.train_gpu_s_per_rollout * static_cast<double>(o_.rollout_batch_size), gpus,
              static_cast<double>(o_.slots_per_gpu)};
    if (is_synchronous()) {
      for (const SimulatedStep& step : steps_) {
        // A synchronous step begins to generate when the version is installed.
        const double generate_s = step.generate_s - o_.t_bcast_s;
        BatchWork realised = r.work;
        realised.slot_s = step.slot_s;
        realised.longest_s = step.longest_s;
        r.bound_1_share = std::max(r.bound_1_share, generate_s / generation_bound_s(realised, gpus));
      }
      r.bound_2_s = synchronous_step_bound_s(r.work);
    } else {
      r.bound_2_s = asynchronous_step_bound_s(r.work, s.async_generation_ratio.value_or(0), trains / gpus);
    }
    for (const SimulatedStep& step : steps_) r.bound_2_violations += step.seconds > r.bound_2_s * (1 + 1e-9) ? 1 : 0;
  }

  const RolloutWorldOptions o_;
  ReplayBuffer buffer_;
  const std::uint64_t width_;  // rollouts of a lease
  std::vector<Worker> workers_;
  std::priority_queue<Event> events_;
  std::uint64_t next_order_ = 0;
  std::uint64_t asks_ = 0;  // among the events
  std::size_t first_to_ask_ = 0;
  double now_ = 0;

  std::map<RolloutKey, Running> running_;     // in slots
  std::map<RolloutKey, Made> made_;           // begun, and neither sent nor forgotten
  std::map<std::uint64_t, Granted> granted_;  // by group
  std::uint64_t next_group_ = 0;

  std::uint64_t step_ = 0;
  std::vector<std::pair<double, std::uint64_t>> installs_{{-INFINITY, 1}};  // when, and the version from then on
  std::uint64_t broadcasts_ = 0;                                            // under way
  bool is_training_ = false;
  bool is_suspended_ = false;
  double step_begin_ = 0;
  double last_generated_ = 0;
  SimulatedStep step_record_;
  std::vector<SimulatedStep> steps_;
  ReplayStats before_;      // of the steps that count
  double open_slot_s_ = 0;  // that slots could have generated in
  double wasted_s_ = 0;
};

template <typename Scheduler>
Result<RolloutWorldResult> run(const RolloutWorldOptions& options, Result<Scheduler> made) {
  WC_ASSIGN(const Scheduler scheduler, std::move(made));
  ReplayBuffer buffer(replay_options(options), trajectory_rules());
  return World<Scheduler>(options, std::vector(options.workers, scheduler), std::move(buffer)).run();
}

}  // namespace

Result<RolloutWorldResult> run_rollout_world(const RolloutWorldOptions& given) {
  WC_TRY(validate(given));
  RolloutWorldOptions options = given;
  const auto trains = static_cast<std::uint32_t>(std::round(options.train_share * options.gpus));
  options.scheduler.engines = (options.gpus - trains) / options.workers;
  options.scheduler.slots_per_engine = options.slots_per_gpu;
  if (trains == 0) {
    // The learner suspends, so nothing can lag.
    options.scheduler.async_generation_ratio = 0;
  }
  switch (options.scheduling) {
    case Scheduling::kQueue: break;
    case Scheduling::kWholeGroup: return run(options, WholeGroupScheduler::make(options.scheduler, false));
    case Scheduling::kBatch: return run(options, WholeGroupScheduler::make(options.scheduler, true));
    case Scheduling::kLockStep: return run(options, LockStepScheduler::make(options.scheduler));
  }
  return run(options, RolloutScheduler::make(options.scheduler));
}

}  // namespace weightcast::bench
