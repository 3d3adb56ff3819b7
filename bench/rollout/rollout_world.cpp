#include "bench/rollout/rollout_world.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <numbers>
#include <optional>
#include <queue>
#include <set>
#include <utility>

#include "base/random.h"

namespace weightcast::bench {
namespace {

constexpr Duration kTimeMax = std::chrono::hours(24 * 365 * 10);

Error refuse(std::string why) { return fail(Errc::kInvalidArgument, Op::kConfigure, std::move(why)); }

Status validate(const RolloutWorldOptions& o) {
  const auto check = [](const char* name, double value, double least, double most) -> Status {
    // Written so that NaN is refused, too.
    if (value >= least && value <= most) return {};
    return refuse(fmt::format("{} is {}; it is {} to {}", name, value, least, most));
  };
  WC_TRY(check("gpus", o.gpus, 1, 10'000));
  WC_TRY(check("train_share", o.train_share, 0, 0.999));
  WC_TRY(check("token_s", o.token_s, 1e-6, 1e6));
  WC_TRY(check("tokens_mean", o.tokens_mean, 1e-3, 1e9));
  WC_TRY(check("tokens_sd", o.tokens_sd, 0, 1e9));
  WC_TRY(check("turns", o.turns, 1, 10'000));
  WC_TRY(check("environment_s_mean", o.environment_s_mean, 0, 1e6));
  WC_TRY(check("environment_s_sd", o.environment_s_sd, 0, 1e6));
  WC_TRY(check("dead_environment_share", o.dead_environment_share, 0, 0.9));
  WC_TRY(check("no_signal_share", o.no_signal_share, 0, 0.99));
  WC_TRY(check("publish_interval", static_cast<double>(o.publish_interval), 1, 1e6));
  WC_TRY(check("steps", static_cast<double>(o.steps), 1, 1e6));
  if (o.rollout_batch_size == 0 || o.rollout_batch_size % o.scheduler.group_size != 0) {
    return refuse(fmt::format("rollout_batch_size is {}; it is a multiple of group_size, {}", o.rollout_batch_size,
                              o.scheduler.group_size));
  }
  const double trains = std::round(o.train_share * o.gpus);
  if (o.train_share > 0 && (trains < 1 || trains >= o.gpus)) {
    return refuse(
        fmt::format("train_share {} of {} GPUs leaves none to train, or none to generate", o.train_share, o.gpus));
  }
  return {};
}

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

/// Rollouts that an engine decodes together. They share its rate; `work` is in seconds of an engine of its own.
class SimulatedEngine {
 public:
  SimulatedEngine(double slowdown, double factor) : slowdown_(slowdown), factor_(factor) {}

  void begin(double now, const RolloutKey& rollout, double work) {
    advance(now);
    const double end = work_done_ + work;
    ends_[rollout] = end;
    order_.insert({end, rollout});
  }
  void stop(double now, const RolloutKey& rollout) {
    advance(now);
    const auto found = ends_.find(rollout);
    if (found == ends_.end()) return;
    order_.erase({found->second, rollout});
    ends_.erase(found);
  }
  /// Stands still, and goes on where it was.
  void set_paused(double now, bool is_paused) {
    advance(now);
    is_paused_ = is_paused;
  }
  /// When the next one ends, if nothing changes.
  [[nodiscard]] std::optional<std::pair<double, RolloutKey>> next() const {
    if (order_.empty() || is_paused_) return std::nullopt;
    const double left = std::max(0.0, order_.begin()->first - work_done_);
    return std::pair(at_ + left / rate(), order_.begin()->second);
  }

 private:
  [[nodiscard]] double rate() const {
    if (is_paused_) return 0;
    const double others = order_.empty() ? 0 : static_cast<double>(order_.size() - 1);
    return 1 / (factor_ * (1 + slowdown_ * others));
  }
  void advance(double now) {
    work_done_ += (now - at_) * rate();
    at_ = now;
  }

  double slowdown_, factor_;
  bool is_paused_ = false;
  double at_ = 0;
  double work_done_ = 0;
  std::map<RolloutKey, double> ends_;
  std::set<std::pair<double, RolloutKey>> order_;
};

class World {
 public:
  World(const RolloutWorldOptions& options, RolloutScheduler scheduler)
      : o_(options), scheduler_(std::move(scheduler)), batch_groups_(o_.rollout_batch_size / o_.scheduler.group_size) {
    Random random(o_.seed ^ 0x5eed);
    for (std::uint32_t e = 0; e < o_.scheduler.engines; ++e) {
      engines_.emplace_back(o_.token_slowdown, random.chance(o_.slow_gpu_share) ? o_.slow_gpu_factor : 1);
      engine_epochs_.push_back(0);
    }
  }

  Result<RolloutWorldResult> run() {
    for (std::uint32_t e = 0; e < engines_.size(); ++e) scheduler_.handle_version(instant(), e, version());
    scheduler_.handle_step(instant(), version());
    work();
    while (steps_.size() < o_.warm_up_steps + o_.steps) {
      const auto deadline = scheduler_.poll_deadline();
      if (deadline && (events_.empty() || to_seconds(deadline->time_since_epoch()) < events_.top().at)) {
        move_to(to_seconds(deadline->time_since_epoch()));
        scheduler_.handle_time(*deadline);
      } else if (!events_.empty()) {
        const Event event = events_.top();
        events_.pop();
        move_to(event.at);
        handle(event);
      } else {
        return fail(Errc::kTimedOut, Op::kVerify,
                    fmt::format("after {} steps nothing happens any more", steps_.size()));
      }
      if (now_ > to_seconds(kTimeMax)) {
        return fail(Errc::kTimedOut, Op::kVerify, fmt::format("{} steps take more than ten years", steps_.size() + 1));
      }
      work();
    }
    return result();
  }

 private:
  enum class Kind { kEngine, kObserved, kFinished, kTrained, kInstalled };
  struct Event {
    double at = 0;
    std::uint64_t order = 0;
    Kind kind{};
    RolloutKey rollout;       // of kObserved, kFinished
    std::uint64_t what = 0;   // the engine, or the version that is installed
    std::uint64_t epoch = 0;  // of the engine, when this was foreseen

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
  struct Ready {
    std::uint64_t oldest = 0;
    std::uint64_t rollouts = 0;
    double slot_s = 0;
  };

  [[nodiscard]] bool is_synchronous() const { return o_.train_share == 0; }
  [[nodiscard]] Version version() const { return Version{1 + step_}; }
  [[nodiscard]] Instant instant() const { return Instant(from_seconds(now_)); }
  void schedule(double at, Kind kind, const RolloutKey& rollout = {}, std::uint64_t what = 0, std::uint64_t epoch = 0) {
    // In whole nanoseconds, as the scheduler sees it.
    events_.push({to_seconds(from_seconds(at)), next_order_++, kind, rollout, what, epoch});
  }
  void move_to(double at) {
    const double span = at - now_;
    if (!is_suspended_) open_slot_s_ += span * static_cast<double>(scheduler_.slots());
    now_ = at;
  }
  void foresee(std::uint32_t engine) {
    ++engine_epochs_[engine];
    if (const auto next = engines_[engine].next()) {
      schedule(std::max(now_, next->first), Kind::kEngine, next->second, engine, engine_epochs_[engine]);
    }
  }

  void handle(const Event& event) {
    switch (event.kind) {
      case Kind::kEngine:
        if (event.epoch != engine_epochs_[event.what]) return;
        end_generation(event.rollout);
        last_generated_ = now_;
        scheduler_.handle_generated(instant(), event.rollout);
        break;
      case Kind::kObserved:
        if (const auto made = made_.find(event.rollout); made != made_.end()) ++made->second.turn;
        scheduler_.handle_observation(instant(), event.rollout);
        break;
      case Kind::kFinished: scheduler_.handle_finished(instant(), event.rollout, reward_of(event.rollout)); break;
      case Kind::kTrained: end_step(); break;
      case Kind::kInstalled:
        installed_ = std::max(installed_, event.what);
        if (--broadcasts_ == 0) pause(false);
        for (std::uint32_t e = 0; e < engines_.size(); ++e)
          scheduler_.handle_version(instant(), e, Version{installed_});
        if (is_synchronous()) resume();
        break;
    }
  }

  /// Does what the scheduler says, leases groups and takes batches, until nothing changes.
  void work() {
    for (bool is_changed = true; is_changed;) {
      is_changed = false;
      while (const auto action = scheduler_.poll_action()) {
        perform(*action);
        is_changed = true;
      }
      if (!is_training_) is_changed = take_batch() || is_changed;
      const std::uint64_t wanted = std::min(scheduler_.groups_wanted(), startable());
      if (wanted > 0) {
        scheduler_.handle_groups(instant(), next_group_, wanted);
        next_group_ += wanted;
        is_changed = true;
      }
    }
  }

  [[nodiscard]] std::uint64_t startable() const {
    // The batch that is being trained on is still one of the 1 + alpha.
    const std::uint64_t whole = buffered_ > sent_of_open_ ? buffered_ - sent_of_open_ : 0;
    const std::uint64_t waiting = whole / o_.scheduler.group_size + (is_training_ ? batch_groups_ : 0);
    std::uint64_t additional = o_.max_additional_running_prompts;
    if (o_.scheduler.num_env_groups > batch_groups_) {
      additional = std::max(additional, o_.scheduler.num_env_groups - batch_groups_);
    }
    const auto ratio = is_synchronous() ? std::optional(0.0) : o_.scheduler.async_generation_ratio;
    return groups_startable(batch_groups_, ratio, additional, scheduler_.groups_open(), waiting);
  }

  void perform(const RolloutAction& action) {
    const RolloutKey& rollout = action.rollout;
    switch (action.kind) {
      case RolloutAction::Kind::kGenerate: {
        Made& made = made_[rollout];
        if (made.turn == 0) {
          made.version = installed_;
          made.is_dead = random_for(o_.seed, rollout, 0, 3).chance(o_.dead_environment_share);
        }
        running_[rollout] = {now_, action.engine};
        engines_[action.engine].begin(now_, rollout, o_.token_s * tokens_of(rollout, made.turn));
        foresee(action.engine);
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
        if (running_.contains(rollout)) end_generation(rollout);
        waste(rollout);
        break;
      case RolloutAction::Kind::kForget: waste(rollout); break;
      case RolloutAction::Kind::kSend: {
        const auto made = made_.find(rollout);
        Ready& ready = o_.scheduler.send_whole_groups ? collecting_ : ready_.emplace_back();
        ready.oldest = ready.rollouts == 0 ? made->second.version : std::min(ready.oldest, made->second.version);
        ++ready.rollouts;
        ready.slot_s += made->second.slot_s;
        ++buffered_;
        ++sent_of_open_;
        made_.erase(made);
        break;
      }
      case RolloutAction::Kind::kGroupDone:
        sent_of_open_ -= o_.scheduler.group_size;
        if (o_.scheduler.send_whole_groups) ready_.push_back(std::exchange(collecting_, {}));
        break;
      case RolloutAction::Kind::kGroupDropped: break;
    }
  }

  void end_generation(const RolloutKey& rollout) {
    const auto running = running_.find(rollout);
    const double seconds = now_ - running->second.since;
    made_.at(rollout).slot_s += seconds;
    step_record_.slot_s += seconds;
    step_record_.longest_s = std::max(step_record_.longest_s, seconds);
    ++step_record_.generations;
    const std::uint32_t engine = running->second.engine;
    engines_[engine].stop(now_, rollout);
    running_.erase(running);
    foresee(engine);
  }

  void waste(const RolloutKey& rollout) {
    const auto made = made_.find(rollout);
    wasted_s_ += made->second.slot_s;
    made_.erase(made);
  }

  bool take_batch() {
    // A rollout that became too old while it waited is lost.
    const std::uint64_t lag_max = lag_limit();
    for (auto ready = ready_.begin(); ready != ready_.end();) {
      if (version().value > lag_max && ready->oldest < version().value - lag_max) {
        wasted_s_ += ready->slot_s;
        buffered_ -= ready->rollouts;
        ready = ready_.erase(ready);
      } else {
        ++ready;
      }
    }
    if (buffered_ < o_.rollout_batch_size) return false;
    std::stable_sort(ready_.begin(), ready_.end(), [](const Ready& x, const Ready& y) { return x.oldest < y.oldest; });
    std::uint64_t taken = 0;
    double lag_sum = 0;
    for (; taken < o_.rollout_batch_size; ready_.erase(ready_.begin())) {
      const std::uint64_t lag = version().value - ready_.front().oldest;
      taken += ready_.front().rollouts;
      lag_sum += static_cast<double>(lag * ready_.front().rollouts);
      step_record_.staleness_max = std::max(step_record_.staleness_max, lag);
    }
    buffered_ -= taken;
    step_record_.staleness_mean = lag_sum / static_cast<double>(taken);
    step_record_.waited_s = now_ - step_begin_;
    step_record_.generate_s = last_generated_ - step_begin_;
    is_training_ = true;
    const double gpus = is_synchronous() ? o_.gpus : std::round(o_.train_share * o_.gpus);
    schedule(now_ + o_.train_gpu_s_per_rollout * static_cast<double>(o_.rollout_batch_size) / gpus, Kind::kTrained);
    if (is_synchronous()) {
      is_suspended_ = true;
      scheduler_.handle_suspended(instant());
    }
    return true;
  }

  [[nodiscard]] std::uint64_t lag_limit() const {
    std::uint64_t lag = std::numeric_limits<std::uint64_t>::max();
    if (o_.scheduler.max_staleness) lag = *o_.scheduler.max_staleness;
    if (o_.scheduler.async_generation_ratio) {
      lag = std::min(lag, static_cast<std::uint64_t>(std::ceil(*o_.scheduler.async_generation_ratio)));
    }
    return lag;
  }

  void end_step() {
    ++step_;
    step_record_.trained_s = now_ - step_begin_ - step_record_.waited_s;
    step_record_.seconds = now_ - step_begin_;
    step_begin_ = now_;
    steps_.push_back(std::exchange(step_record_, {}));
    if (steps_.size() == o_.warm_up_steps) open_slot_s_ = wasted_s_ = 0;
    is_training_ = false;
    scheduler_.handle_step(instant(), version());
    const bool is_published = step_ % o_.publish_interval == 0;
    if (is_published) {
      ++broadcasts_;
      if (o_.pauses_for_broadcast) pause(true);
      schedule(now_ + o_.t_bcast_s, Kind::kInstalled, {}, version().value);
    } else if (is_synchronous()) {
      resume();
    }
  }

  void pause(bool is_paused) {
    for (std::uint32_t e = 0; e < engines_.size(); ++e) {
      engines_[e].set_paused(now_, is_paused);
      foresee(e);
    }
  }

  void resume() {
    is_suspended_ = false;
    scheduler_.handle_resumed(instant());
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
    const bool is_slow = random_for(o_.seed, rollout, 0, 4).chance(o_.slow_environment_share);
    return is_slow ? seconds * o_.slow_environment_factor : seconds;
  }
  [[nodiscard]] double reward_of(const RolloutKey& rollout) const {
    if (random_for(o_.seed, {rollout.group, 0, 0}, 0, 5).chance(o_.no_signal_share)) return 0;
    return rollout.member % 2;
  }

  [[nodiscard]] RolloutWorldResult result() {
    RolloutWorldResult r;
    r.scheduler = scheduler_.stats();
    steps_.erase(steps_.begin(), steps_.begin() + static_cast<std::ptrdiff_t>(o_.warm_up_steps));
    double waited = 0, trained = 0, slot_s = 0, all = 0, longest = 0, generations = 0;
    for (const SimulatedStep& step : steps_) {
      all += step.seconds;
      waited += step.waited_s;
      trained += step.trained_s;
      slot_s += step.slot_s;
      longest = std::max(longest, step.longest_s);
      generations += static_cast<double>(step.generations);
      r.staleness_mean += step.staleness_mean;
      r.staleness_max = std::max(r.staleness_max, step.staleness_max);
    }
    const auto count = static_cast<double>(steps_.size());
    r.step_s = all / count;
    r.rollouts_per_s = static_cast<double>(o_.rollout_batch_size) * count / all;
    r.bubble_ratio = waited / (waited + trained);
    r.busy_share = open_slot_s_ > 0 ? slot_s / open_slot_s_ : 0;
    r.wasted_share = slot_s > 0 ? wasted_s_ / slot_s : 0;
    r.staleness_mean /= count;
    set_bounds(r, slot_s, longest, count);
    r.steps = std::move(steps_);
    return r;
  }

  void set_bounds(RolloutWorldResult& r, double slot_s, double longest_s, double count) const {
    const auto slots = static_cast<double>(scheduler_.slots());
    const SchedulerOptions& s = o_.scheduler;
    const bool is_plain = s.queue_scheduling && s.prompt_replication && o_.turns == 1 && o_.reward_s == 0 &&
                          o_.environment_s_mean == 0 && o_.environment_s_sd == 0 && !s.filter_equal_rewards &&
                          o_.dead_environment_share == 0;
    if (!is_plain) return;
    if (is_synchronous()) {
      for (const SimulatedStep& step : steps_) {
        // A synchronous step begins to generate when the version is installed.
        const double generate_s = step.generate_s - o_.t_bcast_s;
        r.bound_1_share = std::max(r.bound_1_share, generate_s / (step.slot_s / slots + step.longest_s));
      }
    }
    const double train_gpu_s = o_.train_gpu_s_per_rollout * static_cast<double>(o_.rollout_batch_size);
    const double mean_slot_s = slot_s / count;
    if (is_synchronous()) {
      r.bound_2_s = mean_slot_s / slots + longest_s + train_gpu_s / o_.gpus;
    } else {
      const double ratio = s.async_generation_ratio.value_or(0);
      r.bound_2_s =
          std::max(mean_slot_s / slots + longest_s / (ratio + 1), train_gpu_s / std::round(o_.train_share * o_.gpus));
    }
    for (const SimulatedStep& step : steps_) r.bound_2_violations += step.seconds > r.bound_2_s * (1 + 1e-9) ? 1 : 0;
  }

  const RolloutWorldOptions o_;
  RolloutScheduler scheduler_;
  const std::uint64_t batch_groups_;
  std::vector<SimulatedEngine> engines_;
  std::vector<std::uint64_t> engine_epochs_;
  std::priority_queue<Event> events_;
  std::uint64_t next_order_ = 0;
  double now_ = 0;

  std::map<RolloutKey, Running> running_;  // in slots
  std::map<RolloutKey, Made> made_;        // begun, and neither trained on nor forgotten
  std::vector<Ready> ready_;               // groups, or rollouts, that wait for the learner
  Ready collecting_;                       // the group that is being sent
  std::uint64_t buffered_ = 0;             // rollouts in ready_ and collecting_
  std::uint64_t sent_of_open_ = 0;         // rollouts that were sent of groups that are not done
  std::uint64_t next_group_ = 0;

  std::uint64_t step_ = 0;
  std::uint64_t installed_ = 1;
  std::uint64_t broadcasts_ = 0;  // under way
  bool is_training_ = false;
  bool is_suspended_ = false;
  double step_begin_ = 0;
  double last_generated_ = 0;
  SimulatedStep step_record_;
  std::vector<SimulatedStep> steps_;
  double open_slot_s_ = 0;  // that slots could have generated in
  double wasted_s_ = 0;
};

}  // namespace

Result<RolloutWorldResult> run_rollout_world(const RolloutWorldOptions& given) {
  WC_TRY(validate(given));
  RolloutWorldOptions options = given;
  const auto trains = static_cast<std::uint32_t>(std::round(options.train_share * options.gpus));
  options.scheduler.engines = options.gpus - trains;
  options.scheduler.slots_per_engine = options.slots_per_gpu;
  if (trains == 0) {
    // The learner suspends, so nothing can lag.
    options.scheduler.async_generation_ratio = static_cast<double>(options.publish_interval - 1);
  }
  WC_ASSIGN(RolloutScheduler scheduler, RolloutScheduler::make(options.scheduler));
  return World(options, std::move(scheduler)).run();
}

}  // namespace weightcast::bench
