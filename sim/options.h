#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <vector>

#include "base/time.h"
#include "base/units.h"
#include "sim/fault.h"
#include "sim/liar.h"
#include "sim/network.h"
#include "transport/core/origin/origin_config.h"
#include "transport/core/plan/plan.h"
#include "transport/core/timeouts.h"
#include "transport/core/worker/worker_core.h"

namespace weightcast::sim {

struct DiskOptions {
  Rate write_rate{};                                     ///< without a limit a chunk is stored at once
  Duration sync_delay = std::chrono::milliseconds(500);  ///< a crash loses what is younger
  Duration finish_delay{};                               ///< from the last chunk to the visible version
};

/// How the origin makes patches and packed payloads. All but `enabled`, `share` and `unfit_probability` hold for both.
/// Without either the origin sends every version whole.
struct PatchOptions {
  bool enabled = false;
  double share = 0.01;  ///< a patch's size for one version's change, of the full payload's
  Packing packing = Packing::kNever;
  double packed_share = 0.67;         ///< a packed payload's size, of the full one's
  double pack_bytes_per_s = 1.2e9;    ///< that the origin is told; what packing takes is make_delay
  double unpack_bytes_per_s = 2.0e9;  ///< that workers are told
  Duration make_delay = std::chrono::milliseconds(50);
  double useless_probability = 0;    ///< that it would not be smaller, which the origin sees before it sends anything
  double unfit_probability = 0;      ///< that a worker cannot apply it: its base is damaged
  std::uint32_t growths = 0;         ///< how often the origin announces its growth; 0: it is there at once
  std::uint32_t part_chunks = 4;     ///< of one that grows
  double withdrawn_probability = 0;  ///< that the origin withdraws one that grew
};

/// How the origin takes a new version over, or makes the patch that publishes it. Workers get it meanwhile. To hash a
/// version that was published by its patch takes as long, and is announced as often.
struct TakeoverOptions {
  std::uint32_t growths = 0;  ///< how often the origin announces its growth; 0: it is there at once
  Duration lasts = std::chrono::milliseconds(50);
  std::uint32_t part_chunks = 4;    ///< of one that grows
  bool packable = true;             ///< what samples of its source say
  double refused_probability = 0;   ///< that the origin refuses it at the end
  bool tries_again = true;          ///< the trainer then publishes the same number again
  double by_patch_probability = 0;  ///< that a version is published by its patch, if patches are made
};

/// The archive that workers may read from, each on a link of its own.
struct ArchiveOptions {
  enum class Fault : std::uint8_t {
    kNone,
    kLacks,     ///< it has no such version
    kDiffers,   ///< its digests are of other bytes
    kLies,      ///< its chunks are
    kFails,     ///< a read ends before its first chunk
    kStalls,    ///< nothing comes
    kUnranged,  ///< it sends the whole object instead of a range
  };
  std::uint32_t workers = 0;  ///< how many read it: the first ones
  Rate rate = Rate::bits(100e6);
  Duration delay = std::chrono::milliseconds(20);  ///< of each request
  Fault fault = Fault::kNone;
  double fault_probability = 1;  ///< of each request
};

/// How people configure the nodes.
struct NodeOptions {
  bool rates_configured = true;  ///< without rates nobody predicts anything, and no parent is slow
  std::uint32_t streams = 1;     ///< connections to each parent
  std::uint32_t leaves = 0;      ///< how many workers forward nothing: the last ones
  std::uint32_t versions_kept = 2;
  std::uint32_t anchor_interval = 16;
  /// These are of the release before until their process has ended once: they speak kProtocolVersionMin alone.
  std::set<NodeIndex> older;
  bool origin_lies = false;  ///< its signatures do not hold; workers then take nothing
};

/// A chunk that has reached a node.
struct Delivery {
  NodeIndex from = 0, to = 0;
  PayloadId payload{};
  ChunkIndex chunk{};
  bool damaged = false;
};

/// A whole world. Nothing else decides how a run goes.
struct SimOptions {
  std::uint64_t seed = 1;
  std::uint32_t workers = 12;
  std::uint64_t payload_bytes = 64 * kMiB;
  std::optional<std::uint32_t> chunk_bytes;  ///< without it the planner chooses
  std::uint32_t chunk_bytes_min = 0;         ///< a lower bound of the planner's choice
  Topology topology = Topology::kAuto;
  NetworkOptions network;
  NodeOptions nodes;
  DiskOptions disk;
  ArchiveOptions archive;
  TakeoverOptions takeover;
  PatchOptions patches;
  Timeouts timeouts;
  std::vector<Fault> faults;
  std::vector<LiarOptions> liars;                 ///< hostile members; nothing is promised to them
  Duration publish_at = std::chrono::seconds(1);  ///< the first version, when everyone has joined
  /// After the last fault every worker that runs gets the latest version within this.
  Duration settle_max = std::chrono::seconds(60);
  /// Whether to search assignments for cycles, and to compare chunks asked for with chunks held.
  bool thorough = true;

