#pragma once

#include <gtest/gtest.h>

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "sim/simulation.h"

namespace weightcast::sim {

/// Of a version, where a test needs many: it takes kChunks times Fleet::kChunkTime over one link.
inline constexpr std::uint32_t kChunks = 100;

[[nodiscard]] inline PayloadId full(std::uint64_t version) { return Version{version}; }
[[nodiscard]] inline PayloadId patch(std::uint64_t base, std::uint64_t version) {
  return patch_of(Version{version}, Version{base});
}
[[nodiscard]] inline OriginConfig chain_config(Rate uplink = Rate{}) {
  OriginConfig config;
  config.topology = Topology::kChain;
  config.uplink = uplink;
  return config;
}
/// One chunk per millisecond, which is what a Fleet's node sends by default.
inline constexpr Rate kLine{kChunkBytesMin * 1000.0};
[[nodiscard]] inline WorkerConfig line_worker() {
  WorkerConfig config;
  config.uplink = config.downlink = kLine;
  return config;
}

/// A Simulation whose nodes have names, for tests that act in the middle of a run. Chunks are of the least size, and an
/// uplink sends one in kChunkTime; everything takes kLatency. What breaks an invariant of the simulation fails the
/// test.
class Fleet {
 public:
  static constexpr Duration kLatency = std::chrono::milliseconds(1);
  static constexpr Duration kChunkTime = std::chrono::milliseconds(1);
  static constexpr Duration kGrowthTime = std::chrono::milliseconds(50);
  static constexpr NodeIndex kWorkersMax = 12;

  struct Node {
    std::string name;
    NodeIndex index = 0;
    WorkerCore* worker = nullptr;   ///< null while it is dead, and of the origin
    bool withholds_chunks = false;  ///< it sends none, and says for ever that it has nothing more
    std::vector<std::string> log;
    WorkerConfig config;

    [[nodiscard]] Version installed() const { return worker->installed_version(); }
  };

  struct Arrival {
    std::string from, to;
    PayloadId payload{};
    ChunkIndex chunk{};
    bool damaged = false;
  };

  /// How many chunks a patch or packed payload takes; 0: it would not be worth it.
  using PatchChunks = std::function<std::uint32_t(PayloadId)>;

  /// Without `patch_chunks` every version is sent whole.
  explicit Fleet(OriginConfig config = {}, PatchChunks patch_chunks = nullptr);

  /// Starts a worker: it dials the origin, as every worker does. At most kWorkersMax.
  Node& add(const std::string& name, WorkerConfig config = {});
  /// The same, and runs until it has joined.
  Node& join(const std::string& name, WorkerConfig config = {});
  /// Ends a worker's process without a word; its disk stays.
  void kill(Node& node);
  void restart(Node& node);
  /// A node that hears and does nothing until thawed.
  void freeze(Node& node) { begin(FaultKind::kStall, node); }
  void thaw(Node& node) { end(FaultKind::kStall, node); }
  /// No worker can dial it from now on, or only `from` cannot. `refused`: they hear so at once.
  void block(Node& node, bool refused = false, const Node* from = nullptr);
  void unblock(Node& node, bool refused = false, const Node* from = nullptr);
  void freeze_origin();
  void thaw_origin();
  /// What workers may read whose configuration says so.
  [[nodiscard]] ArchiveOptions& archive() { return simulation_.options().archive; }
  /// Chunks and new versions are refused with kNoSpace.
  void fill_disk(Node& node) { begin(FaultKind::kFullDisk, node); }
  void clear_disk(Node& node) { end(FaultKind::kFullDisk, node); }
  /// What it sends from now on does not match its digest.
  void damage_chunks_of(Node& node);
  void set_chunk_time(Node& node, Duration time);
  void set_disk_rate(Node& node, Rate rate);
  [[nodiscard]] Simulation::DiskTroubles& disk(Node& node) { return simulation_.disk_troubles(node.index); }

