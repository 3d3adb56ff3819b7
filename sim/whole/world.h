#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/time.h"
#include "base/units.h"
#include "sim/whole/cables.h"
#include "transport/core/origin/origin_config.h"
#include "transport/core/plan/plan.h"

namespace weightcast::sim {

/// Mistakes that a world can make on purpose, one in each layer, to show that it would be noticed. They sit in what the
/// simulation puts under a node or around it: the node's own code has no place for them.
enum class PlantedBug : std::uint8_t {
  kNothing,
  kForgottenDirectorySync,  ///< the store's syncs of directories do nothing
  kBelievedRecord,          ///< recovery finds every record marked durable
  kIgnoredPause,            ///< connections are read while the disk is behind
  kForgottenBase,           ///< the store is not told which versions patches are made from
};

/// What goes wrong with one host, and when.
struct HostFault {
  enum class Kind : std::uint8_t {
    kKill,         ///< kill -9
    kPowerCut,     ///< what was not synced is lost, kept or torn
    kStop,         ///< SIGTERM
    kWipe,         ///< killed, and all that it had is deleted; not the origin
    kNoSpace,      ///< the disk is full
    kDiskErrors,   ///< EIO and short reads and writes, by chance
    kStalledDisk,  ///< nothing that touches the disk ends
    kBitRot,       ///< one bit of one stored file changes
    kIsolate,      ///< no packet reaches it
    kPartition,    ///< none passes between it and `other`
    kReset,        ///< its connections with `other` break
    kSlowUplink,   ///< a fiftieth of its rate
    kCorrupt,      ///< some chunks that it sends are wrong
    kFailedCall,   ///< one call of its disk fails with EIO or ENOSPC: the `changes_later`-th from then, or from its start
    kBlackout,     ///< a power cut of all hosts
  };
  Kind kind{};
  HostIndex host = 0;
  HostIndex other = 0;
  Duration at{};
  Duration lasts{};                 ///< of those that end a process: until it is started again
  std::uint64_t changes_later = 0;  ///< of those that end a process: in the middle of what it does to its files
  std::uint64_t again_after = 0;    ///< and again so many changes after its start, which may be in its recovery; 0: not
};

struct HostOptions {
  Rate uplink{};
  Duration latency = std::chrono::microseconds(200);
  Duration disk_delay_max = std::chrono::milliseconds(2);
  std::uint32_t versions_kept = 2;
  bool single_copy = false;
  bool standby = false;
  bool leaf_only = false;
  std::uint32_t streams = 1;
  Duration starts_at{};  ///< joins
};

/// An inference engine that has the files of the current version open for a while.
struct Reader {
  HostIndex host = 0;
  Duration at{};
  Duration lasts{};
};

/// A whole world: its seed and this determine all that happens.
struct WorldOptions {
  std::uint64_t seed = 1;
  std::vector<HostOptions> hosts;  ///< the first is the origin's
  Topology topology = Topology::kAuto;
  Packing packing = Packing::kAuto;
  std::uint64_t snapshot_bytes = 200 * kKiB;
  std::uint32_t files = 1;      ///< of a snapshot; several have an index beside them
  double changed_share = 0.02;  ///< of the weights, from version to version
  double reshaped_share = 0;    ///< of the versions: they have other sizes than the one before
  bool reuses_numbers = false;  ///< what was refused is published again under its number, with other bytes
  std::vector<Duration> publish_at;
  std::vector<Reader> readers;
  std::uint64_t storing_bytes_max = 32 * kKiB;
  std::vector<HostFault> faults;
  Duration calm_at = std::chrono::seconds(15);  ///< all faults have ended
  PlantedBug bug = PlantedBug::kNothing;
};

struct WorldResult {
  /// What happened, to be added up over many worlds.
  struct Counts {
    std::uint64_t events = 0;
    std::uint64_t published = 0;
    std::uint64_t refused = 0;
    std::uint64_t starts = 0;                         ///< of processes, recoveries included
    std::uint64_t readers = 0;                        ///< that opened a version
    std::uint64_t patches = 0, packed = 0, full = 0;  ///< installations, by what brought them
    std::uint64_t hash = 0;                           ///< of all that happened; a sum, so that order does not matter

    Counts& operator+=(const Counts& other);
  };

  std::optional<std::string> violation;  ///< the first, with when and where
  Counts counts;
};

/// Runs real nodes (core, driver, store, recovery, take-over, patches) on simulated hosts until the faults have ended
/// and everybody has the last version, or until an invariant is broken. They are, looked at as the run goes on:
///   - `current` names a complete version, byte for byte as it was published, or nothing
///   - a version that is complete anywhere holds what was published under its number; one that was refused is nowhere
///   - a version that was reported durable, or a later one, is current after any power cut
///   - what the core may be asked for can be read from the store
///   - what a reader has opened does not change while it reads
///   - chunks on their way to a disk take no more memory than configured, and a little for each connection
///   - chunks that a worker has verified of what it is receiving do not become fewer while it lives
///   - a node starts from whatever its disk holds, and once faults have ended every worker gets the next version
///   - a node that is stopped can be destroyed a moment later, whatever is under way
[[nodiscard]] WorldResult simulate(const WorldOptions& options);

/// A world drawn by chance.
[[nodiscard]] WorldOptions random_world(std::uint64_t seed);

}  // namespace weightcast::sim
