#include "worker/loop/worker.h"

#include <fmt/format.h>

#include <array>
#include <chrono>
#include <deque>
#include <functional>
#include <memory>
#include <optional>
#include <thread>
#include <utility>

#include "base/digest/content_digest.h"
#include "base/steady_clock.h"
#include "trainer/tasks/program/open_task.h"
#include "worker/backend/backend.h"
#include "worker/backend/paced_engine.h"
#include "worker/engine/version_follower.h"
#include "worker/learner/learner_client.h"
#include "worker/loop/learner_link.h"
#include "worker/loop/rollout_loop.h"
#include "worker/loop/work_meter.h"
#include "worker/loop/worker_metrics.h"

namespace weightcast {
namespace {

using namespace std::chrono_literals;

constexpr Duration kIdle = 5ms;
constexpr Duration kRate = 30s;  // over which rates are counted
constexpr Duration kStatusInterval = 30s;
constexpr Duration kLastRollouts = 10s;

/// Rollouts and tokens per second, over the last half minute.
class Rates {
 public:
  void handle(Instant now, std::uint64_t rollouts, std::uint64_t tokens) {
    points_.push_back({now, rollouts, tokens});
    while (points_.size() > 2 && now - points_[1].at >= kRate) points_.pop_front();
  }
  [[nodiscard]] double rollouts_per_s() const { return rate(&Point::rollouts); }
  [[nodiscard]] double tokens_per_s() const { return rate(&Point::tokens); }

 private:
  struct Point {
    Instant at{};
    std::uint64_t rollouts = 0;
    std::uint64_t tokens = 0;
  };
  [[nodiscard]] double rate(std::uint64_t Point::*what) const {
    if (points_.size() < 2 || points_.back().at == points_.front().at) return 0;
    return static_cast<double>(points_.back().*what - points_.front().*what) /
           to_seconds(points_.back().at - points_.front().at);
  }

  std::deque<Point> points_;
};

/// One run of the learner's.
class RunOfWorker {
 public:
  RunOfWorker(FileSystem& files, const RolloutWorkerConfig& config, LearnerClient& client, const WorkerLog& log,
              WorkerMetrics& metrics)
      : files_(files), config_(config), client_(client), log_(log), metrics_(metrics) {}

  Status open(const RunDescription& run) {
    std::string data;
    if (!run.task_data_digest.empty()) {
      WC_ASSIGN(data, client_.task_data());
    }
    WC_ASSIGN(const std::string config_json, client_.model_file("config.json"));
    WC_ASSIGN(const std::string tokenizer_json, client_.model_file("tokenizer.json"));
    if (content_digest_of(std::as_bytes(std::span(config_json))).hex() != run.model_digest) {
      return fail(Errc::kCorrupt, Op::kVerify, "the learner's config.json is not the one that its run names");
    }
    WC_ASSIGN(const ModelConfig model, parse_model_config(config_json));
    WC_ASSIGN(Tokenizer tokenizer, Tokenizer::parse(tokenizer_json));
    if (tokenizer.digest() != run.tokenizer_digest) {
      return fail(Errc::kCorrupt, Op::kVerify, "the learner's tokenizer.json is not the one that its run names");
    }
    RolloutLoopOptions options;
    options.engine = config_.engine;
    options.rewards = config_.rewards;
    if (config_.backend == WorkerBackend::kPaced) {
      options.make_engine = paced_engine(config_.paced, run.max_new_tokens, run.tokens_max,
                                         run.seed ^ std::hash<std::string>()(config_.learner.name));
    }
    if (const std::optional<BackendKind> server = server_kind(config_.backend)) {
      WC_TRY(start_backend(*server, run, model));
      options.answers = backend_;
      options.has_log_probs = backend_->has_log_probs();
      if (!options.has_log_probs && !run.logprobs_recomputed) {
        return fail(Errc::kInvalidArgument, Op::kConfigure,
                    fmt::format("{} gives no log-probabilities; set behaviour_logprobs = \"recompute\" at the learner",
                                to_string(config_.backend)));
      }
    }
    TaskProgramSettings program = config_.task_program;
    for (const std::string& own : {config_.learner.trust.keys, config_.state_dir}) {
      program.sandbox.hidden.push_back(own);
    }
    WC_ASSIGN(std::unique_ptr<Task> task, open_task(run.task, run.task_options, data, program, log_.info));
    WC_ASSIGN(loop_, RolloutLoop::make(run, std::move(task), std::move(tokenizer), options));
    link_.emplace(client_, loop_->rollouts_per_group(), log_);
    if (backend_) return {};
    versions_ =
        VersionFollower::start(files_, subscribe_to_versions(config_.state_dir), model, config_.weights, log_.warn);
    return {};
  }

