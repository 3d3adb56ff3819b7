#include "bench/paper/training_runs.h"

#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <cmath>
#include <limits>
#include <span>
#include <thread>
#include <utility>

#include "base/digest/content_digest.h"
#include "base/files/posix_file_system.h"
#include "base/json_text.h"
#include "base/steady_clock.h"
#include "base/text.h"
#include "bench/fleet/interrupt.h"
#include "bench/paper/kept_json.h"
#include "bench/paper/loop_processes.h"
#include "patch/codec/codec.h"
#include "patch/snapshot/finite.h"

namespace weightcast::bench {
namespace {

constexpr double kNaN = std::numeric_limits<double>::quiet_NaN();
constexpr std::uint64_t kRunBytesMax = std::uint64_t{16} << 20;
constexpr std::uint64_t kAddressBytesMax = 1024;
constexpr std::uint64_t kTen = 10;
// A run takes minutes. Beyond this it is taken for stuck.
constexpr Duration kRunTimeMax = std::chrono::hours(1);
constexpr Duration kWatchEvery = std::chrono::milliseconds(200);

constexpr MetricColumn kMetrics[] = {{"reward", "critic/score/mean"},  {"loss", "actor/pg_loss"},
                                     {"kl", "rollout_corr/kl"},        {"grad_norm", "actor/grad_norm"},
                                     {"entropy", "actor/entropy"},     {"lag_median", "off_policy/median"},
                                     {"lag_p90", "off_policy/p90"},    {"admitted", "off_policy/admissible_share"},
                                     {"success", "eval/success_rate"}, {"step_s", "timing_s/step"},
                                     {"collect_s", "timing_s/collect"}};
constexpr const char* kPatches[] = {"changed", "ratio", "event_changed", "event_ratio", "ten_changed", "ten_ratio"};

/// Weights as the stream of a snapshot without file headers.
struct Stream {
  std::vector<std::byte> bytes;
  std::vector<TensorInfo> tensors;
};

Stream stream_of(std::vector<StoredTensor> weights) {
  Stream stream;
  for (StoredTensor& tensor : weights) {
    tensor.info.offset_bytes = stream.bytes.size();
    tensor.info.size_bytes = tensor.bytes.size();
    stream.bytes.insert(stream.bytes.end(), tensor.bytes.begin(), tensor.bytes.end());
    stream.tensors.push_back(std::move(tensor.info));
  }
  return stream;
}

bool is_finite(const std::vector<StoredTensor>& weights) {
  return std::ranges::all_of(
      weights, [](const StoredTensor& tensor) { return count_non_finite(tensor.info.dtype, tensor.bytes) == 0; });
}

/// Follows one run: its figures by step, and the patches that its weights would be published as.
class Follower {
 public:
  Follower(TrainingRun& run, std::uint64_t publish_interval) : run_(run), publish_interval_(publish_interval) {}

  Status handle(LearnerStep at) {
    if (!is_finite(at.weights)) {
      run_.has_diverged = true;
      return fail(Errc::kInvalidArgument, Op::kVerify, fmt::format("the weights diverged in step {}", at.step));
    }
    Stream now = stream_of(std::move(at.weights));
    run_.digests.push_back(content_digest_of(now.bytes).hex());
    if (at.step == 0) {
      event_ = ten_ = last_ = std::move(now);
      return {};
    }
    append_metrics(run_, kMetrics, at.metrics);
    double evaluation = kNaN;
    for (const auto& [name, value] : at.metrics) {
      if (name.starts_with("eval/avg@")) evaluation = value;
    }
    run_.columns["evaluation"].push_back(evaluation);
    for (const char* name : kPatches) run_.columns[name].push_back(kNaN);
    WC_TRY(measure(last_, now, "changed", "ratio"));
    if (at.step % publish_interval_ == 0) {
      WC_TRY(measure(event_, now, "event_changed", "event_ratio"));
      event_ = now;
    }
    if (at.step % kTen == 0) {
      WC_TRY(measure(ten_, now, "ten_changed", "ten_ratio"));
      ten_ = now;
    }
    last_ = std::move(now);
    lags_.insert(lags_.end(), at.lags.begin(), at.lags.end());
    return {};
  }