  /// Patches and packed payloads are announced when they are begun, and grow so many times, the last of which is their
  /// end; 0: they are there at once. What is withdrawn is so instead of its end.
  void grow_patches(std::uint32_t growths);
  void withdraw_patches(bool yes) { simulation_.options().patches.withdrawn_probability = yes ? 1 : 0; }
  /// The same of versions that are taken over.
  void grow_versions(std::uint32_t growths);
  void refuse_versions(bool yes) { simulation_.options().takeover.refused_probability = yes ? 1 : 0; }
  /// The versions that follow are published by their patches, if `yes`.
  void publish_by_patches(bool yes) { simulation_.options().takeover.by_patch_probability = yes ? 1 : 0; }
  void set_packable(bool yes) { simulation_.options().takeover.packable = yes; }

  /// The next version, which is this one.
  void publish(std::uint64_t version, std::uint32_t chunks);
  /// The same, and runs until every worker that lives has installed it; false if that takes a minute.
  [[nodiscard]] bool install(std::uint64_t version, std::uint32_t chunks);

  void run_for(Duration span);
  /// Whether `done` came to hold within `limit`.
  [[nodiscard]] bool run_until(const std::function<bool()>& done, Duration limit = std::chrono::seconds(60));
  /// Until every worker that lives has installed `version`.
  [[nodiscard]] bool run_until_installed(std::uint64_t version, Duration limit = std::chrono::seconds(60));

  [[nodiscard]] OriginCore& origin() { return simulation_.origin(); }
  [[nodiscard]] Node& operator[](const std::string& name);
  [[nodiscard]] const Member& member(const std::string& name);
  [[nodiscard]] std::string parent_of(const std::string& name);  ///< in the latest plan
  [[nodiscard]] Instant now() const { return simulation_.now(); }
  [[nodiscard]] Instant origin_now() const { return simulation_.local(0); }
  /// Every chunk that reached a node, in the order of arrival.
  [[nodiscard]] const std::vector<Arrival>& deliveries() const { return deliveries_; }
  [[nodiscard]] std::size_t deliveries_to(const std::string& name) const;
  /// What a node received, each payload once, in the order of its first chunk.
  [[nodiscard]] std::vector<PayloadId> payloads_to(const std::string& name) const;

 private:
  SimOptions options(OriginConfig config, PatchChunks patch_chunks);
  void begin(FaultKind kind, const Node& node);
  void end(FaultKind kind, const Node& node);
  bool step(Instant until);

  std::vector<std::unique_ptr<Node>> nodes_;
  std::vector<Arrival> deliveries_;
  Simulation simulation_;
};

/// An origin and `a`, `b` in one chain.
struct ChainOfTwo : testing::Test {
  explicit ChainOfTwo(Fleet::PatchChunks patch_chunks = nullptr, const OriginConfig& origin_config = chain_config(),
                      const WorkerConfig& worker_config = {})
      : fleet(origin_config, std::move(patch_chunks)),
        a(fleet.add("a", worker_config)),
        b((fleet.run_for(std::chrono::milliseconds(10)), fleet.add("b", worker_config))) {}

  Fleet fleet;
  Fleet::Node& a;
  Fleet::Node& b;

  void SetUp() override {
    ASSERT_TRUE(fleet.run_until([&] { return b.worker->joined(); }));
  }
  /// Until every worker has it, and the origin knows that.
  void publish(std::uint64_t version) {
    ASSERT_TRUE(fleet.install(version, kChunks));
    fleet.run_for(std::chrono::milliseconds(10));
  }
  [[nodiscard]] bool is_open(PayloadId payload) {
    const auto held = fleet.origin().holdings().find(payload);
    return held != fleet.origin().holdings().end() && held->second.open();
  }
};

/// An origin and `a`, `b`, `c` in one chain, which is in that order because that is the order of joining.
struct ChainOfThree : testing::Test {
  Fleet fleet{chain_config(kLine)};
  Fleet::Node& a = fleet.add("a", line_worker());
  Fleet::Node& b = (fleet.run_for(std::chrono::milliseconds(10)), fleet.add("b", line_worker()));
  Fleet::Node& c = (fleet.run_for(std::chrono::milliseconds(10)), fleet.add("c", line_worker()));

  void SetUp() override {
    ASSERT_TRUE(fleet.run_until([&] { return c.worker->joined(); }));
    fleet.run_for(std::chrono::milliseconds(50));
  }
};

}  // namespace weightcast::sim
