#include "worker/engine/version_follower.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <iterator>
#include <mutex>
#include <thread>
#include <vector>

#include "base/settings/nearest_name.h"
#include "base/time.h"
#include "worker/engine/resident_weights.h"

namespace weightcast {
namespace {

using Clock = std::chrono::steady_clock;

// Bounds how long pins of versions that nobody uses any more are held, and how often a failure is tried again.
constexpr std::chrono::milliseconds kRoundTime{100};

double seconds_since(Clock::time_point start) { return to_seconds(Clock::now() - start); }

/// Pins that are to be let go; lives as long as any pin.
struct Unpinned {
  std::mutex mutex;
  std::vector<VersionName> names;
};

class Follower final : public VersionFollower {
 public:
  Follower(FileSystem& files, std::unique_ptr<VersionSource> source, ModelConfig config, WeightPlace place,
           std::function<void(const std::string&)> say)
      : files_(files),
        source_(std::move(source)),
        config_(std::move(config)),
        place_(place),
        say_(std::move(say)),
        thread_([this](const std::stop_token& stop) { follow(stop); }) {}

  ~Follower() override {
    thread_.request_stop();
    taken_.notify_all();
  }

  std::optional<InstalledVersion> take() override {
    std::unique_lock lock(mutex_);
    if (!ready_) return std::nullopt;
    InstalledVersion result = std::move(*ready_);
    ready_.reset();
    if (changes_) {
      const auto start = Clock::now();
      resident_->apply(*changes_);
      result.write_s = seconds_since(start);
      result.weights = resident_->weights();
      changes_.reset();
    }
    handed_out_.push_back(result.weights);
    lock.unlock();
    taken_.notify_all();
    return result;
  }

  FollowerStatus status() const override {
    const std::lock_guard lock(mutex_);
    return status_;
  }

 private:
  void follow(const std::stop_token& stop) {
    while (!stop.stop_requested()) {
      release_pins();
      const auto event = source_->next(kRoundTime);
      if (stop.stop_requested()) return;
      if (!event.has_value()) {
        note(event.error());
        pause(stop);
        continue;
      }
      if (*event) handle(**event);
      if (const auto name = policy_.next()) prepare(*name, stop);
    }
  }

  void handle(const VersionEvent& event) {
    switch (event.kind) {
      case VersionEvent::Kind::kInstalled: policy_.handle_installed(event.name); break;
      case VersionEvent::Kind::kPreparing:
        if (place_ == WeightPlace::kMapped) {
          note(fail(Errc::kInvalidArgument, Op::kInstall,
                    "the daemon has --single-copy, and the engine maps its files; keep the weights resident"));
        }
        break;
      case VersionEvent::Kind::kDisconnected: {
        const std::lock_guard lock(mutex_);
        ++status_.disconnections;
        break;
      }
    }
  }

  void prepare(VersionName name, const std::stop_token& stop) {
    const auto start = Clock::now();
    Result<PinnedVersion> pinned = source_->pin(name);
    if (!pinned.has_value()) {
      if (pinned.error().code == Errc::kNotFound) {
        refuse(name, pinned.error());  // a newer one comes, or it comes again
      } else {
        note(pinned.error());
        pause(stop);
      }
      return;
    }
    const std::shared_ptr<const void> pin(nullptr, [unpinned = unpinned_, name](const void*) {
      const std::lock_guard lock(unpinned->mutex);
      unpinned->names.push_back(name);
    });
    InstalledVersion version;
    version.name = name;
    version.digest = pinned->digest;
    const Status done = place_ == WeightPlace::kMapped ? map(pinned->directory, pin, version)
                                                       : compare(pinned->directory, version, stop);
    if (!done.has_value()) {
      if (done.error().code == Errc::kCancelled) return;
      return refuse(name, done.error());
    }
    version.prepare_s = seconds_since(start);
    policy_.handle_settled(name);
    const std::lock_guard lock(mutex_);
    ready_ = std::move(version);
    ++status_.prepared;
    status_.newest = name;
    said_.clear();
  }

  /// The files of a version, which are of our model.
  Result<ModelFiles> open(const std::filesystem::path& directory) {
    const Result<std::string> json = read_file(files_, directory / "config.json", kSidecarBytesMax);
    if (json.has_value()) {
      WC_ASSIGN(const ModelConfig config, parse_model_config(*json));
      WC_TRY(check_same_model(config_, config));
    } else if (json.error().code != Errc::kNotFound) {
      return json.error();
    }
    return ModelFiles::open(files_, directory, config_);
  }