  void finish() {
    double sum = 0;
    for (const double lag : lags_) sum += lag;
    run_.lag_mean = lags_.empty() ? 0 : sum / static_cast<double>(lags_.size());
    run_.lag_median = lags_.empty() ? 0 : quantile_of(lags_, 0.5);
    run_.lag_p90 = lags_.empty() ? 0 : quantile_of(lags_, 0.9);
  }

 private:
  Status measure(const Stream& base, const Stream& result, const char* changed, const char* ratio) {
    const auto layout = [](const Stream& stream) { return SnapshotLayout{stream.bytes.size(), stream.tensors}; };
    WC_ASSIGN(const PatchHead head, make_head({"run", Version{1}, Version{2}, {}, {}}, layout(base), layout(result)));
    WC_ASSIGN(const PatchSummary patch, encode_patch(head, MemorySource(base.bytes), MemorySource(result.bytes), {},
                                                     [](Bytes) -> Status { return {}; }));
    run_.columns[changed].back() = static_cast<double>(patch.changed_cells) / static_cast<double>(patch.cells);
    run_.columns[ratio].back() = static_cast<double>(patch.patch_bytes) / static_cast<double>(result.bytes.size());
    return {};
  }

  TrainingRun& run_;
  const std::uint64_t publish_interval_;
  Stream last_, event_, ten_;
  std::vector<double> lags_;
};

/// Who makes a run's rollouts; none of a run whose learner makes them itself.
struct RunWorkers {
  LoopProcesses* processes = nullptr;
  std::vector<Setting> settings;
};

/// A run from its begin to its end. It ends early when somebody stops the bench, and where a worker has ended, for
/// which the learner would wait for ever.
Status learn_with(FileSystem& files, const std::vector<Setting>& settings, const RunWorkers& workers,
                  const StepObserver& observer, std::shared_ptr<const Task> task = nullptr) {
  std::uint64_t steps = 0;
  WC_ASSIGN(const LearnerConfig config, make_config(settings));
  const auto observe = [&](LearnerStep at) -> Status {
    steps = at.step;
    return observer ? observer(std::move(at)) : Status();
  };
  WC_ASSIGN(const std::unique_ptr<Learner> learner, Learner::make(files, config, observe, std::move(task)));
  if (workers.processes != nullptr) {
    WC_ASSIGN(const std::string address,
              read_file(files, std::filesystem::path(config.output_dir) / "rollout_address", kAddressBytesMax));
    WC_TRY(workers.processes->start_workers(address.substr(0, address.find('\n')), workers.settings));
  }
  std::atomic<bool> stop = false;
  std::string why;
  std::jthread watcher([&](const std::stop_token& ended) {
    for (const Instant begin = steady_now(); !ended.stop_requested(); std::this_thread::sleep_for(kWatchEvery)) {
      std::optional<std::string> worker;
      if (workers.processes != nullptr) worker = workers.processes->ended_worker();
      if (worker) {
        why = *worker;
      } else if (const Status asked = check_interrupt(); !asked.has_value()) {
        why = asked.error().detail;
      } else if (steady_now() - begin > kRunTimeMax) {
        why = fmt::format("it has taken {:.0f} s", to_seconds(kRunTimeMax));
      }
      if (why.empty()) continue;
      stop = true;
      return;
    }
  });
  const Status learned = learner->run(stop);
  watcher.request_stop();
  watcher.join();
  WC_TRY(check_interrupt());
  // Workers end with the run, and the watcher may have seen that.
  if (!learned.has_value() || steps == config.total_training_steps) return learned;
  return fail(Errc::kClosed, Op::kReceive,
              fmt::format("the run ended after {} of {} steps: {}", steps, config.total_training_steps, why));
}

/// Adds where the suite's task is, which does not count among what figures follow from.
std::vector<Setting> with_task(std::vector<Setting> settings, const TrainingSuite& suite,
                               const std::filesystem::path& programs) {
  if (!suite.task_program.empty()) {
    settings.push_back({"task_program.command", (programs / suite.task_program).string()});
  }
  return settings;
}

/// The directory of the weights that all runs start from. The learner finds there what is done.
Result<std::filesystem::path> warm_up(FileSystem& files, const TrainingSuite& suite,
                                      const std::filesystem::path& directory, const std::filesystem::path& programs) {
  const std::vector<Setting> own = warm_up_settings(suite);
  const std::filesystem::path run = directory / ("warm-up-" + digest_of(settings_json(own)).substr(0, kDigestDigits));
  std::vector<Setting> settings = with_task(own, suite, programs);
  settings.push_back({"output_dir", run.string()});
  WC_TRY(learn_with(files, settings, {}, {}));
  return run / "checkpoints" / "checkpoint-00000000";
}

}  // namespace

void append_metrics(TrainingRun& run, std::span<const MetricColumn> columns, const Metrics& metrics) {
  for (const auto& [column, metric] : columns) {
    const auto found = metrics.find(metric);
    run.columns[column].push_back(found == metrics.end() ? kNaN : found->second);
  }
}

Status learn(FileSystem& files, const std::vector<Setting>& settings, const StepObserver& observer,
             std::shared_ptr<const Task> task) {
  return learn_with(files, settings, {}, observer, std::move(task));
}

Result<std::vector<TrainingRun>> run_training_suite(const TrainingSuite& suite, const std::filesystem::path& directory,
                                                    const std::filesystem::path& programs,
                                                    const std::function<void(const TrainingRun&)>& told) {
  PosixFileSystem files;
  WC_TRY(make_directories(files, directory));
  WC_ASSIGN(const std::filesystem::path model, warm_up(files, suite, directory, programs));
  std::vector<TrainingRun> runs;
  for (const std::uint64_t seed : suite.seeds) {
    for (const TrainingCase& c : suite.cases) {
      const std::string digest =
          digest_of({{"run", run_json(suite, c, seed)}, {"warm_up", settings_json(warm_up_settings(suite))}});
      const std::filesystem::path path = directory / (digest.substr(0, kDigestDigits) + ".json");
      const auto json = kept_json(files, path, "digest", digest, kRunBytesMax);
      if (std::optional<TrainingRun> kept = json ? training_run(*json) : std::nullopt) {
        runs.push_back(std::move(*kept));
        told(runs.back());
        continue;
      }
      TrainingRun& run = runs.emplace_back();
      run.name = c.name;
      run.seed = seed;
      // One that was interrupted begins anew: the figures of its first steps are gone.
      const std::filesystem::path unfinished = directory / "unfinished";
      std::error_code ignored;
      std::filesystem::remove_all(unfinished, ignored);
      std::vector<Setting> settings = with_task(settings_of(suite, c, seed), suite, programs);
      settings.push_back({"output_dir", unfinished.string()});
      settings.push_back({"model", model.string()});
      Follower follower(run, c.publish_interval.value_or(suite.steps));
      std::unique_ptr<LoopProcesses> processes;
      if (c.workers > 0) {
        WC_ASSIGN(processes, LoopProcesses::start(programs, c.workers));
        for (Setting& setting : processes->learner_settings()) settings.push_back(std::move(setting));
      }
      const Status learned =
          learn_with(files, settings, {processes.get(), with_task(suite.worker_settings, suite, programs)},
                     [&](LearnerStep at) { return follower.handle(std::move(at)); });
      std::filesystem::remove_all(unfinished, ignored);
      if (!learned.has_value() && !run.has_diverged) return Error(learned.error());
      follower.finish();
      nlohmann::json made = to_json(run);
      made["digest"] = digest;
      WC_TRY(replace_file(files, path, json_text(made) + "\n", Synced::kBytes));
      told(run);
    }
  }
  return runs;
}

}  // namespace weightcast::bench
