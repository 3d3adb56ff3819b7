#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/result.h"
#include "base/settings/settings.h"
#include "bench/fleet/fleet.h"
#include "bench/fleet/network.h"
#include "bench/fleet/process.h"
#include "bench/fleet/scratch.h"

namespace weightcast::bench {

/// The processes with which a learner in this one trains: an origin's daemon, and for each worker a daemon and
/// `weightcast-engine run`, all on loopback, whose connections are proven and encrypted. They end with this object.
/// Invariant: worker i runs beside the fleet's node i + 1.
class LoopProcesses {
 public:
  /// Starts the daemons of `workers` workers. `programs`: the directory of weightcast and weightcast-engine.
  /// Errors: those of Scratch::make() and Fleet::start().
  [[nodiscard]] static Result<std::unique_ptr<LoopProcesses>> start(const std::filesystem::path& programs,
                                                                    std::uint64_t workers);

  /// The learner's publish_state and rollout_keys.
  [[nodiscard]] std::vector<Setting> learner_settings() const;
  /// Starts the workers of the learner that listens at `learner`. Errors: those of Process::start().
  [[nodiscard]] Status start_workers(const std::string& learner, std::span<const Setting> settings);
  /// The first worker that has ended, with the end of its log; absent while all run. One thread at a time.
  [[nodiscard]] std::optional<std::string> ended_worker();

 private:
  LoopProcesses(std::filesystem::path programs, Scratch scratch)
      : programs_(std::move(programs)), scratch_(std::move(scratch)) {}
  [[nodiscard]] std::string worker_name(std::size_t worker) const;
  [[nodiscard]] std::string log_path(std::size_t worker) const;

  const std::filesystem::path programs_;
  const Scratch scratch_;
  std::unique_ptr<Network> network_;
  std::unique_ptr<Fleet> fleet_;
  std::vector<Process> workers_;  // they end before their daemons
};

}  // namespace weightcast::bench