  Status map(const std::string& directory, const std::shared_ptr<const void>& pin, InstalledVersion& version) {
    WC_ASSIGN(ModelFiles files, open(directory));
    WC_ASSIGN(version.weights, EngineWeights::open(std::move(files), pin));
    return {};
  }

  Status compare(const std::string& directory, InstalledVersion& version, const std::stop_token& stop) {
    WC_ASSIGN(ModelFiles files, open(directory));
    if (!resident_) {
      WC_ASSIGN(resident_, ResidentWeights::read(std::move(files)));
      in_memory_ = version.name;
      digest_in_memory_ = version.digest;
      version.weights = resident_->weights();
      return {};
    }
    {
      // Changes are against what is in memory: the last ones are written first.
      std::unique_lock lock(mutex_);
      if (!taken_.wait(lock, stop, [&] { return !ready_; })) return fail(Errc::kCancelled, Op::kInstall, "");
    }
    bool by_list = true;
    Result<WeightChanges> changes = list(version.name);
    if (!changes.has_value()) {
      by_list = false;
      changes = resident_->compare(std::move(files));
      if (!changes.has_value()) return changes.error();
    }
    version.changed_cells = changes->cells;
    version.written_bytes = changes->bytes;
    in_memory_ = version.name;
    digest_in_memory_ = version.digest;
    const std::lock_guard lock(mutex_);
    changes_ = std::move(*changes);
    status_.prepared_by_list += by_list ? 1 : 0;
    return {};
  }

  /// By what the daemon knows. Where that fails for whatever reason, the files tell.
  Result<WeightChanges> list(VersionName name) {
    WC_ASSIGN(const VersionList changes, source_->changes(in_memory_, digest_in_memory_, name));
    return resident_->take(changes);
  }

  void refuse(VersionName name, const Error& error) {
    policy_.handle_settled(name);
    say(fmt::format("version {} is not used, and the one before stays: {}", name.version.value, error.message()), 1);
  }

  void note(const Error& error) { say(error.message(), 0); }

  /// Once, until a version is ready. Whoever sees that one more was refused sees why.
  void say(const std::string& line, std::uint64_t refused) {
    {
      const std::lock_guard lock(mutex_);
      status_.refused += refused;
      status_.last_error = line;
      if (line == said_) return;
      said_ = line;
    }
    if (say_) say_(line);
  }

  void pause(const std::stop_token& stop) {
    std::unique_lock lock(mutex_);
    taken_.wait_for(lock, stop, kRoundTime, [] { return false; });
  }

  void release_pins() {
    std::vector<std::shared_ptr<const EngineWeights>> unused;
    {
      const std::lock_guard lock(mutex_);
      const auto used = std::partition(handed_out_.begin(), handed_out_.end(),
                                       [](const auto& weights) { return weights.use_count() > 1; });
      unused.assign(std::make_move_iterator(used), std::make_move_iterator(handed_out_.end()));
      handed_out_.erase(used, handed_out_.end());
    }
    unused.clear();
    std::vector<VersionName> names;
    {
      const std::lock_guard lock(unpinned_->mutex);
      names.swap(unpinned_->names);
    }
    for (const VersionName& name : names) source_->unpin(name);
  }

  FileSystem& files_;
  const std::unique_ptr<VersionSource> source_;
  const ModelConfig config_;
  const WeightPlace place_;
  const std::function<void(const std::string&)> say_;
  const std::shared_ptr<Unpinned> unpinned_ = std::make_shared<Unpinned>();

  // Of the thread.
  VersionPolicy policy_;
  std::unique_ptr<ResidentWeights> resident_;  // written by take(), when the thread does not read it
  VersionName in_memory_;                      // of resident_, once what is ready has been taken
  std::string digest_in_memory_;

  mutable std::mutex mutex_;
  std::condition_variable_any taken_;
  std::optional<InstalledVersion> ready_;
  // The last use of weights ends here and not between two steps: unmapping a gigabyte takes milliseconds.
  std::vector<std::shared_ptr<const EngineWeights>> handed_out_;
  std::optional<WeightChanges> changes_;  // of ready_, if it is resident and not the first
  FollowerStatus status_;
  std::string said_;

  std::jthread thread_;  // last: it uses all of the above
};

}  // namespace

std::unique_ptr<VersionFollower> VersionFollower::start(FileSystem& files, std::unique_ptr<VersionSource> source,
                                                        ModelConfig config, WeightPlace place,
                                                        std::function<void(const std::string&)> say) {
  return std::make_unique<Follower>(files, std::move(source), std::move(config), place, std::move(say));
}

}  // namespace weightcast
