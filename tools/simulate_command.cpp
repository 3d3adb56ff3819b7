#include <fmt/format.h>

#include <cstdio>

#include "base/files/file_system.h"
#include "base/files/posix_file_system.h"
#include "base/json_of.h"
#include "base/json_text.h"
#include "base/text.h"
#include "base/units.h"
#include "sim/options.h"
#include "tools/command.h"

namespace weightcast {
namespace {

struct SimulateFlags {
  std::uint32_t workers = 12;
  std::string uplink = "300mbit";
  std::string peer = "100mbit";
  std::string peer_uplink;
  std::string size = "64MiB";
  std::string chunk;
  std::vector<std::string> topologies{"auto"};
  double delay_ms = 0.5;
  std::string faults_path;
  std::uint64_t seed = 1;
  bool json = false;
};

// Chunks times workers that are simulated in about half a minute. Larger chunks make a pipeline slower, so that where
// this bound enlarges them the answer errs to the safe side.
constexpr std::uint64_t kDeliveriesMax = 8'000'000;
// Where there are more workers, every message's share in cycles and re-requests is not looked at.
constexpr std::uint32_t kThoroughWorkersMax = 200;
constexpr std::uint64_t kFaultsBytesMax = kMiB;

/// The values were checked when they were parsed.
template <typename T>
T value_of(Result<T> parsed) {
  return std::move(*parsed);
}

Result<std::vector<sim::Fault>> read_faults(const std::string& path) {
  if (path.empty()) return std::vector<sim::Fault>{};
  PosixFileSystem files;
  WC_ASSIGN(const std::string text, read_file(files, path, kFaultsBytesMax));
  return sim::parse_faults(text);
}

sim::SimOptions options_of(const SimulateFlags& flags, Topology topology) {
  sim::SimOptions options;
  options.seed = flags.seed;
  options.workers = flags.workers;
  options.payload_bytes = value_of(parse_bytes(flags.size));
  options.topology = topology;
  options.network.origin_uplink = value_of(parse_rate(flags.uplink));
  options.network.worker_downlink = value_of(parse_rate(flags.peer));
  options.network.worker_uplink =
      flags.peer_uplink.empty() ? options.network.worker_downlink : value_of(parse_rate(flags.peer_uplink));
  options.network.one_way_delay = from_seconds(flags.delay_ms / 1e3);
  options.publish_at = std::chrono::seconds(1) + 10 * options.network.one_way_delay;
  options.settle_max = std::chrono::hours(24);
  options.thorough = flags.workers <= kThoroughWorkersMax;
  if (!flags.chunk.empty()) {
    options.chunk_bytes = static_cast<std::uint32_t>(value_of(parse_bytes(flags.chunk)));
  } else if (options.payload_bytes / (16 * kKiB) * flags.workers > kDeliveriesMax) {
    std::uint32_t least = kChunkBytesMin;
    while (options.payload_bytes / least * flags.workers > kDeliveriesMax && least < kChunkBytesMax) least *= 2;
    options.chunk_bytes_min = least;
  }
  return options;
}

std::optional<double> seconds_of(std::optional<Duration> d) { return d ? std::optional(to_seconds(*d)) : std::nullopt; }

std::string number_or_dash(std::optional<double> number) { return number ? fmt::format("{:.3f}", *number) : "-"; }

Status run(const SimulateFlags& flags) {
  WC_ASSIGN(const std::vector<sim::Fault> faults, read_faults(flags.faults_path));
  nlohmann::json cases = nlohmann::json::array();
  if (!flags.json) {
    fmt::print("{:<9} {:>7} {:>10} {:>10} {:>9} {:>9} {:>9} {:>7} {:>9} {:>12}\n", "topology", "workers", "size",
               "chunk", "t50 s", "t90 s", "t100 s", "ratio", "bound s", "origin sent");
  }
  for (const std::string& name : flags.topologies) {
    sim::SimOptions options = options_of(flags, value_of(parse_topology(name)));
    options.faults = faults;
    const sim::SimResult result = sim::simulate(options);
    if (result.violation) {
      return fail(Errc::kCorrupt, Op::kVerify,
                  "an invariant of the transport was broken; please report this:\n" + *result.violation);
    }
    const sim::PublicationResult& first = result.publications.front();
    const Rate peer = options.network.worker_downlink;
    const double line_s = peer.limited() ? double(options.payload_bytes) / peer.bytes_per_s : 0;
    const auto t50_s = seconds_of(first.reached(0.5)), t90_s = seconds_of(first.reached(0.9)),
               t100_s = seconds_of(first.reached(1.0));
    const auto ratio = t100_s && line_s > 0 ? std::optional(*t100_s / line_s) : std::nullopt;
    cases.push_back(merged(WC_JSON_OF(flags.workers, options.payload_bytes, first.chunk_bytes, t50_s, t90_s, t100_s,
                                      line_s, ratio, result.origin_egress_bytes, flags.seed),
                           {{"topology", to_string(first.topology)},
                            {"uplink_bps", options.network.origin_uplink.bits_per_s()},
                            {"peer_bps", peer.bits_per_s()},
                            {"bound_s", to_seconds(first.bound)},
                            {"predicted_s", to_seconds(first.predicted)},
                            {"finished", first.workers}}));
    if (flags.json) continue;
    fmt::print("{:<9} {:>7} {:>10} {:>10} {:>9} {:>9} {:>9} {:>7} {:>9.3f} {:>12}\n", to_string(first.topology),
               flags.workers, format_bytes(options.payload_bytes), format_bytes(first.chunk_bytes),
               number_or_dash(t50_s), number_or_dash(t90_s), number_or_dash(t100_s), number_or_dash(ratio),
               to_seconds(first.bound), format_bytes(result.origin_egress_bytes));
    std::fflush(stdout);
  }
  if (flags.json) fmt::print("{}\n", json_text({{"cases", cases}}));
  return {};
}

}  // namespace

void add_simulate_command(const Commands& commands) {
  const auto [app, flags] = add_command<SimulateFlags>(
      commands, "simulate",
      "Predict a broadcast: the daemon's own core over a simulated network, without sending a byte", run);
  app->add_option("--workers", flags->workers, "How many")->check(CLI::Range(1u, 100'000u));
  app->add_option("--uplink", flags->uplink, "The origin's uplink")->check(rate_validator());
  app->add_option("--peer", flags->peer, "Each worker's downlink, and its uplink")->check(rate_validator());
  app->add_option("--peer-uplink", flags->peer_uplink, "Each worker's uplink, if it differs")->check(rate_validator());
  app->add_option("--size", flags->size, "The payload")->check(bytes_validator());
  app->add_option("--chunk", flags->chunk,
                  "Chunk size, a power of two; the planner's choice without it, enlarged where "
                  "a large fleet would take minutes to simulate")
      ->check(bytes_validator());
  app->add_option("--topology", flags->topologies, "One or several, with commas")
      ->delimiter(',')
      ->check(topology_validator());
  app->add_option("--delay-ms", flags->delay_ms, "One-way delay of every link")->check(CLI::Range(0.0, 60'000.0));
  app->add_option("--faults", flags->faults_path, "A file of faults; sim/fault.h has the grammar")
      ->check(CLI::ExistingFile);
  app->add_option("--seed", flags->seed, "Of everything that is random");
  app->add_flag("--json", flags->json, "JSON");
}

}  // namespace weightcast
