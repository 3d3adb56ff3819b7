#pragma once

#include <functional>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "bench/fleet/fleet_flags.h"

namespace weightcast::bench {

/// One broadcast with one fault in its middle.
struct FaultResult {
  std::string scenario;
  double fault_at_s = 0;
  double baseline_s = 0;              ///< t100 of the same broadcast without a fault, in the same run
  std::optional<double> survivors_s;  ///< until every worker that the fault left able to had installed it
  std::size_t workers = 0;
  std::size_t survivors = 0;  ///< workers from whom it was awaited
  std::size_t finished = 0;   ///< of those
  /// From the fault until every survivor received at 80 % or more of its rate before the fault.
  std::optional<double> recovery_s;
  std::uint64_t extra_bytes = 0;  ///< chunk bytes that survivors received beyond one payload each
  std::uint64_t corrupted = 0;    ///< bits flipped by a lying relay
  std::vector<std::string> victims;

  [[nodiscard]] std::optional<double> delay_s() const;
  /// Share of the survivors' throughput that the fault cost, as ECHO-2's table has it.
  [[nodiscard]] std::optional<double> throughput_drop() const;
};

struct FaultsBenchOptions {
  std::size_t workers = 12;
  LinkSpec links;
  std::vector<std::string> scenarios;  ///< empty: all that the network can do
  FleetFlags flags;
};

/// Names of all scenarios, with what they do.
[[nodiscard]] std::vector<std::pair<std::string, std::string>> fault_scenarios();

/// Runs each scenario on a fleet of its own, by chain, after a run without a fault. Compares the survivors' snapshots
/// with the payload. If survivors do not finish, that is a result, not an error. Errors: those of the fleet; kCorrupt.
[[nodiscard]] Result<std::vector<FaultResult>> run_faults_bench(
    const FaultsBenchOptions& options, const std::function<void(const FaultResult&)>& on_result);

[[nodiscard]] nlohmann::json to_json(const std::vector<FaultResult>& results);
[[nodiscard]] std::string faults_heading();
[[nodiscard]] std::string faults_line(const FaultResult& result);

}  // namespace weightcast::bench
