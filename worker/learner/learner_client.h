#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "base/ids.h"
#include "base/result.h"
#include "base/settings/endpoint.h"
#include "base/time.h"
#include "base/units.h"
#include "trainer/tasks/run_description.h"
#include "trainer/tasks/trajectory/trajectory.h"
#include "transport/http/trust.h"
#include "worker/learner/worker_heartbeat.h"

namespace weightcast {

/// What the learner says with each answer.
struct LearnerState {
  Version version{};                 ///< of its weights now
  Version oldest_admissible{};       ///< rollouts with older tokens are refused
  bool ended = false;                ///< the run has all of its steps: nothing more is wanted
  bool is_wanted = true;             ///< this worker is to roll out; one that is not starts nothing
  Version begin_at_least{};          ///< no turn begins under an older version; kNoVersion: it may
  bool has_restarted = false;        ///< it has forgotten what this worker has under way, and has it made again
  std::vector<std::uint64_t> abort;  ///< sequence numbers of this worker's rollouts that became inadmissible; each once
};

/// A group that this worker is to generate. Its prompt and its members' seeds follow from the run's seed and `number`.
struct StartedGroup {
  std::uint64_t number = 0;
  std::uint64_t first_sequence = 0;  ///< of its first member; the others follow
  Version begin_at_least{};          ///< under an older version it would be too old for its batch
};

struct StartedGroups {
  std::vector<StartedGroup> groups;  ///< none: ask again after `retry`
  Duration retry{};
  LearnerState learner;
};

/// What became of rollouts since the client was made, and what waits now.
struct LearnerClientStats {
  std::uint64_t acknowledged = 0;  ///< admitted, or there already
  std::uint64_t refused = 0;       ///< for good
  std::map<std::string, std::uint64_t> refused_by_reason;
  std::uint64_t dropped = 0;        ///< too old while they waited, or of a learner that was restarted
  std::uint64_t waiting = 0;        ///< now
  std::uint64_t waiting_bytes = 0;  ///< now
  std::string last_error;           ///< of the sender; "" once it works again
};

/// A worker's way to its learner. Rollouts wait in memory until a thread of the client's has sent them and the learner
/// has judged them. If either side is restarted, what waits is dropped, and its groups are made again. Any thread may
/// call; calls of one kind wait for each other.
class LearnerClient {
 public:
  struct Options {
    Endpoint learner = {};
    HttpTrust trust = {};
    std::string name = {};  ///< of this worker. With keys: the certificate's, and this is ignored
    std::uint64_t waiting_bytes_max = 256 * kMiB;
    Duration call_time_max = std::chrono::seconds(10);
  };

  /// Waits for nobody. Errors: kInvalidArgument (no name), those of reading keys and of HttpClient::make().
  [[nodiscard]] static Result<std::unique_ptr<LearnerClient>> make(Options options);
  /// Stops the sender. What waits is lost.
  virtual ~LearnerClient() = default;

  [[nodiscard]] virtual const std::string& name() const = 0;

  // Calls to the learner: one try each, within call_time_max. Errors: those of HttpClient::call(); kBusy (the learner
  // says that it is overloaded); kInvalidArgument (it refuses the call; its words follow); kCorrupt (its answer).
  // kWrongBase: it is at another run than run() has given first. Its rollouts are of no use there: begin anew.

  /// What the run is. From the first answer on, this client is of that run.
  [[nodiscard]] virtual Result<RunDescription> run() = 0;
  /// "config.json" or "tokenizer.json" of the model that the run trains, or "adapter_config.json". Versions are weights
  /// alone.
  [[nodiscard]] virtual Result<std::string> model_file(const std::string& name) = 0;
  /// The task's file of problems.
  [[nodiscard]] virtual Result<std::string> task_data() = 0;
  /// Asks to start up to `groups` groups of `rollouts_per_group` rollouts (group_size, or more where some will be
  /// dropped). Each rollout then has to be sent, abandoned, or aborted as the learner says.
  [[nodiscard]] virtual Result<StartedGroups> start(std::uint64_t groups, std::uint64_t rollouts_per_group) = 0;
  /// These rollouts will not be sent. The learner hears of it with the next call of start() or heartbeat().
  virtual void abandon(const std::vector<std::uint64_t>& sequences) = 0;
  /// To be called every few seconds, generating or not: a worker that is silent for 20 s is taken for dead, and
  /// what it has started is given up.
  [[nodiscard]] virtual Result<LearnerState> heartbeat(const WorkerHeartbeat& said) = 0;

  /// Takes a rollout, and waits for nobody. `sequence` is what start() gave; `worker` is filled in. Errors: kNoSpace
  /// (so many wait that the learner could still take: generate no more until it does).
  [[nodiscard]] virtual Status send(Trajectory trajectory) = 0;

  /// Waits until nothing waits. False after `limit`.
  [[nodiscard]] virtual bool drain(Duration limit) = 0;
  [[nodiscard]] virtual LearnerClientStats stats() const = 0;
};

}  // namespace weightcast
