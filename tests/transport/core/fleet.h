#pragma once

#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "transport/core/origin/origin_core.h"
#include "transport/core/worker/worker_core.h"

namespace weightcast {

[[nodiscard]] inline PayloadId full(std::uint64_t version) { return Version{version}; }
[[nodiscard]] inline PayloadId patch(std::uint64_t base, std::uint64_t version) {
  return patch_of(Version{version}, Version{base});
}
[[nodiscard]] inline OriginConfig chain_config() {
  OriginConfig config;
  config.topology = Topology::kChain;
  return config;
}

/// A manifest of `chunks` chunks of the least size, whose chunk digests are fleet_digest(payload, chunk).
[[nodiscard]] std::shared_ptr<const Manifest> fleet_manifest(PayloadId payload, std::uint32_t chunks);
[[nodiscard]] Digest fleet_digest(PayloadId payload, ChunkIndex chunk);
[[nodiscard]] std::vector<Digest> fleet_digests(PayloadId payload, std::uint32_t chunks);

/// Real cores joined by queues: an origin and workers, with time that only run_*() moves. Messages take kLatency;
/// chunks besides take the sender's `chunk_time` each, one after another per connection. The same calls give the same
/// run, always. Every field of a Node may be changed between two runs.
class Fleet {
 public:
  static constexpr Duration kLatency = std::chrono::milliseconds(1);

  struct Delivery {
    std::string from, to;
    PayloadId payload{};
    ChunkIndex chunk{};
    bool damaged = false;
  };

  struct Node {
    std::string name;
    std::unique_ptr<Core> core;    ///< null while it is dead
    WorkerCore* worker = nullptr;  ///< core, if it is a worker's
    Duration chunk_time = std::chrono::milliseconds(1);
    bool damages_chunks = false;                        ///< what it sends does not match its digest
    bool withholds_chunks = false;                      ///< it sends none, and says for ever that it has nothing more
    bool disk_full = false;                             ///< chunks and new versions are refused with kNoSpace
    bool damages_snapshots = false;                     ///< what it stores fails the check of the whole
    bool damaged_base = false;                          ///< patches do not fit what it has installed
    std::set<std::pair<PayloadId, ChunkIndex>> rotten;  ///< chunks whose bytes on disk are wrong
    std::vector<std::string> log;

    [[nodiscard]] Version installed() const { return worker->installed_version(); }

   private:
    friend class Fleet;
    struct End {
      std::size_t peer = 0;
      ConnId peer_conn{};
      Instant free_at{};
    };
    struct Disk {  // of an open payload it is gone with the process
      std::shared_ptr<const Manifest> manifest;
      std::vector<Digest> digests;
      ChunkSet held;
      bool complete = false;
    };
    std::uint16_t port = 0;
    WorkerConfig config;
    std::map<ConnId, End> ends;
    std::map<PayloadId, Disk> disk;
    bool frozen = false;
    std::vector<std::function<void()>> missed;  // while it was frozen
  };

  /// How many chunks a patch takes; 0: it would not be worth it.
  using PatchChunks = std::function<std::uint32_t(PayloadId)>;

  /// How a patch is made: announced at once, then so many steps of kGrowthTime, the last of which is its end, or, for
  /// one that is withdrawn, none. 0: it is there at once.
  std::uint32_t patch_growths = 0;
  bool withdraws_patches = false;
  /// The same of a version that is taken over, of which nothing comes if it is refused at the end.
  std::uint32_t takeover_growths = 0;
  bool refuses_versions = false;
  bool packable = true;  ///< as is said when it begins
  static constexpr Duration kGrowthTime = std::chrono::milliseconds(50);

  /// Without `patch_chunks` every version is sent whole.
  explicit Fleet(OriginConfig config = {}, PatchChunks patch_chunks = nullptr);

  /// Starts a worker: it dials the origin, as every worker does.
  Node& add(const std::string& name, WorkerConfig config = {});
  /// Ends a worker's process without a word; its disk stays.
  void kill(Node& node);
  void restart(Node& node);
  /// A node that hears and does nothing until thawed; the origin is nodes()[0].
  void freeze(Node& node) { node.frozen = true; }
  void thaw(Node& node);
  /// The origin's own part of a publication.
  void publish(std::uint64_t version, std::uint32_t chunks);

  void run_for(Duration span);
  /// Whether `done` came to hold within `limit`.
  [[nodiscard]] bool run_until(const std::function<bool()>& done, Duration limit = std::chrono::seconds(60));
  /// Until every worker that lives has installed `version`.
  [[nodiscard]] bool run_until_installed(std::uint64_t version, Duration limit = std::chrono::seconds(60));

  [[nodiscard]] OriginCore& origin() { return *origin_; }
  [[nodiscard]] Node& operator[](const std::string& name);
  [[nodiscard]] const Member& member(const std::string& name) const;
  [[nodiscard]] std::string parent_of(const std::string& name) const;  ///< in the latest plan
  [[nodiscard]] Instant now() const { return now_; }
  /// Every chunk that reached a node, in the order of arrival.
  [[nodiscard]] const std::vector<Delivery>& deliveries() const { return deliveries_; }
  [[nodiscard]] std::size_t deliveries_to(const std::string& name) const;
  /// What a node received, each payload once, in the order of its first chunk.
  [[nodiscard]] std::vector<PayloadId> payloads_to(const std::string& name) const;

 private:
  void later(Instant at, std::function<void()> what);
  /// Runs `what` at `at`, unless the node is dead by then or `conn` has ended; a frozen node gets it when it thaws.
  void later_at(std::size_t node, ConnId conn, Instant at, std::function<void(Node&)> what);
  void deliver(std::size_t node, ConnId conn, std::function<void(Node&)> what);
  bool step(Instant until);
  void pump(std::size_t index);
  void cut(std::size_t index, ConnId conn, Instant at);
  void perform(std::size_t index, Node& node, Action action);
  void start(std::size_t index);
  void say_up_to_date(std::size_t index, ConnId conn, PayloadId payload);
  void make_patch(PayloadId payload);
  void grow_patch(PayloadId payload, std::uint32_t growth);
  void grow_version(Version version, std::uint32_t chunks, std::uint32_t growth);

  Instant now_{std::chrono::hours(1)};
  std::uint64_t sequence_ = 0;
  std::map<std::pair<Instant, std::uint64_t>, std::function<void()>> events_;
  std::vector<std::unique_ptr<Node>> nodes_;
  OriginCore* origin_ = nullptr;
  PatchChunks patch_chunks_;
  std::vector<Delivery> deliveries_;
};

}  // namespace weightcast
