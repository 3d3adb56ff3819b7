#include "sim/simulation.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "sim/stand_ins.h"

namespace weightcast::sim {

std::optional<Duration> PublicationResult::reached(double rho) const {
  std::vector<Duration> times;
  for (const auto& t : installed) {
    if (t) times.push_back(*t);
  }
  const auto wanted = static_cast<std::size_t>(std::ceil(rho * workers - 1e-9));
  if (wanted == 0 || times.size() < wanted) return std::nullopt;
  std::nth_element(times.begin(), times.begin() + static_cast<std::ptrdiff_t>(wanted - 1), times.end());
  return times[wanted - 1];
}

SimResult simulate(const SimOptions& options) { return Simulation(options).run(); }

Simulation::Simulation(const SimOptions& options)
    : options_(options),
      random_(options.seed),
      network_(options.network, options.workers + 1, random_, events_, *this),
      verdict_(options.seed) {
  for (const Fault& fault : options_.faults) verdict_.add_term(to_text(fault));
  for (const LiarOptions& liar : options_.liars) verdict_.add_term(to_text(liar));
  signer_->lie(options.nodes.origin_lies);
  for (NodeIndex node = 0; node <= options_.workers; ++node) {
    Node& made = nodes_.emplace_back(options_.disk);
    made.clock_offset = random_.duration(std::chrono::seconds(1), std::chrono::hours(1));
  }
}

SimResult Simulation::run() {
  for (NodeIndex node = 0; node <= options_.workers; ++node) start_node(node);
  // The first publication is one more fault, the one that all others count from.
  events_.schedule(Instant(options_.publish_at), EventKind::kFault, static_cast<std::uint32_t>(options_.faults.size()));
  faults_left_ = 1;
  for (std::uint32_t i = 0; i < options_.faults.size(); ++i) {
    const Fault& fault = options_.faults[i];
    events_.schedule(Instant(options_.publish_at + fault.at), EventKind::kFault, i);
    ++faults_left_;
    if (fault.forever()) continue;
    events_.schedule(Instant(options_.publish_at + fault.at + fault.lasts), EventKind::kFaultEnd, i);
    ++faults_left_;
  }
  while (!violation() && !(faults_left_ == 0 && everyone_done())) {
    if (!step(Instant::max())) {
      violate("nothing will ever happen again, and work is left");
      break;
    }
    if (faults_left_ == 0 && now_ - quiet_since_ > options_.settle_max && !everyone_done()) {
      std::string missing;
      for (NodeIndex node = 1; node < nodes_.size(); ++node) {
        if (must_finish(node) && nodes_[node].installed < latest_) missing += fmt::format(" {}", node);
      }
      violate(fmt::format("{:.0f} s after the last fault these workers still lack version {}:{}",
                          to_seconds(options_.settle_max), latest_.value, missing));
    }
  }
  if (!violation()) check_accounting();
  result_.violation = violation();
  result_.simulated = now_ - Instant{};
  result_.settled = std::max(Duration::zero(), now_ - quiet_since_);
  result_.origin_egress_bytes = network_.chunk_bytes_sent(0);
  for (PublicationResult& publication : result_.publications) {
    for (NodeIndex node = 1; node < nodes_.size(); ++node) publication.workers += must_finish(node) ? 1 : 0;
  }
  return std::move(result_);
}

bool Simulation::step(Instant until) {
  Event event;
  if (!due_now_.empty()) {
    event = due_now_.front();
    due_now_.pop_front();
  } else if (const auto at = events_.next_at(); at && *at <= until) {
    event = *events_.pop();
  } else {
    now_ = std::max(now_, until);
    return false;
  }
  now_ = event.at;
  ++result_.events;
  for (const std::uint64_t word : {std::uint64_t(now_.time_since_epoch().count()), std::uint64_t(event.kind),
                                   std::uint64_t(event.a), std::uint64_t(event.b)}) {
    result_.hash = (result_.hash ^ word) * 0x100000001b3;
  }
  dispatch(event);
  return true;
}

bool Simulation::must_finish(NodeIndex node) const {
  const auto never_heals = [&](const Fault& fault) {
    const bool hits = node >= fault.node && node <= fault.node_last;
    const bool hits_origin = fault.node == 0;
    switch (fault.kind) {
      case FaultKind::kKill:
      case FaultKind::kCrash:
      case FaultKind::kStall: return fault.forever() && (hits || hits_origin);
      case FaultKind::kPartition: return fault.forever() && (hits || hits_origin || fault.peer == node);
      case FaultKind::kFullDisk:
      case FaultKind::kLoss: return fault.forever() && hits;
      default: return false;
    }
  };
  return !nodes_[node].left && liar_options(node) == nullptr &&
         std::ranges::none_of(options_.faults, [&](const Fault& fault) {
           return Instant(options_.publish_at + fault.at) <= now_ && never_heals(fault);
         });
}

bool Simulation::everyone_done() {
  if (payloads_.empty() || publications_waiting_ > 0 || takeover_) return false;
  while (done_below_ < nodes_.size() && (nodes_[done_below_].installed >= latest_ || !must_finish(done_below_))) {
    ++done_below_;
  }
  return done_below_ == nodes_.size();
}

ProtocolRange Simulation::protocols_of(NodeIndex node) const {
  const bool is_older = options_.nodes.older.contains(node) && nodes_[node].incarnation <= 1;
  return is_older ? ProtocolRange{kProtocolVersionMin, kProtocolVersionMin} : ProtocolRange{};
}

void Simulation::start_node(NodeIndex index) {
  Node& node = nodes_[index];
  if (node.core || node.left) return;
  done_below_ = 1;  // a crash may have taken a version
  ++node.incarnation;
  node.links.clear();
  node.dialling.clear();
  network_.handle_restart(index);
  if (index == 0) {
    OriginConfig config;
    if (options_.nodes.rates_configured) config.uplink = options_.network.origin_uplink;
    config.topology = options_.topology;
    config.hop_delay = options_.network.one_way_delay;
    config.timeouts = options_.timeouts;
    config.patches = options_.patches.enabled;
    config.packing = options_.patches.packing;
    config.pack_bytes_per_s = options_.patches.pack_bytes_per_s;
    config.versions_kept = options_.nodes.versions_kept;
    config.anchor_interval = options_.nodes.anchor_interval;
    config.protocols = protocols_of(index);
    if (options_.configure_origin) options_.configure_origin(config);
    node.identity = identity_of(index, config.name);
    auto core = std::make_unique<OriginCore>(config);
    for (const auto& [version, published] : published_) {
      const auto full = payloads_.find(version);
      const bool has_full = full != payloads_.end() && full->second.complete;
      const Payload& payload = has_full ? full->second : payloads_.at(published);
      core->restore(payload.manifest, has_full ? payload.digests : std::vector<ContentDigest>());
    }
    for (const auto& [id, payload] : payloads_) {
      // A store keeps no packed payload over a restart.
      if (payload.complete && id.is_patch()) core->restore_patch(payload.manifest, payload.digests);
    }
    node.origin = core.get();
    node.core = std::move(core);
  } else {
    WorkerConfig config;
    config.name = member_name(index);
    config.incarnation = (std::uint64_t{index} << 32) | node.incarnation;
    config.origin_host = host_of(0);
    config.origin_port = kPort;
    config.listen_host = host_of(index);
    config.listen_port = kPort;
    if (options_.nodes.rates_configured) {
      config.uplink = options_.network.worker_uplink;
      config.downlink = options_.network.worker_downlink;
    }
    config.leaf_only = index + options_.nodes.leaves > options_.workers;
    config.versions_kept = options_.nodes.versions_kept;
    config.streams = options_.nodes.streams;
    config.timeouts = options_.timeouts;
    if (index <= options_.archive.workers) config.archive = ArchiveLimits{};
    config.trust = trust_;
    config.unpack_bytes_per_s = options_.patches.unpack_bytes_per_s;
    config.protocols = protocols_of(index);
    if (options_.configure_worker) options_.configure_worker(index, config);
    node.identity = identity_of(index, config.name);
    std::unique_ptr<WorkerCore> core;
    if (const LiarOptions* lies = liar_options(index)) {
      auto liar = std::make_unique<LyingWorker>(config, *lies, options_.workers,
                                                options_.seed ^ (std::uint64_t{index} << 32) ^ node.incarnation);
      node.liar = liar.get();
      core = std::move(liar);
    } else if (options_.make_worker) {
      core = options_.make_worker(index, config);
    } else {
      core = std::make_unique<WorkerCore>(config);
    }
    node.handed.clear();
    for (const auto& [version, finished] : node.disk.finished()) {
      const Payload& payload = payloads_.at(finished.payload);
      core->restore(payload.manifest, payload.digests);
      if (finished.payload.is_packed()) continue;
      if (finished.payload.is_encoded()) core->restore_patch(payload.manifest, payload.digests);
      node.handed.put(finished.payload, ChunkSet(payload.manifest->chunk_count(), true));
    }
    node.installed = node.disk.finished().empty() ? kNoVersion : node.disk.finished().rbegin()->first;
    node.worker = core.get();
    node.core = std::move(core);
  }
  node.core->start(local(index));
  pump(index);
  if (index == 0) publish_what_waits();
}

void Simulation::stop_node(NodeIndex index, bool host_too) {
  Node& node = nodes_[index];
  if (!node.core) return;
  network_.drop_node(now_, index);
  node.disk.discard_open();
  if (host_too) node.disk.crash(now_);
  node.core.reset();
  node.origin = nullptr;
  node.worker = nullptr;
  node.liar = nullptr;
  // Who publishes has not been told that it was done, and tries again.
  if (index == 0 && std::exchange(takeover_, std::nullopt)) ++publications_waiting_;
  node.timer_at.reset();
  ++node.timer_number;
  node.reading_paused = false;
  node.storing_bytes = 0;
  node.asked.clear();
  node.told.clear();
  node.archive_requests.clear();
  // They find nobody; but a frame has to be taken off its link.
  for (const Event& event : std::exchange(node.deferred, {})) {
    const bool is_frame =
        event.kind != EventKind::kTimer && event.kind != EventKind::kDisk && event.kind != EventKind::kArchive;
    if (is_frame) network_.handle(now_, event);
  }
}

void Simulation::dispatch(const Event& event) {
  switch (event.kind) {
    case EventKind::kFault:
      --faults_left_;
      quiet_since_ = now_;
      if (event.a == options_.faults.size()) {
        publish();
      } else {
        begin_fault(options_.faults[event.a]);
      }
      return;
    case EventKind::kFaultEnd:
      --faults_left_;
      quiet_since_ = now_;
      end_fault(options_.faults[event.a]);
      return;
    default:
      if (!network_.hold(now_, event)) deliver(event);
  }
}

void Simulation::deliver(const Event& event) {
  NodeIndex index = kNoIndex;
  switch (event.kind) {
    case EventKind::kTimer: index = event.a; break;
    case EventKind::kDisk: index = disk_operations_[event.a].node; break;
    case EventKind::kArchive: index = archive_reads_[event.a].node; break;
    default: index = network_.node_of(event);
  }
  if (index != kNoIndex) {
    Node& node = nodes_[index];
    if (node.stalls > 0 && node.core) {
      node.deferred.push_back(event);
      return;
    }
  }
  switch (event.kind) {
    case EventKind::kTimer: return handle_timer(event);
    case EventKind::kDisk: return handle_disk(event);
    case EventKind::kArchive: return handle_archive(event);
    default: break;
  }
  if (options_.thorough && event.kind != EventKind::kTransmitted) remember(network_.describe(event));
  network_.handle(now_, event);
}

void Simulation::resume(NodeIndex index) {
  // In the order in which they came; what they cause comes after them, as it is scheduled for now or later.
  for (const Event& event : std::exchange(nodes_[index].deferred, {})) deliver(event);
}

}  // namespace weightcast::sim