  /// Until the run is over. Returns whether the learner is at another one.
  Result<bool> generate(const std::atomic<bool>& stop) {
    while (!stop) {
      const Instant now = steady_now();
      LearnerNews news = link_->take();
      if (news.wrong_run) return true;
      if (news.learner) {
        if (news.learner->ended) return false;
        is_wanted_ = news.learner->is_wanted;
        if (news.learner->has_restarted) unsent_.reset();
        loop_->handle_learner(now, *news.learner);
      }
      loop_->handle_groups(now, news.groups);
      switch_weights(now);
      const bool is_busy = loop_->step(now);
      WC_TRY(send());
      link_->set(unsent_ || !is_wanted_ ? 0 : loop_->groups_wanted(), report(now));
      if (is_busy) measure(steady_now() - now);
      if (is_busy) continue;
      link_->wait(kIdle);
      idle_[static_cast<std::size_t>(idle_for())] += steady_now() - now;
    }
    return false;
  }

  /// Gives back to the learner what is not finished, so that it does not wait for it.
  void end() {
    if (!loop_) return;
    link_->stop();
    std::vector<std::uint64_t> abandoned = loop_->end();
    // The line has never seen the groups that the last answer granted.
    for (const StartedGroup& group : link_->take().groups) {
      for (std::uint64_t i = 0; i < loop_->rollouts_per_group(); ++i) abandoned.push_back(group.first_sequence + i);
    }
    if (!abandoned.empty()) client_.abandon(abandoned);
    say_status(loop_->stats());
    report_.is_active = false;
    report_.under_way = 0;
    static_cast<void>(client_.heartbeat(report_));  // a learner that is away finds out by itself
  }

 private:
  [[nodiscard]] IdleFor idle_for() const {
    if (!has_version_) return IdleFor::kVersion;
    if (unsent_) return IdleFor::kRoom;
    return loop_->under_way() > 0 ? IdleFor::kEnvironments : IdleFor::kLearner;
  }

  /// A step, and what follows of it, took `span`.
  void measure(Duration span) {
    if (backend_) {
      for (const AnswerTime& answer : loop_->take_answer_times()) {
        meter_.handle_answer(answer.span, answer.running, answer.tokens);
      }
      meter_.handle_work(span, loop_->answering());
      return;
    }
    const RolloutLoopStats stats = loop_->stats();
    meter_.handle_step(span, stats.engine.step_sequences - std::exchange(step_sequences_, stats.engine.step_sequences),
                       stats.engine.step_tokens - std::exchange(step_tokens_, stats.engine.step_tokens));
  }

  Status start_backend(BackendKind kind, const RunDescription& run, const ModelConfig& model) {
    BackendOptions options = config_.server;
    options.kind = kind;
    // Other projects' servers know nothing of the cluster's keys.
    if (kind == BackendKind::kWeightcast) options.trust.keys = config_.learner.trust.keys;
    options.trust.revocation_directories = {config_.state_dir};
    options.protocol.vocab_size = static_cast<std::uint64_t>(model.vocab_size);
    options.protocol.positions_max = static_cast<std::uint64_t>(model.max_position_embeddings);
    options.needs.sampling.temperature = run.temperature;
    options.needs.sampling.top_p = run.top_p;
    options.needs.context_tokens = std::min(run.tokens_max, options.protocol.positions_max);
    options.needs.log_probs = !run.logprobs_recomputed;
    options.protocol.is_adapter = !run.adapter_digest.empty();
    options.running_max = config_.engine.running_max;
    WC_ASSIGN(backend_,
              Backend::start(files_, subscribe_to_versions(config_.state_dir), std::move(options), log_.warn));
    return {};
  }

