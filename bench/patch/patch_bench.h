#pragma once

#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "bench/fleet/fleet_flags.h"

namespace weightcast::bench {

struct PatchBenchOptions {
  std::size_t workers = 6;
  LinkSpec links;      ///< its payload is the whole snapshot
  unsigned steps = 3;  ///< versions after the first, each one optimiser step from the one before
  FleetFlags flags;
};

/// One version through the engine. Seconds count from the call of publish().
struct PatchBenchCase {
  std::uint64_t version = 0;
  std::string kind;
  std::uint64_t payload_bytes = 0;
  double line_s = 0;  ///< payload over a worker's rate: computed, not measured
  double take_s = 0;  ///< until the origin had its own copy
  double encode_s = 0;
  double first_sent_s = 0;  ///< until the origin had sent the first chunk
  std::optional<double> t50_s, t90_s, t100_s;
  double transfer_s = 0, finish_s = 0, switch_s = 0;  ///< the slowest worker's; see local.proto
  std::uint64_t origin_egress_bytes = 0;
  double cpu_s = 0;
  double stolen_s = 0;  ///< processor time that the host gave to others meanwhile
  std::uint64_t rss_anon_bytes_max = 0;
};

struct PatchBenchResult {
  PatchBenchOptions options;
  std::vector<PatchBenchCase> cases;
  std::uint64_t steps_bytes = 0;  ///< of ten patches of one step each, of a part of the snapshot
  std::uint64_t fold_bytes = 0;   ///< of one patch over the same ten steps
};

/// Publishes consecutive versions of an optimiser to real processes by chain, and compares each installed snapshot with
/// the published one. The versions come from a trace of at most 16 Mi cells (bench/codec/trace.h), repeated to the
/// wanted size. Errors: those of the fleet; kTimedOut (a worker does not finish).
[[nodiscard]] Result<PatchBenchResult> run_patch_bench(const PatchBenchOptions& options);
[[nodiscard]] nlohmann::json to_json(const PatchBenchResult& result);

}  // namespace weightcast::bench
