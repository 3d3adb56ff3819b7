#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/time.h"
#include "base/units.h"
#include "sim/fault.h"
#include "sim/network.h"
#include "sim/whole/planted_bugs.h"
#include "transport/core/origin/origin_config.h"
#include "transport/core/plan/plan.h"

namespace weightcast::sim {

struct HostOptions {
  Rate uplink{};
  Duration delay = std::chrono::microseconds(100);  ///< of each frame from or to it
  Duration disk_delay_max = std::chrono::milliseconds(2);
  std::uint32_t versions_kept = 2;
  bool single_copy = false;
  bool in_memory = false;  ///< its versions, so that a power cut leaves the log alone
  bool standby = false;
  bool leaf_only = false;
  std::uint32_t streams = 1;
  Duration starts_at{};  ///< later than 0: joins in the middle
};

/// An inference engine that opens the files of the current version, and keeps them open for a while.
struct Reader {
  NodeIndex host = 0;
  Duration at{};
  Duration lasts{};
};

/// A whole world. Nothing else decides how a run goes.
struct WorldOptions {
  std::uint64_t seed = 1;
  std::vector<HostOptions> hosts;  ///< the first is the origin's
  Topology topology = Topology::kAuto;
  Packing packing = Packing::kAuto;
  std::uint64_t snapshot_bytes = 200 * kKiB;
  std::uint32_t files = 1;      ///< of a snapshot; several have an index beside them
  double changed_share = 0.02;  ///< of the weights, from version to version
  double sparse_share = 0;      ///< of the versions; they are published as changes to the version before
  double reshaped_share = 0;    ///< of the versions; their tensors have other shapes than the version before
  bool reuses_numbers = false;  ///< the trainer gives the number of a refused version to its next one
  NetworkOptions network = {.one_way_delay = {}, .in_flight_bytes_max = 64 * kKiB};  ///< but for what hosts say
  std::vector<Fault> faults;                                                         ///< and publications
  std::vector<Reader> readers;
  std::uint64_t storing_bytes_max = 32 * kKiB;
  Duration calm_at = std::chrono::seconds(15);  ///< when all faults end
  PlantedBug bug = PlantedBug::kNothing;
};

struct WorldResult {
  /// Counts of events.
  struct Counts {
    std::uint64_t events = 0;
    std::uint64_t published = 0;
    std::uint64_t sparse = 0;  ///< of those, as changes
    std::uint64_t refused = 0;
    std::uint64_t starts = 0;                         ///< of processes, recoveries included
    std::uint64_t readers = 0;                        ///< that opened a version
    std::uint64_t patches = 0, packed = 0, full = 0;  ///< installations, by what brought them
    std::uint64_t hash = 0;                           ///< of all that happened
  };

  std::optional<std::string> violation;  ///< the first: seed, time, host, what
  Counts counts;
};

/// Runs real nodes (core, driver, store, recovery, take over, patches) on simulated hosts. Ends when all faults have
/// ended and every worker has one more version, or when an invariant is broken. Invariants, checked as the run goes on:
///   - `current` names a complete version, byte for byte as published, or nothing
///   - each complete version on any disk has the bytes that a run published under its number; no disk has a refused one
///   - a version that was reported durable, or a later one, is current after any power cut; one of a later run is later
///   - the store has every payload that the core offers to others
///   - the bytes that a reader has opened do not change while it reads
///   - chunks on their way to a disk take no more memory than configured, and a little for each connection
///   - a worker that lives does not lose verified chunks of the payload that it receives
///   - a node starts from any state of its disk, and once faults have ended every worker gets the next version, of
///     whatever run it had one before
///   - a node that was stopped can be destroyed Node::kGoodbye later, whatever is under way
[[nodiscard]] WorldResult simulate(const WorldOptions& options);

/// Draws a world; the seed alone determines it.
[[nodiscard]] WorldOptions random_world(std::uint64_t seed);

}  // namespace weightcast::sim