  void note_version(Version version) {
    if (!std::exchange(has_version_, true)) log_.info(fmt::format("generating under version {}", version.value));
  }

  void switch_weights(Instant now) {
    if (backend_) {
      if (const std::optional<Version> version = backend_->take_version()) {
        loop_->handle_version(now, *version);
        note_version(*version);
      }
      return;
    }
    const Instant begin = steady_now();
    std::optional<InstalledVersion> next = versions_->take();
    if (!next) return;
    const Version version = next->name.version;
    const Status switched = loop_->handle_weights(now, version, std::move(next->weights));
    installs_.prepare += from_seconds(next->prepare_s);
    if (!switched.has_value()) {
      ++installs_.refused;
      log_.warn(fmt::format("version {} is not used, and the one before stays: {}", version.value,
                            switched.error().message()));
      return;
    }
    note_version(version);
    ++installs_.installed;
    installs_.install += steady_now() - begin;
    pause_max_ = std::max(pause_max_, steady_now() - begin);
  }

  Status send() {
    for (;;) {
      if (!unsent_) unsent_ = loop_->poll_rollout();
      if (!unsent_) break;
      const Status sent = client_.send(*unsent_);
      if (!sent.has_value() && sent.error().code != Errc::kNoSpace) return sent;
      if (!sent.has_value()) {
        if (!std::exchange(is_full_, true)) log_.warn(sent.error().message());
        return {};  // and nothing new begins meanwhile
      }
      is_full_ = false;
      ++sent_;
      unsent_.reset();
    }
    if (const auto abandoned = loop_->take_abandoned(); !abandoned.empty()) client_.abandon(abandoned);
    return {};
  }

  WorkerHeartbeat report(Instant now) {
    const Version version = loop_->version().value_or(kNoVersion);
    // What is said at once, and not five times a second: the learner times its broadcasts by it.
    const bool is_switched = version != report_.weights;
    if (!is_switched && now < reported_at_ + 200ms) return report_;
    reported_at_ = now;
    const RolloutLoopStats stats = loop_->stats();
    rates_.handle(now, sent_, stats.tokens);
    report_.weights = version;
    report_.is_active = is_wanted_;
    report_.rollouts_per_s = rates_.rollouts_per_s();
    report_.tokens_per_s = rates_.tokens_per_s();
    report_.full_load_s = to_seconds(meter_.at_full_load());
    report_.under_way = loop_->under_way();
    report_.price_per_hour = config_.price_per_hour;
    report_.promised_rollouts_per_s = config_.promised_rollouts_per_s;
    tell_metrics(stats);
    if (now >= said_at_ + kStatusInterval) {
      if (said_at_ != Instant{}) say_status(stats);
      said_at_ = now;
    }
    return report_;
  }

  void tell_metrics(const RolloutLoopStats& stats) {
    Installs installs = backend_ ? backend_->installs() : installs_;
    if (versions_) installs.refused += versions_->status().refused;
    metrics_.set({.version = report_.weights,
                  .is_wanted = is_wanted_,
                  .has_engine = backend_ == nullptr,
                  .answering = loop_->answering(),
                  .under_way = report_.under_way,
                  .sent = sent_,
                  .loop = stats,
                  .learner = client_.stats(),
                  .installs = installs,
                  .idle = idle_});
  }

  void say_status(const RolloutLoopStats& stats) {
    const LearnerClientStats learner = client_.stats();
    std::string line = fmt::format(
        "version {}, {:.1f} rollouts/s, {:.0f} tokens/s, {} under way; {} sent, {} acknowledged, {} refused; the "
        "longest switch took {:.2f} ms",
        report_.weights.value, report_.rollouts_per_s, report_.tokens_per_s, report_.under_way, sent_,
        learner.acknowledged, learner.refused, 1e3 * to_seconds(pause_max_));
    if (learner.dropped > 0) line += fmt::format("; {} dropped while they waited", learner.dropped);
    if (stats.failures > 0) line += fmt::format("; {} failures, the last: {}", stats.failures, stats.last_failure);
    log_.info(line);
  }

