#include "trainer/loop/learner.h"

#include <ATen/Parallel.h>
#include <fmt/format.h>

#include <chrono>
#include <mutex>

#include "base/exception_error.h"
#include "trainer/loop/learner_metrics.h"
#include "trainer/loop/loop_meter.h"
#include "trainer/loop/ranks.h"
#include "trainer/loop/run_state.h"
#include "trainer/loop/serving_control.h"
#include "trainer/loop/step_maker.h"
#include "trainer/rollouts/evaluation.h"
#include "trainer/rollouts/examples.h"
#include "trainer/update/training_batch.h"
#include "trainer/update/updates.h"

// OpenBLAS has threads of its own, which LibTorch does not count. Absent below another BLAS.
extern "C" __attribute__((weak)) void openblas_set_num_threads(int);

namespace weightcast {
namespace {

// A generator whose groups are all without signal would go on for ever.
constexpr std::uint64_t kFillsPerStepMax = 1000;
constexpr Duration kPublishAgain = std::chrono::seconds(1);
constexpr Duration kLastWords = std::chrono::seconds(5);
constexpr Duration kLastPublication = std::chrono::seconds(10);

/// The time of one phase of a step, into timing_s/NAME.
class Phase {
 public:
  Phase(Metrics& metrics, std::string_view name) : seconds_(metrics[fmt::format("timing_s/{}", name)]) {}
  ~Phase() { seconds_ += to_seconds(steady_now() - begin_); }
  Phase(const Phase&) = delete;
  Phase& operator=(const Phase&) = delete;

 private:
  double& seconds_;
  const Instant begin_ = steady_now();
};

/// Calls `body`, and turns what LibTorch throws into an error.
template <typename Body>
Status caught(std::string_view what, const Body& body) {
  try {
    return body();
  } catch (const std::exception& exception) {
    return exception_error(exception, fmt::format("{}: a library says", what),
                           "memory is short: lower generator_batch_size, max_new_tokens or micro_batch_tokens");
  }
}

class Loop final : public Learner {
 public:
  Loop(std::unique_ptr<RunState> state, StepObserver observer)
      : state_(std::move(state)),
        s_(*state_),
        steps_(make_step_maker(s_)),
        meter_(s_.config),
        observer_(std::move(observer)),
        worker_cost_before_(s_.worker_cost),
        told_{.metrics = LearnerMetrics(s_.config.rollout_batch_size)} {
    note_versions();
    if (s_.config.provision == Provision::kNone || s_.config.publish_state.empty() || s_.intake == nullptr) return;
    serving_.emplace(s_.config.publish_state, [this](const std::string& why) { s_.console.warn(why); });
  }

  Status run(const std::atomic<bool>& stop) override {
    Status status = caught("the run", [&] { return run_steps(stop); });
    if (!s_.group) return status;
    // The other ranks end with this one, and say why.
    if (status.has_value()) return tell_stop(*s_.group);
    s_.group->leave(status.error().message());
    // Its end would wait for exchanges with a rank that hangs. The process is about to end.
    static_cast<void>(s_.group.release());
    return status;
  }

  void add_metrics(MetricsText& text) const override {
    LearnerNow now;
    {
      const auto buffer = s_.buffer.lock();
      now.replay = buffer->stats();
      now.buffered = buffer->buffered();
      now.buffered_bytes = buffer->buffered_bytes();
      now.under_way = buffer->under_way();
    }
    if (s_.intake != nullptr) now.workers = s_.intake->workers();
    const std::scoped_lock lock(told_mutex_);
    now.version = told_.version;
    if (s_.publisher) now.published = told_.accepted;
    now.malformed = s_.intake != nullptr ? s_.intake->malformed() : told_.malformed;
    told_.metrics.write(text, now);
  }

