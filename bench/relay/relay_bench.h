#pragma once

#include <functional>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>

#include "bench/fleet/fleet_flags.h"

namespace weightcast::bench {

/// One repetition of origin -> relay -> leaf without any limit on rates, and, right before it, of the plain way to do
/// the same with TCP: source -> copier that hashes each chunk, then sends it on -> sink that hashes each chunk; once as
/// it is, and once with copier and sink writing each chunk to a file that was written before.
struct RelayCase {
  struct Plain {
    double seconds = 0;
    double cpu_s = 0;  ///< source, copier and sink
  };

  std::uint64_t payload_bytes = 0;
  Plain plain;
  Plain stored;
  double relay_s = 0;    ///< from the first chunk's leaving, while it is taken over, until the leaf has installed it
  double publish_s = 0;  ///< from the publish call on
  double cpu_s = 0;      ///< origin, relay and leaf, the takeover included
  double stolen_s = 0;   ///< processor time that the host gave to others meanwhile
  std::uint64_t rss_anon_bytes_max = 0;

  /// With --tls: the same by a second fleet, right after, whose connections are encrypted.
  struct Encrypted {
    double relay_s = 0;
    double cpu_s = 0;
    double stolen_s = 0;
    double cipher_s = 0;  ///< the floor: what its two hops encrypt and decrypt, by the cipher alone
  };
  std::optional<Encrypted> encrypted;

  /// CPU of the encrypted relay over the plain one's and the floor of its cipher.
  [[nodiscard]] double encrypted_cpu_ratio() const { return encrypted->cpu_s / (cpu_s + encrypted->cipher_s); }
  /// Of throughputs.
  [[nodiscard]] double ratio() const { return plain.seconds / relay_s; }
  [[nodiscard]] double stored_ratio() const { return stored.seconds / relay_s; }
};

struct RelayBenchOptions {
  std::uint64_t payload_bytes = 512 * kMiB;
  std::uint32_t repetitions = 3;
  FleetFlags flags;
};

/// Publishes three times to warm up (connections, page cache, and files of forgotten versions to write to), which is
/// not reported, then alternates the plain ways and ours, encrypted too if the flags say so. Every installed file is
/// compared with what was published.
[[nodiscard]] Result<std::vector<RelayCase>> run_relay_bench(const RelayBenchOptions& options,
                                                             const std::function<void(const RelayCase&)>& on_case);

[[nodiscard]] nlohmann::json to_json(const std::vector<RelayCase>& cases);
[[nodiscard]] std::string relay_heading();
[[nodiscard]] std::string relay_line(const RelayCase& relay_case);

}  // namespace weightcast::bench
