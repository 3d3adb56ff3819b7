#pragma once

#include "bench/broadcast/broadcast_bench.h"

namespace weightcast::bench {

/// One broadcast, simulated, and measured too unless it has too many workers for that.
struct PredictCase {
  BroadcastCase real;  ///< only what was asked, if it was not measured
  bool measured = false;
  std::string topology;                        ///< what the simulation's planner chose
  std::optional<double> t50_s, t90_s, t100_s;  ///< simulated
  double bound_s = 0;                          ///< of any topology

  /// Of a real time: without taking the snapshot over, which is not simulated.
  [[nodiscard]] std::optional<double> sent_s(const std::optional<double>& t_s) const;
  /// The error of the simulated t100, as a share of the real one. Negative if the simulation was too optimistic.
  [[nodiscard]] std::optional<double> error() const;
};

struct PredictBenchOptions {
  std::vector<Topology> topologies;
  std::vector<std::size_t> measured_workers;
  std::vector<std::size_t> further_workers;  ///< only simulated
  LinkSpec links;
  Duration one_way_delay{};  ///< of the simulated network
  FleetFlags flags;
};

/// Measures, then simulates. The simulation gets the rates that a plain TCP stream reached through the same caps,
/// because it does not model headers and the kernel's token buckets. Errors: those of run_broadcast_bench(); kCorrupt
/// (the simulation broke an invariant).
[[nodiscard]] Result<std::vector<PredictCase>> run_predict_bench(
    const PredictBenchOptions& options, const std::function<void(const PredictCase&)>& on_case);

[[nodiscard]] nlohmann::json to_json(const std::vector<PredictCase>& cases);
[[nodiscard]] std::string predict_heading();
[[nodiscard]] std::string predict_line(const PredictCase& predict_case);
/// Time to rho = 0.5, 0.9 and 1.0 against the number of workers, simulated and real.
[[nodiscard]] Figure predict_figure(const std::vector<PredictCase>& cases);

}  // namespace weightcast::bench