 private:
  Status run_steps(const std::atomic<bool>& stop) {
    if (!s_.resumed) {
      WC_TRY(warm_up(stop));
      if (stop) return {};  // a warm-up begins anew
      if (reads_reference(s_.config)) {
        WC_TRY(tell(s_.group.get(), Command::kReference));
        WC_TRY(s_.set_reference(copy_weights(s_.policy->decoder())));
      }
      s_.buffer->handle_step(s_.version());
      s_.handle_due();
      checkpoint();
    }
    behind_ = true;  // the origin may lack the weights of now
    Metrics first;
    publish(first);
    WC_TRY(observe({}, {}));
    while (s_.step < s_.config.total_training_steps && !stop && !ended_) {
      const Status trained = caught(fmt::format("training step {}", s_.step + 1), [&] { return train(stop); });
      if (trained.has_value()) continue;
      if (is_whole_) report(finish());
      return trained;
    }
    return finish();
  }

  /// One training step.
  Status train(const std::atomic<bool>& stop) {
    Metrics metrics;
    const Instant begin = steady_now();
    std::optional<std::vector<RolloutGroup>> groups;
    {
      const Phase phase(metrics, "collect");
      WC_ASSIGN(groups, collect(stop, metrics));
    }
    if (!groups) return {};
    const TrainingBatch batch = make_training_batch(*s_.task, *groups, s_.version());
    set_batch_metrics(metrics, batch, s_.config.max_new_tokens);
    const std::string warning = batch_warning(batch, s_.config.max_new_tokens);
    if (!warning.empty() && !has_warned_) s_.console.warn(fmt::format("step {}: {}", s_.step + 1, warning));
    has_warned_ = has_warned_ || !warning.empty();
    {
      const Phase phase(metrics, "update");
      is_whole_ = false;
      WC_ASSIGN(const Metrics updates, steps_->make_step(batch, stop));
      metrics.insert(updates.begin(), updates.end());
    }
    ++s_.step;
    s_.buffer->handle_step(s_.version());
    note_versions();
    const bool is_due = s_.config.sync_drift_max ? s_.intake->handle_step(steady_now(), s_.version())
                                                 : s_.step % s_.config.publish_interval == 0;
    if (is_due) {
      behind_ = true;
      s_.handle_due();
    }
    is_whole_ = true;
    report(s_.poll_checkpoint());
    publish(metrics);
    if (s_.config.eval_interval > 0 && s_.step % s_.config.eval_interval == 0) {
      const Phase phase(metrics, "eval");
      WC_ASSIGN(const Metrics evaluated,
                evaluate(s_.policy->decoder(), s_.task, *s_.codec, *s_.rewards, *s_.prompts, s_.config));
      metrics.insert(evaluated.begin(), evaluated.end());
    }
    const double seconds = to_seconds(steady_now() - begin);
    s_.seconds += seconds;
    metrics["timing_s/step"] = metrics["perf/time_per_step"] = seconds;
    watch_workers();
    const double waited = metrics["timing_s/collect"];
    meter_.handle_step(steady_now(), from_seconds(seconds - waited), from_seconds(waited));
    record(metrics, batch);
    WC_TRY(observe(metrics, batch.lags));
    if (s_.config.checkpoint_interval > 0 && s_.step % s_.config.checkpoint_interval == 0) checkpoint();
    return {};
  }

  /// Hears what the workers have said since the last time, and tells them whether they are wanted.
  void watch_workers() {
    const Instant now = steady_now();
    if (s_.intake == nullptr) return;
    for (const std::string& fault : s_.intake->take_faults(now)) s_.console.warn(fault);
    meter_.handle_workers(now, s_.intake->workers());
    if (const std::optional<double> t_bcast_s = meter_.t_bcast_s()) s_.buffer->handle_broadcast_time(*t_bcast_s);
    for (const auto& [name, is_wanted] : meter_.take_wanted()) {
      s_.intake->set_wanted(name, is_wanted);
      s_.console.print(fmt::format("{} is {}", name, is_wanted ? "to roll out" : "not needed"));
    }
    if (!serving_) return;
    std::map<std::string, bool> wanted;
    for (const IntakeWorker& worker : s_.intake->workers()) wanted.emplace(worker.name, worker.is_wanted);
    serving_->tell(now, wanted);
  }

