#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>

#include "base/result.h"

namespace weightcast::bench {

struct InstallBenchOptions {
  std::uint64_t weight_bytes = std::uint64_t{256} << 20;  ///< about; BF16
  std::uint32_t repetitions = 5;
};

/// Versions of an engine that generates for 8 requests. Medians.
struct InstallBenchResult {
  std::uint64_t weight_bytes = 0;
  std::uint64_t changed_cells = 0;
  std::uint64_t written_bytes = 0;
  double open_s = 0;             ///< mapped: reading and checking, beside the engine
  double switch_s = 0;           ///< mapped: the pause
  double compare_s = 0;          ///< resident: reading, checking and comparing, beside the engine
  double list_s = 0;             ///< resident: checking a daemon's list of the same changes instead
  double write_s = 0;            ///< resident: the pause for the changed cells
  double resident_switch_s = 0;  ///< and for the rest
};

/// Errors: those of writing and reading the versions.
[[nodiscard]] Result<InstallBenchResult> run_install_bench(const InstallBenchOptions& options);
[[nodiscard]] nlohmann::json to_json(const InstallBenchResult& result);

}  // namespace weightcast::bench
