#pragma once

#include <functional>
#include <nlohmann/json.hpp>
#include <string>

#include "bench/fleet/fleet_flags.h"

namespace weightcast::bench {

/// One repetition of origin -> relay -> leaf without any limit on rates, and, right before it, of the plain way to do
/// the same with TCP: source -> copier that hashes each chunk, then sends it on -> sink that hashes each chunk. The
/// plain way stores nothing.
struct RelayCase {
  std::uint64_t payload_bytes = 0;
  double plain_s = 0;
  double plain_cpu_s = 0;  ///< source, copier and sink
  double relay_s = 0;      ///< from the end of the origin's takeover until the leaf has installed it
  double publish_s = 0;    ///< the same with the takeover
  double cpu_s = 0;        ///< origin, relay and leaf, the takeover included
  std::uint64_t rss_anon_bytes_max = 0;

  [[nodiscard]] double ratio() const { return plain_s / relay_s; }  ///< of throughputs
};

struct RelayBenchOptions {
  std::uint64_t payload_bytes = 512 * kMiB;
  std::uint32_t repetitions = 3;
  FleetFlags flags;
};

/// Publishes once to warm up (connections, page cache, first-touched memory), which is not reported, then alternates
/// the plain way and ours. Every installed file is compared with what was published.
[[nodiscard]] Result<std::vector<RelayCase>> run_relay_bench(const RelayBenchOptions& options,
                                                             const std::function<void(const RelayCase&)>& on_case);

[[nodiscard]] nlohmann::json to_json(const std::vector<RelayCase>& cases);
[[nodiscard]] std::string relay_heading();
[[nodiscard]] std::string relay_line(const RelayCase& relay_case);

}  // namespace weightcast::bench