  /// A batch of rollouts; absent if there are none any more, or if the run is to stop.
  Result<std::optional<std::vector<RolloutGroup>>> collect(const std::atomic<bool>& stop, Metrics& metrics) {
    std::uint64_t fills = 0;
    s_.buffer->handle_wanted(steady_now());
    const std::uint64_t admitted = s_.buffer->stats().admitted, filtered = s_.buffer->stats().filtered;
    while (s_.buffer->supply() != Supply::kReady) {
      WC_TRY(s_.check_ranks());
      if (stop) return std::optional<std::vector<RolloutGroup>>();
      report(s_.poll_checkpoint());
      watch_workers();
      if (s_.buffer->supply() == Supply::kExhausted) WC_TRY(publish_early(metrics));
      // What workers generate now may be of no use before the origin has the weights of now.
      if (behind_ && steady_now() >= publish_again_at_) {
        publish_again_at_ = steady_now() + kPublishAgain;
        publish(metrics);
      }
      WC_ASSIGN(const bool more, s_.source->fill(steady_now(), s_.buffer));
      if (!more) {
        s_.console.print(fmt::format("the rollouts have ended after step {}", s_.step));
        ended_ = true;
        return std::optional<std::vector<RolloutGroup>>();
      }
      if (s_.generator != nullptr && ++fills > kFillsPerStepMax) {
        return fail(Errc::kInvalidArgument, Op::kVerify,
                    fmt::format("{} rollouts gave no batch: {}", s_.buffer->stats().admitted - admitted,
                                s_.buffer->stats().filtered > filtered
                                    ? "groups had equal rewards; warm up longer (sft_steps), or make the task easier"
                                    : "none was admissible; raise max_staleness or async_generation_ratio, or lower "
                                      "generator_lag or publish_interval"));
      }
    }
    return s_.buffer->take_batch(steady_now());
  }

  /// Nothing admissible can come under the versions that are out: publishes the weights of now.
  Status publish_early(Metrics& metrics) {
    const bool is_out = s_.accepted == s_.version();
    s_.handle_due();
    behind_ = !is_out;
    publish(metrics);
    if (s_.buffer->supply() != Supply::kExhausted) return {};
    if (behind_ && s_.publisher && s_.generator == nullptr) {
      // The source goes on to look for rollouts, and the next call here tries again.
      if (!is_waiting_) {
        s_.console.warn(fmt::format("no rollout that may still come is admissible before the origin has version {}",
                                    s_.version().value));
      }
      is_waiting_ = true;
      return {};
    }
    return fail(Errc::kInvalidArgument, Op::kPublish,
                "no rollout that may still come is admissible; raise max_staleness or async_generation_ratio, or "
                "lower publish_interval");
  }

  /// Supervised fine-tuning, as a policy loss in which every right answer has the same advantage.
  Status warm_up(const std::atomic<bool>& stop) {
    const LearnerConfig& config = s_.config;
    if (config.sft_steps == 0) return {};
    WC_ASSIGN(const Examples examples, Examples::make(s_.files, config, *s_.task, *s_.codec, *s_.prompts));
    for (std::uint64_t update = 0; update < config.sft_steps && !stop; ++update) {
      TrainingBatch batch;
      WC_ASSIGN(batch.samples, examples.batch(update));
      WC_TRY(tell(s_.group.get(), Command::kWarmUp, update, &batch));
      WC_ASSIGN(const Metrics metrics, warm_up_update(*s_.policy, batch.samples, config, update));
      const double loss = metrics.at("actor/pg_loss");
      write({{"sft/step", static_cast<double>(update + 1)},
             {"sft/loss", loss},
             {"sft/grad_norm", metrics.at("actor/grad_norm")}});
      s_.console.show(fmt::format("warm-up {}/{}  loss {:.3f}", update + 1, config.sft_steps, loss));
    }
    WC_TRY(tell(s_.group.get(), Command::kReset));
    return s_.policy->reset_optimiser();
  }

