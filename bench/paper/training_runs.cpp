#include "bench/paper/training_runs.h"

#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <cmath>
#include <limits>
#include <utility>

#include "base/files/posix_file_system.h"
#include "base/json_text.h"
#include "base/text.h"
#include "patch/codec/codec.h"
#include "patch/snapshot/finite.h"

namespace weightcast::bench {
namespace {

constexpr double kNaN = std::numeric_limits<double>::quiet_NaN();
constexpr std::uint64_t kRunBytesMax = std::uint64_t{16} << 20;
constexpr std::uint64_t kTen = 10;

/// Columns that the learner's metrics have: ours, theirs.
constexpr std::pair<const char*, const char*> kMetrics[] = {
    {"reward", "critic/score/mean"}, {"loss", "actor/pg_loss"},
    {"kl", "rollout_corr/kl"},       {"grad_norm", "actor/grad_norm"},
    {"entropy", "actor/entropy"},    {"lag_median", "off_policy/median"},
    {"lag_p90", "off_policy/p90"},   {"admitted", "off_policy/admissible_share"}};
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
    if (at.step == 0) {
      event_ = ten_ = last_ = std::move(now);
      return {};
    }
    for (const auto& [ours, theirs] : kMetrics) append(ours, at.metrics, theirs);
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
  void append(const char* column, const Metrics& metrics, const char* name) {
    const auto found = metrics.find(name);
    run_.columns[column].push_back(found == metrics.end() ? kNaN : found->second);
  }

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

/// The run that lies there from the same configuration. A damaged file is none: its run is made again.
std::optional<TrainingRun> read_run(FileSystem& files, const std::filesystem::path& path, const std::string& digest) {
  const auto text = read_file(files, path, kRunBytesMax);
  if (!text.has_value()) return std::nullopt;
  const nlohmann::json json = parse_json(*text);
  if (!json.is_object() || json.value("digest", nlohmann::json()) != digest) return std::nullopt;
  return training_run(json);
}

/// The directory of the weights that all runs start from. The learner finds there what is done.
Result<std::filesystem::path> warm_up(FileSystem& files, const TrainingSuite& suite,
                                      const std::filesystem::path& directory) {
  std::vector<Setting> settings = warm_up_settings(suite);
  const std::filesystem::path run =
      directory / ("warm-up-" + digest_of(settings_json(settings)).substr(0, kDigestDigits));
  settings.push_back({"output_dir", run.string()});
  WC_TRY(learn(files, settings, {}));
  return run / "checkpoints" / "checkpoint-00000000";
}

}  // namespace

Status learn(FileSystem& files, const std::vector<Setting>& settings, StepObserver observer,
             std::shared_ptr<const Task> task) {
  WC_ASSIGN(const LearnerConfig config, make_config(settings));
  WC_ASSIGN(const std::unique_ptr<Learner> learner, Learner::make(files, config, std::move(observer), std::move(task)));
  const std::atomic<bool> stop = false;
  return learner->run(stop);
}

Result<std::vector<TrainingRun>> run_training_suite(const TrainingSuite& suite, const std::filesystem::path& directory,
                                                    const std::function<void(const TrainingRun&)>& told) {
  PosixFileSystem files;
  WC_TRY(make_directories(files, directory));
  WC_ASSIGN(const std::filesystem::path model, warm_up(files, suite, directory));
  std::vector<TrainingRun> runs;
  for (const std::uint64_t seed : suite.seeds) {
    for (const TrainingCase& c : suite.cases) {
      std::vector<Setting> settings = settings_of(suite, c, seed);
      const std::string digest = digest_of({{"name", c.name},
                                            {"settings", settings_json(settings)},
                                            {"warm_up", settings_json(warm_up_settings(suite))}});
      const std::filesystem::path path = directory / (digest.substr(0, kDigestDigits) + ".json");
      if (std::optional<TrainingRun> kept = read_run(files, path, digest)) {
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
      settings.push_back({"output_dir", unfinished.string()});
      settings.push_back({"model", model.string()});
      Follower follower(run, c.publish_interval.value_or(suite.steps));
      const Status learned = learn(files, settings, [&](LearnerStep at) { return follower.handle(std::move(at)); });
      std::filesystem::remove_all(unfinished, ignored);
      if (!learned.has_value() && !run.has_diverged) return Error(learned.error());
      follower.finish();
      nlohmann::json json = to_json(run);
      json["digest"] = digest;
      WC_TRY(replace_file(files, path, json_text(json) + "\n", Synced::kBytes));
      told(run);
    }
  }
  return runs;
}

}  // namespace weightcast::bench
