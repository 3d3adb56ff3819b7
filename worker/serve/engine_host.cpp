#include "worker/serve/engine_host.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <utility>

#include "base/steady_clock.h"

namespace weightcast {
namespace {

// How often an idle engine looks for a new version, and for calls that have waited too long.
constexpr std::chrono::milliseconds kInterval(10);

}  // namespace

EngineHost::EngineHost(std::unique_ptr<Engine> engine, std::unique_ptr<VersionFollower> versions,
                       std::function<void(const std::string&)> say)
    : engine_(std::move(engine)), versions_(std::move(versions)), say_(std::move(say)), thread_([this] { run(); }) {}

EngineHost::~EngineHost() {
  {
    const std::scoped_lock lock(mutex_);
    stopping_ = true;
  }
  changed_.notify_all();
  thread_.join();
}

void EngineHost::post(std::function<void()> job) {
  {
    const std::scoped_lock lock(mutex_);
    jobs_.push_back(std::move(job));
  }
  changed_.notify_all();
}

void EngineHost::run() {
  std::unique_lock lock(mutex_);
  for (;;) {
    const auto has_work = [this] { return stopping_ || !jobs_.empty(); };
    const bool can_step = engine_->busy() && (!is_paused_ || is_ending_);
    if (!can_step && (versions_ || !waiting_.empty())) {
      changed_.wait_for(lock, kInterval, has_work);
    } else if (!can_step) {
      changed_.wait(lock, has_work);
    }
    if (stopping_) return;
    std::deque<std::function<void()>> jobs = std::exchange(jobs_, {});
    lock.unlock();
    for (const std::function<void()>& job : jobs) job();
    jobs.clear();
    take_version();
    look_at_waiting();
    step();
    lock.lock();
  }
}

void EngineHost::step() {
  if (is_paused_ && !is_ending_) return;
  for (const EngineEvent& event : engine_->step()) {
    const auto found = sinks_.find(event.id);
    if (found == sinks_.end()) continue;
    // The sink may add or abort requests.
    const Sink sink = found->second;
    if (event.finished) sinks_.erase(found);
    sink(event);
  }
  if (is_ending_ && !engine_->busy()) is_ending_ = false;
}

void EngineHost::take_version() {
  if (!versions_) return;
  const Instant begin = steady_now();
  std::optional<InstalledVersion> next = versions_->take();
  if (!next) return;
  const Status set = engine_->set_weights(next->name.version, std::move(next->weights));
  installs_.prepare += from_seconds(next->prepare_s);
  installs_.install += steady_now() - begin;
  if (set.has_value()) {
    ++installs_.installed;
    digest_ = std::move(next->digest);
    last_refusal_.clear();
    return;
  }
  ++installs_.refused;
  last_refusal_ = fmt::format("version {} is not used, and the one before stays: {}", next->name.version.value,
                              set.error().message());
  if (say_) say_(last_refusal_);
}

void EngineHost::look_at_waiting() {
  if (waiting_.empty()) return;
  const Instant now = steady_now();
  const auto still = std::stable_partition(waiting_.begin(), waiting_.end(),
                                           [now](const Waiting& one) { return !one.ready() && now < one.until; });
  // What is called may wait anew.
  std::vector<Waiting> done(std::make_move_iterator(still), std::make_move_iterator(waiting_.end()));
  waiting_.erase(still, waiting_.end());
  for (const Waiting& one : done) one.then();
}

void EngineHost::when(std::function<bool()> ready, Duration limit, std::function<void()> then) {
  if (ready()) {
    then();
    return;
  }
  waiting_.push_back({std::move(ready), steady_now() + limit, std::move(then)});
}

ServedVersion EngineHost::version() const {
  ServedVersion served{engine_->version(), digest_, installs().refused, last_refusal_};
  if (versions_ && served.last_error.empty()) served.last_error = versions_->status().last_error;
  return served;
}

Installs EngineHost::installs() const {
  Installs all = installs_;
  if (versions_) all.refused += versions_->status().refused;
  return all;
}

Result<RequestId> EngineHost::add(EngineRequest request, Sink sink) {
  WC_ASSIGN(const RequestId id, engine_->add(std::move(request)));
  sinks_.emplace(id, std::move(sink));
  return id;
}

void EngineHost::abort(RequestId id) { static_cast<void>(engine_->abort(id)); }

void EngineHost::pause(Pause mode) {
  is_paused_ = true;
  is_ending_ = mode != Pause::kKeep;
  if (mode != Pause::kAbort) return;
  for (const auto& [id, sink] : sinks_) static_cast<void>(engine_->abort(id));
}

void EngineHost::resume() { is_paused_ = is_ending_ = false; }

}  // namespace weightcast