  /// Publishes if there is something new to publish, and never waits for the workers.
  void publish(Metrics& metrics) {
    if (!s_.publisher) return;
    const Phase phase(metrics, "publish");
    s_.publisher->poll();
    const PublicationState before = s_.publisher->state();
    if (before.payload_bytes > 0) {
      const auto bytes = static_cast<double>(before.payload_bytes);
      metrics["publish/bytes"] = bytes;
      metrics["publish/ratio"] = bytes / static_cast<double>(s_.policy->published_bytes());
    }
    if (before.t_bcast_s) metrics["t_bcast"] = *before.t_bcast_s;
    if (!behind_) return;
    PublishOutcome outcome = offer();
    if (outcome == PublishOutcome::kNumberTaken) outcome = offer_with_next_number();
    behind_ = outcome != PublishOutcome::kAccepted;
    if (!behind_) {
      s_.handle_accepted();
      note_versions();
      meter_.handle_published(steady_now(), s_.version());
    }
    is_waiting_ = is_waiting_ && behind_;
    metrics["publish/changed_share"] = s_.publisher->state().changed_share;
  }

  PublishOutcome offer() {
    return s_.publisher->publish(
        steady_now(), s_.version(),
        {.tensors = s_.policy->published(),
         .take_changes = [this](std::size_t i) { return s_.policy->take_changes(i); },
         .read = [this](std::size_t i, MutableBytes into) { s_.policy->read_published(i, into); }});
  }

  /// The origin has had the number: from this run, which goes on from its last version or from an earlier one, or from
  /// another run. Workers have its last version, and take a later one alone, so the numbers go on from there.
  PublishOutcome offer_with_next_number() {
    const std::optional<Version> next = s_.publisher->next_version();
    if (!next || *next <= s_.version()) return PublishOutcome::kFailed;
    if (s_.accepted == s_.version() && next->value == s_.accepted.value + 1) return PublishOutcome::kAccepted;
    s_.console.print(fmt::format("version {} gets the number {}, and so on: the origin has had the numbers before",
                                 s_.version().value, next->value));
    s_.renumber(*next);
    return offer();
  }

  void record(Metrics& metrics, const TrainingBatch& batch) {
    const ReplayStats stats = s_.buffer->stats();
    const auto stale = stats.refused.find("stale");
    const auto dropped =
        static_cast<double>(stats.expired + stats.given_up + (stale == stats.refused.end() ? 0 : stale->second));
    metrics["off_policy/dropped"] = dropped;
    const double arrived = static_cast<double>(stats.taken + s_.buffer->buffered()) + dropped;
    metrics["off_policy/admissible_share"] = arrived > 0 ? 1 - dropped / arrived : 1;
    set_rollout_metrics(metrics, stats, s_.source->malformed());
    metrics["training/global_step"] = static_cast<double>(s_.step);
    metrics["training/version"] = static_cast<double>(s_.version().value);
    std::uint64_t tokens = 0;
    for (const Sample& sample : batch.samples) tokens += sample.tokens.size();
    metrics["perf/total_num_tokens"] = static_cast<double>(tokens);
    metrics["perf/throughput"] = static_cast<double>(tokens) / metrics["timing_s/step"];
    meter_.set_metrics(metrics);
    if (s_.intake != nullptr) {
      metrics["rollouts/under_way"] = static_cast<double>(s_.buffer->under_way());
      metrics["rollouts/lead"] = s_.buffer->demand().lead_s();
      metrics["rollouts/reserve"] = static_cast<double>(s_.buffer->demand().reserve());
    }
    s_.worker_cost = worker_cost_before_ + meter_.worker_cost();
    metrics["cost_total"] = s_.seconds / 3600 * s_.config.learner_price_per_hour + s_.worker_cost;
    write(metrics);
    {
      const std::scoped_lock lock(told_mutex_);
      const std::chrono::duration<double> unix_time = std::chrono::system_clock::now().time_since_epoch();
      told_.metrics.handle_step(metrics, batch.lags, unix_time.count());
      told_.malformed = s_.source->malformed();
    }
    if (s_.intake != nullptr) s_.intake->handle_figures(metrics);
    s_.console.show(live_line(metrics, s_.config.total_training_steps));
  }