  /// The last word on how nodes are configured, for tests.
  std::function<void(OriginConfig&)> configure_origin;
  std::function<void(NodeIndex, WorkerConfig&)> configure_worker;
  /// The size of a patch or packed payload, or nothing if it is not worth sending. Without it PatchOptions decide.
  std::function<std::optional<std::uint64_t>(PayloadId)> encoded_bytes;
  /// Makes the cores of workers, if it is set: how a test plants a bug.
  std::function<std::unique_ptr<WorkerCore>(NodeIndex, const WorkerConfig&)> make_worker;
  /// Gets every chunk that reaches a node, before the node does.
  std::function<void(const Delivery&)> on_delivery;
  /// Gets each line that a core logs, with the time since the run began.
  std::function<void(Duration, NodeIndex, const action::Log&)> log;
};

struct PublicationResult {
  Version version{};
  Topology topology{};
  std::uint32_t chunk_bytes = 0;
  Duration predicted{};
  Duration bound{};
  std::vector<std::optional<Duration>> installed;  ///< by worker, since the publication
  std::uint32_t workers = 0;                       ///< that were up when it was over

  /// The time until a fraction `rho` of `workers` had it; nothing if fewer have it.
  [[nodiscard]] std::optional<Duration> reached(double rho) const;
};

struct SimResult {
  std::vector<PublicationResult> publications;
  std::uint64_t origin_egress_bytes = 0;
  std::uint64_t archive_chunks = 0;  ///< that the archive has sent
  std::uint64_t chunks_delivered = 0;
  std::uint64_t patches_installed = 0;       ///< by all workers
  std::uint64_t packed_installed = 0;        ///< by all workers
  std::uint64_t patches_unfit = 0;           ///< that workers could not apply; full payloads replaced them
  std::uint64_t patches_withdrawn = 0;       ///< by the origin, after it had begun to send them
  std::uint64_t full_payloads_made = 0;      ///< by the origin, of versions that it had published by patches
  std::uint64_t versions_refused = 0;        ///< by the origin, after it had begun to send them
  Duration settled{};                        ///< the last worker got the last version so long after the last fault
  std::uint64_t chunks_delivered_twice = 0;  ///< to a node that had verified them before
  std::uint64_t liars_proven = 0;            ///< who lied so that a judgement was possible: all of them are named
  std::uint64_t liars_named = 0;             ///< whom the origin's status named at any time
  std::uint64_t liars_unnamed = 0;
  /// Members that do not lie, and have lost their standing at the end. Those in dispute have not.
  std::uint64_t honest_displaced = 0;
  std::uint64_t events = 0;
  std::uint64_t hash = 0;  ///< of all events: equal for equal options
  Duration simulated{};
  std::optional<std::string> violation;  ///< the first: what, when, the seed, and the events before it
};

[[nodiscard]] SimResult simulate(const SimOptions& options);

}  // namespace weightcast::sim
