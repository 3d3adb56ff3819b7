#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <vector>

#include "base/time.h"
#include "base/units.h"
#include "sim/fault.h"
#include "transport/core/origin/origin_config.h"
#include "transport/core/plan/plan.h"
#include "transport/core/timeouts.h"
#include "transport/core/worker/worker_core.h"

namespace weightcast::sim {

struct NetworkOptions {
  Rate origin_uplink = Rate::bits(300e6);  ///< B
  Rate worker_uplink = Rate::bits(100e6);  ///< b
  Rate worker_downlink = Rate::bits(100e6);
  Duration one_way_delay = std::chrono::microseconds(500);
  Duration jitter_max{};        ///< of each connection, drawn once: frames of two may overtake one another
  double loss_probability = 0;  ///< of each frame, always; faults add to it
  Duration retransmit_after = std::chrono::milliseconds(200);
  std::uint32_t in_flight_bytes_max = 4 * kMiB;  ///< of one connection, as socket buffers bound it
  Duration connect_timeout = std::chrono::seconds(5);
};

struct DiskOptions {
  Rate write_rate{};                                     ///< no limit: a chunk is stored at once
  Duration sync_delay = std::chrono::milliseconds(500);  ///< what is younger than this does not survive a crash
  Duration finish_delay{};                               ///< from the last chunk to the visible version
};

/// What it takes to send the difference of two versions only, and packed payloads. Without it every version is sent
/// whole, as it is.
struct PatchOptions {
  bool enabled = false;
  double share = 0.01;  ///< of the payload, for one version's change
  Packing packing = Packing::kNever;
  double packed_share = 0.67;  ///< of the payload, for a packed one; what follows is said of those, too
  Duration make_delay = std::chrono::milliseconds(50);
  double useless_probability = 0;    ///< that a patch turns out not to be worth it
  double unfit_probability = 0;      ///< that a worker finds its base damaged when it applies one
  std::uint32_t growths = 0;         ///< times that one is announced to have grown while it is made
  std::uint32_t part_chunks = 4;     ///< of one that grows
  double withdrawn_probability = 0;  ///< that one that grew turns out not to be worth it
};

/// How the origin takes a new version over, which it sends meanwhile to those who need it whole.
struct TakeoverOptions {
  std::uint32_t growths = 0;  ///< times that it is announced to have grown; 0: it is there at once
  Duration lasts = std::chrono::milliseconds(50);
  std::uint32_t part_chunks = 4;   ///< of one that grows
  bool packable = true;            ///< what the samples of its source say
  double refused_probability = 0;  ///< that it comes to nothing at the end
  bool tries_again = true;         ///< and then the same number is published again
};

/// What people configure of the nodes.
struct NodeOptions {
  bool rates_configured = true;  ///< without it nobody predicts anything, and no parent is slow
  std::uint32_t streams = 1;     ///< connections to each parent
  std::uint32_t leaves = 0;      ///< so many workers, the last ones, forward nothing
  std::uint32_t versions_kept = 2;
  std::uint32_t anchor_interval = 16;
};

/// A chunk that has reached a node.
struct Delivery {
  NodeIndex from = 0, to = 0;
  PayloadId payload{};
  ChunkIndex chunk{};
  bool damaged = false;
};

/// The whole world. Nothing else decides how a run goes.
struct SimOptions {
  std::uint64_t seed = 1;
  std::uint32_t workers = 12;
  std::uint64_t payload_bytes = 64 * kMiB;
  std::optional<std::uint32_t> chunk_bytes;  ///< the planner's choice without it
  std::uint32_t chunk_bytes_min = 0;         ///< enlarges the planner's choice
  Topology topology = Topology::kAuto;
  NetworkOptions network;
  NodeOptions nodes;
  DiskOptions disk;
  TakeoverOptions takeover;
  PatchOptions patches;
  Timeouts timeouts;
  std::vector<Fault> faults;
  Duration publish_at = std::chrono::seconds(1);  ///< the first version; by then everyone has joined
  /// Once nothing is wrong any more, everybody who runs has to have the latest version within this.
  Duration settle_max = std::chrono::seconds(60);
  /// Whether told assignments are searched for cycles, and chunks asked for compared with chunks held.
  bool thorough = true;

  /// The last word on how nodes are configured, for tests.
  std::function<void(OriginConfig&)> configure_origin;
  std::function<void(NodeIndex, WorkerConfig&)> configure_worker;
  /// The size of a patch or packed payload, or nothing if it is not worth sending. Without it PatchOptions decide.
  std::function<std::optional<std::uint64_t>(PayloadId)> encoded_bytes;
  /// Stands between the world and a worker's core: how a test plants a bug.
  std::function<std::unique_ptr<Core>(NodeIndex, std::unique_ptr<WorkerCore>)> wrap_worker;
  /// Gets every chunk that reaches a node, before the node does.
  std::function<void(const Delivery&)> on_delivery;
  /// Gets what the cores log, with the time since the run began.
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

  /// Until a fraction `rho` of the workers that count had it.
  [[nodiscard]] std::optional<Duration> reached(double rho) const;
};

struct SimResult {
  std::vector<PublicationResult> publications;
  std::uint64_t origin_egress_bytes = 0;
  std::uint64_t chunks_delivered = 0;
  std::uint64_t patches_installed = 0;       ///< by all workers
  std::uint64_t packed_installed = 0;        ///< by all workers
  std::uint64_t patches_unfit = 0;           ///< refused for a damaged base, and made up for by full payloads
  std::uint64_t patches_withdrawn = 0;       ///< by the origin, after it had begun to send them
  std::uint64_t versions_refused = 0;        ///< the same
  std::uint64_t chunks_delivered_twice = 0;  ///< came to a node that had verified them before
  std::uint64_t events = 0;
  std::uint64_t hash = 0;  ///< of all that happened: equal for equal options
  Duration simulated{};
  std::optional<std::string> violation;  ///< what, when, the seed, and the events before it
};

[[nodiscard]] SimResult simulate(const SimOptions& options);

}  // namespace weightcast::sim