  Status observe(const Metrics& metrics, const std::vector<double>& lags) {
    if (!observer_) return {};
    return observer_({s_.step, copy_weights(s_.policy->decoder()), metrics, lags});
  }

  /// What add_metrics() tells of versions.
  void note_versions() {
    const std::scoped_lock lock(told_mutex_);
    told_.version = s_.version();
    told_.accepted = s_.accepted;
  }

  void write(const Metrics& metrics) {
    const Status written = s_.metrics->append(metrics);
    if (!written.has_value() && !metrics_failed_) {
      s_.console.warn(fmt::format("metrics are missing from here on: {}", written.error().message()));
    }
    metrics_failed_ = !written.has_value();
  }

  /// Begins to write one. Training waits for the copy alone.
  void checkpoint() {
    if (s_.checkpoints->busy()) {
      s_.console.warn(fmt::format("no checkpoint of step {}: the one before is still being written", s_.step));
      return;
    }
    report(begin_checkpoint());
  }

  Status begin_checkpoint() {
    WC_ASSIGN(Checkpoint copy, s_.copy());
    return s_.checkpoints->begin(std::move(copy));
  }

  void report(const Status& written) {
    if (written.has_value()) return;
    s_.console.warn(fmt::format("checkpoint not written, and the one before stays: {}", written.error().message()));
  }

  Status finish() {
    if (s_.intake != nullptr && s_.step >= s_.config.total_training_steps) s_.intake->handle_ended();
    report(s_.checkpoints->finish());
    Metrics last;
    publish(last);  // if the daemon has come back meanwhile
    if (s_.checkpoints->written_step() != s_.step) report(begin_checkpoint());
    if (s_.publisher) s_.publisher->finish(kLastPublication);
    s_.console.print(rollout_summary(s_.buffer->stats(), s_.source->malformed()));
    const Status written = s_.checkpoints->finish();
    static_cast<void>(s_.poll_checkpoint());
    if (s_.intake != nullptr) s_.intake->wait_for_workers(kLastWords);
    return written;
  }

  const std::unique_ptr<RunState> state_;
  RunState& s_;
  const std::unique_ptr<StepMaker> steps_;
  LoopMeter meter_;
  const StepObserver observer_;
  std::optional<ServingControl> serving_;
  const double worker_cost_before_;  // this start
  bool behind_ = false;              // the origin lacks a version that is due
  Instant publish_again_at_{};
  bool is_waiting_ = false;  // for the origin to take a version, as no other's rollouts are admissible
  bool ended_ = false;
  bool is_whole_ = true;  // between two steps: a checkpoint can hold this state
  bool metrics_failed_ = false;
  bool has_warned_ = false;  // of a batch that teaches nothing

  /// What other threads are told, as the loop last knew it.
  struct Told {
    LearnerMetrics metrics;
    Version version{}, accepted{};
    std::uint64_t malformed = 0;
  };
  mutable std::mutex told_mutex_;
  Told told_;  // guarded
};

}  // namespace

Result<std::unique_ptr<Learner>> Learner::make(FileSystem& files, const LearnerConfig& config, StepObserver observer,
                                               std::shared_ptr<const Task> task) {
  at::set_num_threads(static_cast<int>(config.threads));
  if (openblas_set_num_threads != nullptr) openblas_set_num_threads(static_cast<int>(config.threads));
  WC_TRY(loss_options(config));
  if (config.rank > 0) return make_follower(files, config);
  WC_ASSIGN(std::unique_ptr<RunState> state, RunState::open(files, config, std::move(task)));
  return std::unique_ptr<Learner>(std::make_unique<Loop>(std::move(state), std::move(observer)));
}

}  // namespace weightcast
