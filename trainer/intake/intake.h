#pragma once

#include <atomic>
#include <condition_variable>
#include <filesystem>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/files/file_system.h"
#include "base/peer_shares.h"
#include "trainer/intake/sync_coordinator.h"
#include "trainer/intake/worker_fault.h"
#include "trainer/intake/worker_table.h"
#include "trainer/replay/rollout_source.h"
#include "trainer/replay/shared_buffer.h"
#include "trainer/tasks/run_description.h"
#include "trainer/tasks/trajectory/trajectory.h"
#include "transport/http/server.h"
#include "transport/http/work_thread.h"

namespace weightcast {

/// The learner's HTTP port (docs/TRAINING.md, "Rollouts over HTTP"), as a source of rollouts. Requests are answered on
/// three threads of its own: the server's (health, the run's description), one for starts and heartbeats, and one for
/// bodies full of rollouts. They reach the buffer under its lock, so that nothing waits for a training step.
/// A rollout that is admitted is in the buffer. A learner that is killed goes on from its checkpoint, and has what came
/// since made again: each answer has its `life`, another one after each start.
class RolloutIntake final : public RolloutSource {
 public:
  static constexpr const char* kRunFile = "intake.json";

  struct Options {
    Endpoint listen = {};
    HttpTrust trust = {};
    std::filesystem::path directory = {};  ///< where intake.json, with the run's id, and rollout_address are kept
    std::string task_data = {};            ///< the task's file of problems
    /// config.json and tokenizer.json, by name: what a worker needs of a model whose weights it gets as versions. With
    /// adapter_config.json they are low-rank adapters.
    std::map<std::string, std::string> model_files = {};
    /// Workers say something every two seconds, and wait ten for an answer.
    Duration silence_max = std::chrono::seconds(20);
    /// Of each rollout that arrives: what TrajectoryRules allow.
    TrajectoryLimits limits = {};
    std::optional<SyncCoordinatorOptions> sync = {};  ///< ECHO's asynchronous mode
    std::function<void(std::string)> warn = {};
  };

  /// Does not listen yet. `files` and `buffer` outlive it.
  RolloutIntake(FileSystem& files, Options options, SharedReplayBuffer& buffer);
  ~RolloutIntake() override;

  /// Listens. `run` is complete but for its id and the digest of the task's data. `resumed`: the run of intake.json
  /// goes on; otherwise another one begins. Writes where it listens to rollout_address. Errors: those of
  /// HttpServer::start(); kCorrupt and kNotFound (intake.json).
  [[nodiscard]] Status open(RunDescription run, bool resumed);
  /// The run has all of its steps: workers learn that with their next call. Listens until the object goes.
  void handle_ended() { ended_ = true; }
  /// After handle_ended(): waits until all workers that are not silent have learnt it, for at most `limit`. Else
  /// returns at once.
  void wait_for_workers(Duration limit) const;

  /// Waits until a rollout was admitted, for a fraction of a second.
  Result<bool> fill(Instant now, SharedReplayBuffer& buffer) override;
  std::uint64_t malformed() const override { return malformed_; }
  std::string save() const override;
  Status restore(std::string_view state) override;

  [[nodiscard]] const Endpoint& endpoint() const { return server_->endpoint(); }
  [[nodiscard]] std::vector<IntakeWorker> workers() const;
  /// Of workers that something speaks against since the last call: "worker w: it has had leases ...". Looks once in a
  /// second. The learner's thread alone calls it.
  [[nodiscard]] std::vector<std::string> take_faults(Instant now);
  /// Whether that worker is to roll out, which it learns with its next call. Nothing for a name that is not known.
  void set_wanted(const std::string& worker, bool is_wanted);
  /// The origin has taken `version`.
  void handle_published(Version version);
  /// After each step: its figures by name, which GET /v1/status tells. Any thread.
  void handle_figures(std::map<std::string, double, std::less<>> figures);
  /// With Options::sync, after each step: the learner has weights of `version`. Whether it is to publish now.
  [[nodiscard]] bool handle_step(Instant now, Version version);

 private:
  using Handler = HttpResponse (RolloutIntake::*)(const HttpRequest&);

  void handle(HttpRequest request, HttpResponder responder);
  /// A thread for requests, and how many of each worker wait for it.
  struct Queue {
    Queue(std::size_t jobs_max, std::uint64_t per_worker_max) : shares(per_worker_max), thread(jobs_max) {}
    [[nodiscard]] bool take(const std::string& worker) {
      const std::scoped_lock lock(mutex);
      return shares.take(worker, 1);
    }
    void give_back(const std::string& worker) {
      const std::scoped_lock lock(mutex);
      shares.give_back(worker, 1);
    }
    std::mutex mutex;
    PeerShares shares;  // guarded
    WorkThread thread;  // the last member: its jobs use the others
  };

  void post(Queue& queue, Handler handler, HttpRequest request, HttpResponder responder);
  [[nodiscard]] HttpResponse take_rollouts(const HttpRequest& request);
  [[nodiscard]] HttpResponse start_groups(const HttpRequest& request);
  [[nodiscard]] HttpResponse take_heartbeat(const HttpRequest& request);
  [[nodiscard]] HttpResponse tell_status(const HttpRequest& request);
  /// What a call of a worker brings beside its own matter, and what every answer to one says. `buffer` is locked.
  [[nodiscard]] nlohmann::json take_worker_news(ReplayBuffer& buffer, Instant now, const std::string& worker,
                                                const nlohmann::json& json);
  /// What every answer says. `buffer` is locked.
  [[nodiscard]] nlohmann::json state_of(const ReplayBuffer& buffer) const;
  void look_for_silent(ReplayBuffer& buffer, Instant now);
  void count_refused(Instant now, const std::string& worker, std::string_view reason);

  FileSystem& files_;
  const Options options_;
  SharedReplayBuffer& buffer_;
  std::string life_;
  RunDescription run_;
  std::string run_text_;
  std::atomic<bool> ended_ = false;
  std::atomic<std::uint64_t> malformed_ = 0;

  std::mutex admitted_mutex_;
  std::condition_variable admitted_changed_;
  std::uint64_t admitted_ = 0;       // calls that admitted something; guarded by admitted_mutex_
  std::uint64_t admitted_seen_ = 0;  // of these, those that fill() has returned for

  mutable std::mutex table_mutex_;
  WorkerTable table_;
  std::optional<SyncCoordinator> sync_;  // guarded by table_mutex_
  std::mutex figures_mutex_;
  std::map<std::string, double, std::less<>> figures_;  // of the last step; guarded by figures_mutex_
  std::map<std::string, WorkerFault::Kind> faults_;     // told of, by name; of the learner's thread alone, as
  Instant faults_at_{};                                 // when it looks again

  std::unique_ptr<HttpServer> server_;
  std::unique_ptr<Queue> calls_, bodies_;
};

}  // namespace weightcast
