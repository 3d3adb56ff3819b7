#pragma once

#include <filesystem>
#include <functional>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "base/ids.h"
#include "bench/fleet/network.h"
#include "bench/fleet/process.h"
#include "bench/fleet/scratch.h"
#include "client/attempt.h"
#include "transport/core/plan/plan.h"

namespace weightcast::bench {

struct FleetOptions {
  std::string program;            ///< the weightcast binary
  std::filesystem::path scratch;  ///< state directories and logs go there; on a real disk, to measure storing
  Topology topology = Topology::kAuto;
  std::vector<std::string> daemon_flags;  ///< further flags for every node
  std::vector<std::string> worker_flags;  ///< and for workers only
  std::uint32_t versions_kept = 1;
  bool encrypted = false;        ///< nodes get keys of a cluster of their own; else connections are plain
  bool configures_rates = true;  ///< nodes are told their links' rates; else they find them
  std::uint16_t port_shift = 0;  ///< of the network's ports, which several fleets on it may not share
  /// On capped links, nodes limit themselves to this share of their rates. So their own queues fill, not the link's,
  /// and a sender shares its uplink evenly. Without it only the links limit them.
  std::optional<double> paced_share;
};

/// What one broadcast took. Seconds count from the call of publish().
struct BroadcastCost {
  std::optional<double> t50_s, t90_s, t100_s;  ///< until so many of 100 workers had installed it; absent if never
  double take_s = 0;                           ///< until the origin had taken the snapshot over; part of all times
  std::uint64_t origin_egress_bytes = 0;  ///< by the interface where hosts have one, else as the origin counts chunks
  double cpu_s = 0;                       ///< all nodes
  double stolen_s = 0;                    ///< processor time that the host gave to others, of all this machine's cores
  std::uint64_t rss_anon_bytes_max = 0;   ///< of any node, at any time
};

/// One broadcast, as observed from outside the nodes.
struct Broadcast : BroadcastCost {
  wc::Outcome outcome;                             ///< what the origin says
  std::vector<std::optional<double>> installed_s;  ///< by worker: when its own node told a subscriber
  std::vector<std::uint64_t> received_bytes;       ///< by worker, chunks only; 0 for one that ended
};

/// An origin and its workers as real processes on a network. All workers have joined when start() returns. The
/// destructor ends all processes.
class Fleet {
 public:
  /// Errors: those of Process::start() and wc_open(); kTimedOut, with the name of a worker that did not join and
  /// the end of its log.
  [[nodiscard]] static Result<std::unique_ptr<Fleet>> start(Network& network, std::size_t workers,
                                                            const FleetOptions& options);
  Fleet(const Fleet&) = delete;
  Fleet& operator=(const Fleet&) = delete;

  /// Starts one more worker on the network's next host. Returns the seconds from the start of its process until it has
  /// installed `version` or a later one. The origin has `version`. Errors: kTimedOut.
  [[nodiscard]] Result<double> add_worker(Version version);

  [[nodiscard]] std::size_t worker_count() const { return nodes_.size() - 1; }
  [[nodiscard]] Process& process(NodeIndex node) { return nodes_.at(node).process; }
  /// Nothing of one that has ended.
  [[nodiscard]] ProcessUsage usage(NodeIndex node) const {
    return nodes_.at(node).process.usage().value_or(ProcessUsage{});
  }
  [[nodiscard]] std::filesystem::path state(NodeIndex node) const { return nodes_.at(node).state; }
  [[nodiscard]] const std::string& origin_address() const { return origin_address_; }
  [[nodiscard]] Network& network() { return network_; }
  /// What a node says of itself and others: the JSON of wc_status(), and of wc_versions(). Errors: theirs.
  [[nodiscard]] Result<nlohmann::json> status(NodeIndex node = 0, Duration timeout = std::chrono::seconds(5)) const;
  [[nodiscard]] Result<nlohmann::json> versions(NodeIndex node) const;
  [[nodiscard]] double cpu_s();
  /// Chunk bytes by worker. The workers are asked, because the origin's figures are as old as their last heartbeats.
  /// Absent for a worker that does not answer or is not `asked`; a stopped worker would have to be waited for.
  [[nodiscard]] std::vector<std::optional<std::uint64_t>> received_bytes(
      const std::function<bool(NodeIndex)>& asked = {});

  struct BroadcastOptions {
    Duration timeout = std::chrono::seconds(600);
    /// Called about every 20 ms with the seconds since publish() was called. Faults are injected here.
    std::function<Status(double elapsed_s)> on_tick;
    /// Workers that are not waited for, because a fault stops them.
    std::function<bool(NodeIndex)> is_expected;
  };
  /// Publishes and waits until every expected worker has installed it. A worker that does not is no error, but a result
  /// in Broadcast. Errors: the origin's; kClosed (interrupted).
  [[nodiscard]] Result<Broadcast> broadcast(Version version, const Payload& payload, const BroadcastOptions& options);

 private:
  struct Node {
    std::filesystem::path state;
    Process process;
    double last_cpu_s = 0;
  };

  struct Counters {
    double cpu_s = 0;
    double stolen_s = 0;
    std::uint64_t origin_sent_bytes = 0;
    std::vector<std::uint64_t> received_bytes;
  };

  Fleet(Network& network, FleetOptions options) : network_(network), options_(std::move(options)) {}
  Status start_node(NodeIndex node);
  /// How that node's connections are made.
  Result<std::vector<std::string>> trust_flags(NodeIndex node, const std::string& name) const;
  Status wait_for_members();
  std::string log_tail(NodeIndex node) const;
  std::uint64_t rss_anon_bytes_max();
  Result<Counters> read_counters();

  Network& network_;
  FleetOptions options_;
  std::string origin_address_;
  std::vector<Node> nodes_;
};

}  // namespace weightcast::bench
