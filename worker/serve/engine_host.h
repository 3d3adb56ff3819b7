#pragma once

#include <condition_variable>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "base/time.h"
#include "worker/engine/engine.h"
#include "worker/engine/engine_metrics.h"
#include "worker/engine/version_follower.h"

namespace weightcast {

/// The version that an engine generates under, and what became of others.
struct ServedVersion {
  Version version{};
  std::string digest;         ///< of the snapshot; "" if nobody knows it
  std::uint64_t refused = 0;  ///< that came and are not used: damaged, of another model, or gone
  std::string last_error;     ///< why the last of them was refused, or why none comes
};

/// Runs an engine on a thread of its own. Jobs from any thread run between two steps, in their order. Versions that
/// `versions` has ready come into use between two steps, too.
class EngineHost {
 public:
  /// What receives the events of one request: on the engine's thread.
  using Sink = std::function<void(const EngineEvent&)>;

  enum class Pause {
    kAbort,  ///< what has begun is aborted
    kWait,   ///< what has begun comes to its end first
    kKeep,   ///< what has begun stands still
  };

  /// `versions` may be null: the weights stay. `say` takes a line for a person, on the engine's thread.
  EngineHost(std::unique_ptr<Engine> engine, std::unique_ptr<VersionFollower> versions,
             std::function<void(const std::string&)> say = {});
  /// Ends the thread. Sinks hear no more.
  ~EngineHost();
  EngineHost(const EngineHost&) = delete;
  EngineHost& operator=(const EngineHost&) = delete;

  /// Runs `job` on the engine's thread. Jobs may call what follows.
  void post(std::function<void()> job);

  // Of jobs and sinks alone.

  /// Errors: those of Engine::add().
  [[nodiscard]] Result<RequestId> add(EngineRequest request, Sink sink);
  /// Its last event follows. Harmless if it has ended.
  void abort(RequestId id);
  void pause(Pause mode);
  void resume();
  /// Calls `then` once `ready` holds, or after `limit` without that. It is asked now, and after jobs and versions.
  void when(std::function<bool()> ready, Duration limit, std::function<void()> then);
  /// How many wait by when().
  [[nodiscard]] std::size_t waiting() const { return waiting_.size(); }
  [[nodiscard]] ServedVersion version() const;
  [[nodiscard]] const std::string& digest() const { return digest_; }
  [[nodiscard]] Installs installs() const;
  [[nodiscard]] bool follows_versions() const { return versions_ != nullptr; }
  [[nodiscard]] bool is_paused() const { return is_paused_; }
  [[nodiscard]] const Engine& engine() const { return *engine_; }

 private:
  void run();
  void step();
  void take_version();
  void look_at_waiting();

  struct Waiting {
    std::function<bool()> ready;
    Instant until;
    std::function<void()> then;
  };

  std::unique_ptr<Engine> engine_;
  std::unique_ptr<VersionFollower> versions_;
  std::map<RequestId, Sink> sinks_;
  const std::function<void(const std::string&)> say_;
  std::string digest_;
  Installs installs_;         // those refused by the engine; the follower counts its own
  std::string last_refusal_;  // until a version is taken
  std::vector<Waiting> waiting_;
  bool is_paused_ = false;
  bool is_ending_ = false;  // what has begun is being aborted, or waited for

  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<std::function<void()>> jobs_;  // guarded
  bool stopping_ = false;                   // guarded
  std::thread thread_;
};

}  // namespace weightcast