  FileSystem& files_;
  const RolloutWorkerConfig& config_;
  LearnerClient& client_;
  const WorkerLog& log_;
  WorkerMetrics& metrics_;
  std::shared_ptr<Backend> backend_;  // instead of versions_
  std::unique_ptr<RolloutLoop> loop_;
  std::optional<LearnerLink> link_;
  std::unique_ptr<VersionFollower> versions_;
  std::optional<Trajectory> unsent_;  // for which there is no room
  bool is_full_ = false;
  bool has_version_ = false;
  bool is_wanted_ = true;
  std::uint64_t sent_ = 0;
  Duration pause_max_{};  // of a switch
  Installs installs_;     // by its own engine
  std::array<Duration, 4> idle_{};
  WorkMeter meter_{config_.engine.running_max};
  std::uint64_t step_sequences_ = 0, step_tokens_ = 0;  // that meter_ knows
  Rates rates_;
  WorkerHeartbeat report_;
  Instant reported_at_{}, said_at_{};
};

/// Repeats `call` until it succeeds, or its error `is_final`, or it is to stop: then absent.
template <typename Call, typename IsFinal>
auto until_it_answers(const std::atomic<bool>& stop, const WorkerLog& log, std::string_view whom, const Call& call,
                      const IsFinal& is_final) -> std::optional<decltype(call())> {
  bool has_said = false;
  while (!stop) {
    auto answer = call();
    if (answer.has_value() || is_final(answer.error().code)) return answer;
    if (!std::exchange(has_said, true)) log.warn(fmt::format("waiting for {}: {}", whom, answer.error().message()));
    std::this_thread::sleep_for(500ms);
  }
  return std::nullopt;
}

bool is_no_run_for_us(Errc code) { return code == Errc::kNotAllowed || code == Errc::kWrongBase; }
/// Not that the learner is away or overloaded.
bool is_about_the_run(Errc code) {
  return code != Errc::kTimedOut && code != Errc::kBusy && code != Errc::kClosed && code != Errc::kIo;
}

Status run_once(FileSystem& files, const RolloutWorkerConfig& config, const std::atomic<bool>& stop,
                const WorkerLog& log, WorkerMetrics& metrics, bool& again) {
  LearnerClient::Options options = config.learner;
  options.trust.revocation_directories = {config.state_dir};
  WC_ASSIGN(const std::unique_ptr<LearnerClient> client, LearnerClient::make(std::move(options)));
  auto asked = until_it_answers(
      stop, log, "the learner", [&] { return client->run(); }, is_no_run_for_us);
  if (!asked) return {};
  WC_ASSIGN(const RunDescription description, *std::move(asked));
  RunOfWorker run(files, config, *client, log, metrics);
  const auto opened = until_it_answers(
      stop, log, server_kind(config.backend) ? "the learner and the server that generates" : "the learner",
      [&] { return run.open(description); }, is_about_the_run);
  if (!opened) return {};
  if (!opened->has_value()) {
    // What the learner's run or a server wants may be mended there: this worker's own flags are not at fault.
    Error error = opened->error();
    error.op = Op::kJoin;
    return error;
  }
  const Result<bool> generated = run.generate(stop);
  run.end();
  WC_ASSIGN(again, generated);
  if (again) {
    log.info("the learner is at another run, and so is this worker from now on");
  } else if (!client->drain(kLastRollouts)) {
    log.info("the learner has not taken all rollouts: it has their groups made again");
  }
  return {};
}

}  // namespace

Status run_worker(FileSystem& files, const RolloutWorkerConfig& config, const std::atomic<bool>& stop,
                  const WorkerLog& log, WorkerMetrics& metrics) {
  bool again = true;
  while (again && !stop) {
    again = false;
    WC_TRY(run_once(files, config, stop, log, metrics, again));
  }
  return {};
}

}  // namespace weightcast
