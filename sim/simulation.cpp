#include "sim/simulation.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cmath>

#include "transport/core/payload_wire.h"
#include "transport/core/stripes.h"

namespace weightcast::sim {
namespace {

constexpr std::size_t kTraceMax = 60;
// A deadline that is still in the past after so many calls without time passing will stay there.
constexpr std::uint32_t kSpinsMax = 1000;
// As the daemon does: beyond this a slow disk slows the network.
constexpr std::uint64_t kStoringBytesMax = 24 * kMiB;
constexpr std::uint16_t kPort = 1;

std::string host_of(NodeIndex node) { return "n" + std::to_string(node); }

NodeIndex node_at(std::string_view host) {
  NodeIndex node = kNone;
  if (host.starts_with('n')) std::from_chars(host.data() + 1, host.data() + host.size(), node);
  return node;
}

std::string name_of(NodeIndex node) { return node == 0 ? "origin" : fmt::format("worker {}", node); }

Digest digest_of_chunk(PayloadId payload, ChunkIndex chunk) {
  Random random(payload.version.value * 0x100000001b3 ^ payload.base.value * 0x9e3779b97f4a7c15 ^ chunk.value);
  Digest digest;
  for (std::size_t i = 0; i < Digest::kBytes; i += 8) {
    const std::uint64_t word = random.next();
    std::copy_n(reinterpret_cast<const std::byte*>(&word), 8, digest.bytes.begin() + static_cast<std::ptrdiff_t>(i));
  }
  return digest;
}

Digest wrong(Digest digest) {
  digest.bytes[0] ^= std::byte{1};
  return digest;
}

/// The core hands a chunk's buffer on without looking inside: so its address alone tells what the bytes would be.
std::shared_ptr<Buffer> stand_in(bool damaged) {
  static char intact_mark, damaged_mark;
  return {std::shared_ptr<void>(), reinterpret_cast<Buffer*>(damaged ? &damaged_mark : &intact_mark)};
}
bool is_damaged(const std::shared_ptr<Buffer>& bytes) { return bytes.get() == stand_in(true).get(); }

bool forever(const Fault& fault) { return fault.lasts == Duration::zero(); }

}  // namespace

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
      network_(options.network, options.workers + 1, random_, events_, *this) {
  for (NodeIndex node = 0; node <= options_.workers; ++node) {
    Node& made = nodes_.emplace_back(options_.disk);
    made.clock_offset = random_.duration(std::chrono::seconds(1), std::chrono::hours(1));
  }
}

// ---- the run

SimResult Simulation::run() {
  for (NodeIndex node = 0; node <= options_.workers; ++node) start_node(node);
  // The first publication is one more fault, the one that all others count from.
  events_.schedule(Instant(options_.publish_at), EventKind::kFault, static_cast<std::uint32_t>(options_.faults.size()));
  faults_left_ = 1;
  for (std::uint32_t i = 0; i < options_.faults.size(); ++i) {
    const Fault& fault = options_.faults[i];
    events_.schedule(Instant(options_.publish_at + fault.at), EventKind::kFault, i);
    ++faults_left_;
    if (forever(fault)) continue;
    events_.schedule(Instant(options_.publish_at + fault.at + fault.lasts), EventKind::kFaultEnd, i);
    ++faults_left_;
  }
  while (!result_.violation && !(faults_left_ == 0 && everyone_done())) {
    const std::optional<Event> event = next_event();
    if (!event) {
      violate("nothing will ever happen again, and work is left");
      break;
    }
    now_ = event->at;
    ++result_.events;
    for (const std::uint64_t word : {std::uint64_t(now_.time_since_epoch().count()), std::uint64_t(event->kind),
                                     std::uint64_t(event->a), std::uint64_t(event->b)}) {
      result_.hash = (result_.hash ^ word) * 0x100000001b3;
    }
    dispatch(*event);
    if (faults_left_ == 0 && now_ - quiet_since_ > options_.settle_max && !everyone_done()) {
      std::string missing;
      for (NodeIndex node = 1; node < nodes_.size(); ++node) {
        if (must_finish(node) && nodes_[node].installed < latest()) missing += fmt::format(" {}", node);
      }
      violate(fmt::format("{:.0f} s after the last fault these workers still lack version {}:{}",
                          to_seconds(options_.settle_max), latest().value, missing));
    }
  }
  result_.simulated = now_ - Instant{};
  result_.origin_egress_bytes = network_.chunk_bytes_sent(0);
  for (PublicationResult& publication : result_.publications) {
    for (NodeIndex node = 1; node < nodes_.size(); ++node) publication.workers += must_finish(node) ? 1 : 0;
  }
  return std::move(result_);
}

std::optional<Event> Simulation::next_event() {
  if (due_now_.empty()) return events_.pop();
  const Event event = due_now_.front();
  due_now_.pop_front();
  return event;
}

bool Simulation::must_finish(NodeIndex node) const {
  const auto never_heals = [&](const Fault& fault) {
    const bool hits = node >= fault.node && node <= fault.node_last;
    const bool hits_origin = fault.node == 0;
    switch (fault.kind) {
      case FaultKind::kKill:
      case FaultKind::kCrash:
      case FaultKind::kStall: return forever(fault) && (hits || hits_origin);
      case FaultKind::kPartition: return forever(fault) && (hits || hits_origin || fault.peer == node);
      case FaultKind::kFullDisk:
      case FaultKind::kLoss: return forever(fault) && hits;
      default: return false;
    }
  };
  return !nodes_[node].left && std::ranges::none_of(options_.faults, [&](const Fault& fault) {
    return Instant(options_.publish_at + fault.at) <= now_ && never_heals(fault);
  });
}

bool Simulation::everyone_done() {
  if (payloads_.empty() || publications_waiting_ > 0) return false;
  const Version wanted = latest();
  while (done_below_ < nodes_.size() && (nodes_[done_below_].installed >= wanted || !must_finish(done_below_))) {
    ++done_below_;
  }
  return done_below_ == nodes_.size();
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
    config.uplink = options_.network.origin_uplink;
    config.topology = options_.topology;
    config.hop_delay = options_.network.one_way_delay;
    config.timeouts = options_.timeouts;
    auto core = std::make_unique<OriginCore>(config);
    config.patches = options_.patches.enabled;
    for (const auto& [id, payload] : payloads_) core->restore(payload.manifest, payload.digests);
    node.origin = core.get();
    node.core = std::move(core);
  } else {
    WorkerConfig config;
    config.name = "w" + std::to_string(index);
    config.incarnation = (std::uint64_t{index} << 32) | node.incarnation;
    config.origin_host = host_of(0);
    config.origin_port = kPort;
    config.listen_host = host_of(index);
    config.listen_port = kPort;
    config.uplink = options_.network.worker_uplink;
    config.downlink = options_.network.worker_downlink;
    config.timeouts = options_.timeouts;
    auto core = std::make_unique<WorkerCore>(config);
    node.handed.clear();
    for (const auto& [version, finished] : node.disk.finished()) {
      const Payload& payload = payloads_.at(finished.payload);
      core->restore(payload.manifest, payload.digests);
      if (finished.payload.is_patch()) core->restore_patch(payload.manifest, payload.digests);
      node.handed.put(finished.payload, ChunkSet(payload.manifest->chunk_count(), true));
    }
    node.installed = node.disk.finished().empty() ? kNoVersion : node.disk.finished().rbegin()->first;
    if (options_.wrap_worker) {
      node.core = options_.wrap_worker(index, std::move(core));
    } else {
      node.core = std::move(core);
    }
  }
  node.core->start(local(index));
  pump(index);
  if (index == 0) publish_what_waits();
}

void Simulation::stop_node(NodeIndex index, bool host_too) {
  Node& node = nodes_[index];
  if (!node.core) return;
  network_.drop_node(now_, index);
  if (host_too) node.disk.crash(now_);
  node.core.reset();
  node.origin = nullptr;
  node.timer_at.reset();
  ++node.timer_number;
  node.reading_paused = false;
  node.storing_bytes = 0;
  node.asked.clear();
  node.told.clear();
  // They find nobody; but a frame has to be taken off its link.
  for (auto* waiting : {&node.unread, &node.deferred}) {
    for (const Event& event : std::exchange(*waiting, {})) {
      if (event.kind != EventKind::kTimer && event.kind != EventKind::kDisk) network_.handle(now_, event);
    }
  }
}

void Simulation::dispatch(const Event& event) {
  NodeIndex index = kNone;
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
    case EventKind::kTimer: index = event.a; break;
    case EventKind::kDisk: index = disk_operations_[event.a].node; break;
    default: index = network_.node_of(event);
  }
  if (index != kNone) {
    Node& node = nodes_[index];
    if (node.stalls > 0 && node.core) {
      node.deferred.push_back(event);
      return;
    }
    if ((node.reading_paused || !node.unread.empty()) && network_.is_behind_chunks(event)) {
      node.unread.push_back(event);
      return;
    }
  }
  switch (event.kind) {
    case EventKind::kTimer: return handle_timer(event);
    case EventKind::kDisk: return handle_disk(event);
    default: break;
  }
  if (options_.thorough && event.kind != EventKind::kTransmitted) remember(kNone, network_.describe(event));
  network_.handle(now_, event);
}

void Simulation::resume(NodeIndex index) {
  // In the order in which they came; what they cause comes after them, as it is scheduled for now or later.
  for (const Event& event : std::exchange(nodes_[index].deferred, {})) dispatch(event);
}

void Simulation::read_on(NodeIndex index) {
  Node& node = nodes_[index];
  while (!node.reading_paused && !node.unread.empty()) {
    const Event event = node.unread.front();
    node.unread.pop_front();
    network_.handle(now_, event);
  }
}

void Simulation::publish() {
  Node& node = nodes_[0];
  if (!node.origin || node.stalls > 0) {
    ++publications_waiting_;
    return;
  }
  const Version version{latest().value + 1};
  const Plan plan = node.origin->plan_for(local(0), options_.payload_bytes);
  const Payload& payload =
      payload_of_size(version, options_.payload_bytes,
                      options_.chunk_bytes.value_or(std::max(plan.chunk_bytes, options_.chunk_bytes_min)));
  node.origin->handle_publish(local(0), local(0), payload.manifest, payload.digests);

  PublicationResult& publication = result_.publications.emplace_back();
  publication.version = version;
  publication.chunk_bytes = payload.manifest->chunk_bytes;
  publication.installed.resize(options_.workers);
  if (const Plan* made = node.origin->latest_plan()) {
    publication.topology = made->topology;
    publication.predicted = made->predicted_t100;
    publication.bound = made->bound;
  }
  published_at_.push_back(now_);
  done_below_ = 1;
  pump(0);
}

const Simulation::Payload& Simulation::payload_of_size(PayloadId id, std::uint64_t bytes, std::uint32_t chunk_bytes) {
  const auto [made, added] = payloads_.try_emplace(id);
  if (!added) return made->second;
  Manifest manifest;
  manifest.model_id = "simulated";
  manifest.version = id.version;
  manifest.base_version = id.base;
  manifest.kind = id.is_patch() ? PayloadKind::kPatch : PayloadKind::kFull;
  manifest.payload_bytes = bytes;
  manifest.chunk_bytes = chunk_bytes;
  manifest.files.push_back({"model.safetensors", options_.payload_bytes});
  manifest.snapshot_digest = digest_of_chunk(id.version, ChunkIndex{kNone});
  for (std::uint32_t c = 0; c < manifest.chunk_count(); ++c) {
    made->second.digests.push_back(digest_of_chunk(id, ChunkIndex{c}));
  }
  manifest.part_digests = part_digests_of(made->second.digests);
  made->second.manifest = std::make_shared<const Manifest>(std::move(manifest));
  return made->second;
}

void Simulation::handle_make_patch(PayloadId id) {
  OriginCore& origin = *nodes_[0].origin;
  // Always the same of one id, also after a restart of the origin.
  Random random(options_.seed ^ (id.version.value << 20) ^ id.base.value);
  if (!payloads_.contains(id) && random.chance(options_.patches.useless_probability)) {
    return origin.handle_patch_made(local(0), id, fail(Errc::kTooLarge, Op::kEncode, "everything has changed"));
  }
  // Most cells that change in two versions are not the same, so a fold grows; but less than the sum.
  const double versions = double(id.version.value - id.base.value);
  const double share = options_.patches.share * (1 + 0.8 * (versions - 1));
  if (share >= kPatchShareMax) {
    return origin.handle_patch_made(local(0), id, fail(Errc::kTooLarge, Op::kEncode, "too much has changed"));
  }
  const auto bytes = std::max<std::uint64_t>(1, static_cast<std::uint64_t>(share * double(options_.payload_bytes)));
  const std::uint32_t chunk_bytes = options_.chunk_bytes ? std::max(*options_.chunk_bytes / 16, kChunkBytesMin)
                                                         : origin.plan_for(local(0), bytes).chunk_bytes;
  const Payload& payload = payload_of_size(id, bytes, chunk_bytes);
  origin.handle_patch_made(local(0), id, MadePatch{payload.manifest, payload.digests});
}

void Simulation::publish_what_waits() {
  for (std::uint32_t waiting = std::exchange(publications_waiting_, 0); waiting > 0; --waiting) publish();
}

// ---- faults

void Simulation::begin_fault(const Fault& fault) {
  remember(kNone, "fault: " + to_text(fault));
  if (fault.kind == FaultKind::kPublish) return publish();
  if (fault.kind == FaultKind::kPartition) return network_.begin_partition(fault);
  for (NodeIndex index = fault.node; index < nodes_.size() && index <= fault.node_last; ++index) {
    Node& node = nodes_[index];
    switch (fault.kind) {
      case FaultKind::kKill: stop_node(index, false); break;
      case FaultKind::kCrash: stop_node(index, true); break;
      case FaultKind::kStall: ++node.stalls; break;
      case FaultKind::kThrottle: network_.set_uplink(index, fault.rate); break;
      case FaultKind::kReset: network_.reset_links_of(now_, index); break;
      case FaultKind::kCorrupt: network_.corrupt_next(index, fault.count); break;
      case FaultKind::kLoss: network_.add_loss(index, fault.probability); break;
      case FaultKind::kDelay: network_.add_delay(index, fault.by); break;
      case FaultKind::kSlowDisk: node.disk.set_rate(fault.rate); break;
      case FaultKind::kFullDisk: node.disk.full = true; break;
      case FaultKind::kSkew: node.clock_offset += fault.by; break;
      case FaultKind::kDrift:
        node.clock_offset = local(index) - now_;
        node.drift_since = now_;
        node.clock_drift = fault.probability;
        break;
      case FaultKind::kLeave:
        if (node.core) {
          node.core->stop("told to leave");
          node.left = true;
          pump(index);
          for (const LinkIndex link : network_.links_of(index)) network_.close(now_, link, index);
          node.core.reset();
        }
        break;
      default: break;
    }
    if (fault.kind == FaultKind::kSkew || fault.kind == FaultKind::kDrift) arm(index);
  }
}

void Simulation::end_fault(const Fault& fault) {
  remember(kNone, "over: " + to_text(fault));
  if (fault.kind == FaultKind::kPartition) return network_.end_partition(now_, fault);
  for (NodeIndex index = fault.node; index < nodes_.size() && index <= fault.node_last; ++index) {
    Node& node = nodes_[index];
    switch (fault.kind) {
      case FaultKind::kKill:
      case FaultKind::kCrash: start_node(index); break;
      case FaultKind::kStall:
        if (--node.stalls > 0) break;
        resume(index);
        if (index == 0) publish_what_waits();
        break;
      case FaultKind::kThrottle:
        network_.set_uplink(index, index == 0 ? options_.network.origin_uplink : options_.network.worker_uplink);
        break;
      case FaultKind::kLoss: network_.add_loss(index, -fault.probability); break;
      case FaultKind::kDelay: network_.add_delay(index, -fault.by); break;
      case FaultKind::kSlowDisk: node.disk.set_rate(std::nullopt); break;
      case FaultKind::kFullDisk: node.disk.full = false; break;
      case FaultKind::kDrift:
        node.clock_offset = local(index) - now_;
        node.drift_since = now_;
        node.clock_drift = 0;
        arm(index);
        break;
      default: break;
    }
  }
}

// ---- one core

Instant Simulation::local(NodeIndex index) const {
  const Node& node = nodes_[index];
  const auto gained = static_cast<std::int64_t>(node.clock_drift * double((now_ - node.drift_since).count()));
  return now_ + node.clock_offset + Duration(gained);
}

Instant Simulation::world_time(NodeIndex index, Instant due) const {
  const Duration wait = due - local(index);
  if (wait <= Duration::zero()) return now_;
  // Rounded up, so that the deadline has passed when the timer fires.
  return now_ + Duration(static_cast<std::int64_t>(std::ceil(double(wait.count()) / (1 + nodes_[index].clock_drift))));
}

void Simulation::pump(NodeIndex index) {
  Node& node = nodes_[index];
  while (std::optional<Action> next = node.core->poll_action()) {
    std::visit([&](auto& a) { perform(index, a); }, *next);
    if (result_.violation) return;
  }
  if (!newly_told_.empty()) check_told();
  arm(index);
}

void Simulation::arm(NodeIndex index) {
  Node& node = nodes_[index];
  if (!node.core || node.left) return;
  const std::optional<Instant> deadline = node.core->poll_deadline();
  if (!deadline) {
    if (index != 0 && node.dialling.empty()) violate(fmt::format("{} has no deadline: it would wait for ever", name_of(index)));
    return;
  }
  const Instant due = world_time(index, *deadline);
  // One that is set too early finds nothing to do and is set anew: cheaper than moving it with every chunk.
  if (node.timer_at && *node.timer_at <= due) return;
  node.timer_at = due;
  events_.schedule(due, EventKind::kTimer, index, ++node.timer_number);
}

void Simulation::handle_timer(const Event& event) {
  Node& node = nodes_[event.a];
  if (!node.core || event.b != node.timer_number) return;
  node.timer_at.reset();
  const std::optional<Instant> deadline = node.core->poll_deadline();
  if (!deadline || *deadline > local(event.a)) return arm(event.a);
  if (std::exchange(node.spun_at, now_) != now_) node.spins = 0;
  if (++node.spins > kSpinsMax) return violate(fmt::format("{}: its deadline stays in the past", name_of(event.a)));
  node.core->handle_timeout(local(event.a));
  pump(event.a);
}

LinkIndex Simulation::link_of(NodeIndex node, ConnId conn) const {
  const auto& links = nodes_[node].links;
  return conn.value < links.size() ? links[conn.value] : kNone;
}

void Simulation::note_link(NodeIndex node, ConnId conn, LinkIndex link) {
  auto& links = nodes_[node].links;
  if (links.size() <= conn.value) links.resize(conn.value + 1, kNone);
  links[conn.value] = link;
}

void Simulation::perform(NodeIndex node, action::Connect& connect) {
  const NodeIndex target = node_at(connect.host);
  WC_CHECK(target < nodes_.size());
  nodes_[node].dialling.insert(connect.conn);
  note_link(node, connect.conn, network_.dial(now_, node, connect.conn, target));
}

void Simulation::perform(NodeIndex node, action::Send& send) {
  const LinkIndex link = link_of(node, send.conn);
  if (link == kNone) return;
  if (options_.thorough) {
    if (send.message.has_subscribe()) check_asks_for_missing(node, send.message.subscribe());
    if (send.message.has_announce()) note_told(network_.other_end(link, node), send.message.announce().assignment());
    if (send.message.has_assignment()) note_told(network_.other_end(link, node), send.message.assignment());
  }
  network_.send_message(now_, link, node, std::move(send.message));
}

void Simulation::perform(NodeIndex node, action::SendChunk& send) {
  const LinkIndex link = link_of(node, send.conn);
  const Manifest& manifest = *payloads_.at(send.payload).manifest;
  bool damaged = false;
  if (node != 0 && !has_intact(nodes_[node], send.payload, send.chunk)) {
    return violate(fmt::format("{} forwards version {} chunk {}, which it has not verified", name_of(node),
                               send.payload.version.value, send.chunk.value));
  }
  if (options_.thorough) check_sent_is_wanted(node, send);
  if (link != kNone) {
    network_.send_chunk(now_, link, node, send.payload, send.chunk, manifest.chunk_size(send.chunk), damaged);
  }
}

void Simulation::perform(NodeIndex node, action::Close& close) {
  nodes_[node].dialling.erase(close.conn);
  if (const LinkIndex link = link_of(node, close.conn); link != kNone) network_.close(now_, link, node);
}

void Simulation::perform(NodeIndex index, action::BeginPayload& begin) {
  DiskOperation operation;
  operation.work = DiskWork::kBegin;
  operation.node = index;
  operation.payload = begin.manifest->id();
  operation.failed = nodes_[index].disk.full;
  if (begin.manifest->part_digests != payloads_.at(operation.payload).manifest->part_digests) {
    return violate(fmt::format("{} begins version {} under another manifest", name_of(index),
                               operation.payload.version.value));
  }
  if (operation.payload.is_patch() && nodes_[index].installed != operation.payload.base) {
    return violate(fmt::format("{} begins a patch from version {}, and has version {}", name_of(index),
                               operation.payload.base.value, nodes_[index].installed.value));
  }
  // One at a time, and ever newer ones: what it was told of those before is nothing to it any more.
  std::erase_if(nodes_[index].told, [&](const auto& told) { return told.first.version < operation.payload.version; });
  start_disk_work(now_, operation);
}

void Simulation::perform(NodeIndex node, action::PutDigestPart& put) {
  if (Disk::Partial* partial = nodes_[node].disk.find(put.payload)) partial->parts[put.part] = true;
}

void Simulation::perform(NodeIndex index, action::StoreChunk& store) {
  Node& node = nodes_[index];
  const Manifest& manifest = *payloads_.at(store.payload).manifest;
  if (is_damaged(store.bytes)) {
    return violate(fmt::format("{} stores version {} chunk {}, which is damaged", name_of(index), store.payload.version.value,
                               store.chunk.value));
  }
  ChunkSet* handed = node.handed.find(store.payload);
  if (handed == nullptr) handed = node.handed.emplace(store.payload, ChunkSet(manifest.chunk_count())).first;
  if (!handed->insert(store.chunk)) {
    return violate(fmt::format("{} stores version {} chunk {} a second time", name_of(index), store.payload.version.value,
                               store.chunk.value));
  }
  DiskOperation operation;
  operation.work = DiskWork::kStore;
  operation.node = index;
  operation.payload = store.payload;
  operation.chunk = store.chunk;
  operation.failed = node.disk.full;
  const std::uint32_t bytes = manifest.chunk_size(store.chunk);
  node.storing_bytes += bytes;
  node.reading_paused = node.storing_bytes > kStoringBytesMax || (node.reading_paused && node.storing_bytes > kStoringBytesMax / 2);
  start_disk_work(node.disk.write(now_, bytes), operation);
}

void Simulation::perform(NodeIndex index, action::FinishPayload& finish) {
  Node& node = nodes_[index];
  const Disk::Partial* partial = node.disk.find(finish.payload);
  if (partial == nullptr || !partial->written.complete() || partial->damaged.count() > 0) {
    return violate(fmt::format("{} installs version {}, which is not whole", name_of(index), finish.payload.version.value));
  }
  DiskOperation operation;
  operation.work = DiskWork::kFinish;
  operation.node = index;
  operation.payload = finish.payload;
  operation.failed = node.disk.full;
  start_disk_work(now_ + options_.disk.finish_delay, operation);
}

void Simulation::perform(NodeIndex node, action::DiscardPayload& discard) {
  nodes_[node].disk.discard(discard.payload);
  nodes_[node].handed.erase(discard.payload);
}

void Simulation::perform(NodeIndex node, action::MakePatch& make) {
  DiskOperation operation;
  operation.work = DiskWork::kMakePatch;
  operation.node = node;
  operation.payload = make.payload;
  start_disk_work(now_ + options_.patches.make_delay, operation);
}

void Simulation::perform(NodeIndex node, action::Log& log) {
  if (options_.log) options_.log(now_ - Instant{}, node, log);
  remember(node, std::move(log.text));
}

void Simulation::start_disk_work(Instant due, DiskOperation operation) {
  operation.incarnation = nodes_[operation.node].incarnation;
  std::uint32_t slot = free_disk_operation_;
  if (slot == kNone) {
    slot = static_cast<std::uint32_t>(disk_operations_.size());
    disk_operations_.emplace_back();
  } else {
    free_disk_operation_ = disk_operations_[slot].next;
  }
  disk_operations_[slot] = operation;
  if (due <= now_) {
    due_now_.push_back({now_, 0, EventKind::kDisk, slot, 0});
  } else {
    events_.schedule(due, EventKind::kDisk, slot);
  }
}

void Simulation::handle_disk(const Event& event) {
  const DiskOperation operation = disk_operations_[event.a];
  disk_operations_[event.a].next = free_disk_operation_;
  free_disk_operation_ = event.a;
  const NodeIndex index = operation.node;
  Node& node = nodes_[index];
  if (!node.core || node.incarnation != operation.incarnation) return;
  const PayloadId id = operation.payload;
  if (operation.work == DiskWork::kMakePatch) {
    handle_make_patch(id);
    pump(index);
    return;
  }
  const Version version = id.version;
  const Payload& payload = payloads_.at(id);
  const Error full = fail(Errc::kNoSpace, Op::kWrite, "the disk is full");
  switch (operation.work) {
    case DiskWork::kMakePatch: return;
    case DiskWork::kBegin: {
      if (operation.failed) {
        node.core->handle_payload_begun(local(index), id, full);
        break;
      }
      Disk::Partial& partial =
          node.disk.begin(id, payload.manifest->chunk_count(), payload.manifest->part_count());
      RestoredPayload restored;
      std::uint32_t parts = 0;
      while (parts < partial.parts.size() && partial.parts[parts]) ++parts;
      const std::size_t known = std::min<std::size_t>(std::size_t{parts} * kDigestsPerPart, payload.digests.size());
      restored.chunk_digests.assign(payload.digests.begin(), payload.digests.begin() + static_cast<std::ptrdiff_t>(known));
      restored.held = ChunkSet(payload.manifest->chunk_count());
      for (auto c = partial.written.next_in(ChunkIndex{0}); c && c->value < known;
           c = partial.written.next_in(ChunkIndex{c->value + 1})) {
        restored.held.insert(*c);
      }
      node.handed.put(id, restored.held);
      node.core->handle_payload_begun(local(index), id, std::move(restored));
      break;
    }
    case DiskWork::kStore: {
      node.storing_bytes -= payload.manifest->chunk_size(operation.chunk);
      node.reading_paused = node.reading_paused && node.storing_bytes > kStoringBytesMax / 2;
      Disk::Partial* partial = node.disk.find(id);
      const bool failed = operation.failed || partial == nullptr;
      if (!failed) node.disk.handle_written(now_, *partial, operation.chunk, operation.damaged);
      node.core->handle_chunk_stored(local(index), id, operation.chunk, failed ? Status(full) : Status());
      break;
    }
    case DiskWork::kFinish:
      if (operation.failed) {
        node.core->handle_finished(local(index), id, full);
        break;
      }
      if (id.is_patch() && random_.chance(options_.patches.unfit_probability)) {
        ++result_.patches_unfit;
        node.core->handle_finished(local(index), id, fail(Errc::kWrongBase, Op::kDecode, "the base is damaged"));
        break;
      }
      if (id.is_patch()) ++result_.patches_installed;
      if (version <= node.installed) {
        return violate(fmt::format("{} goes back from version {} to {}", name_of(index), node.installed.value,
                                   version.value));
      }
      node.disk.finish(now_, id);
      node.installed = version;
      for (std::size_t i = 0; i < result_.publications.size(); ++i) {
        auto& installed = result_.publications[i].installed[index - 1];
        if (result_.publications[i].version <= version && !installed) installed = now_ - published_at_[i];
      }
      node.core->handle_finished(local(index), id, {});
      break;
  }
  pump(index);
  read_on(index);
}

// ---- what the network says

ConnId Simulation::on_accept(NodeIndex node, NodeIndex dialler, LinkIndex link) {
  const ConnId conn = nodes_[node].core->next_conn();
  note_link(node, conn, link);
  nodes_[node].core->handle_accepted(local(node), conn, host_of(dialler));
  pump(node);
  return conn;
}

void Simulation::on_connected(NodeIndex node, ConnId conn) {
  if (!nodes_[node].core) return;
  nodes_[node].dialling.erase(conn);
  nodes_[node].core->handle_connected(local(node), conn);
  pump(node);
}

void Simulation::on_closed(NodeIndex node, ConnId conn, const Error& why) {
  if (!nodes_[node].core) return;
  nodes_[node].dialling.erase(conn);
  nodes_[node].core->handle_closed(local(node), conn, why);
  pump(node);
}

void Simulation::on_message(NodeIndex node, ConnId conn, NodeIndex, const wire::Message& message) {
  if (!nodes_[node].core) return;
  if (options_.thorough && message.has_subscribe()) {
    const wire::Subscribe& subscribe = message.subscribe();
    const PayloadId id = payload_of(subscribe);
    auto& asked = nodes_[node].asked[{link_of(node, conn), id}];
    std::erase_if(asked, [&](const Asked& a) { return a.stripe == subscribe.stripe(); });
    asked.push_back({subscribe.stripe(), {subscribe.stripe_weights().begin(), subscribe.stripe_weights().end()},
                     ChunkSet::from_bytes(payloads_.at(id).manifest->chunk_count(), subscribe.chunks_held())});
  }
  nodes_[node].core->handle_message(local(node), conn, message);
  pump(node);
}

void Simulation::on_chunk(NodeIndex node, ConnId conn, PayloadId id, ChunkIndex chunk, bool damaged) {
  if (!nodes_[node].core) return;
  const Payload& payload = payloads_.at(id);
  ++result_.chunks_delivered;
  if (!damaged && has_intact(nodes_[node], id, chunk)) ++result_.chunks_delivered_twice;
  const Digest& digest = payload.digests[chunk.value];
  nodes_[node].core->handle_chunk(
      local(node), conn,
      {id, chunk, payload.manifest->chunk_size(chunk), damaged ? wrong(digest) : digest, stand_in(damaged)});
  pump(node);
}

void Simulation::on_chunk_sent(NodeIndex node, ConnId conn) {
  if (!nodes_[node].core) return;
  nodes_[node].core->handle_chunk_sent(local(node), conn);
  pump(node);
}

// ---- invariants

void Simulation::remember(NodeIndex node, std::string text) {
  if (trace_.size() == kTraceMax) trace_.pop_front();
  trace_.push_back({now_, node == kNone ? std::move(text) : name_of(node) + " says: " + text});
}

void Simulation::violate(std::string what) {
  if (result_.violation) return;
  std::string text = fmt::format("seed {}, {:.6f} s: {}\n", options_.seed, to_seconds(now_ - Instant{}), what);
  for (const Fault& fault : options_.faults) text += "  with: " + to_text(fault) + "\n";
  for (const Trace& t : trace_) text += fmt::format("  {:.6f} {}\n", to_seconds(t.at - Instant{}), t.text);
  result_.violation = std::move(text);
}

bool Simulation::has_intact(const Node& node, PayloadId id, ChunkIndex chunk) const {
  const ChunkSet* handed = node.handed.find(id);
  return handed != nullptr && handed->contains(chunk);
}

void Simulation::check_asks_for_missing(NodeIndex node, const wire::Subscribe& subscribe) {
  const PayloadId id = payload_of(subscribe);
  const ChunkSet* handed = nodes_[node].handed.find(id);
  if (handed == nullptr) return;
  const ChunkSet told = ChunkSet::from_bytes(handed->size(), subscribe.chunks_held());
  if (const auto again = handed->next_in_without(told, ChunkIndex{0})) {
    violate(fmt::format("{} asks for version {} chunk {}, which it has", name_of(node), id.version.value, again->value));
  }
}

void Simulation::check_sent_is_wanted(NodeIndex node, const action::SendChunk& send) {
  const auto found = nodes_[node].asked.find({link_of(node, send.conn), send.payload});
  if (found == nodes_[node].asked.end()) {
    return violate(fmt::format("{} sends version {} to somebody who did not ask", name_of(node), send.payload.version.value));
  }
  for (const Asked& asked : found->second) {
    const StripeMap stripes(asked.weights.empty() ? std::vector<std::uint32_t>{1} : asked.weights);
    if (stripes.stripe_of(send.chunk) == asked.stripe && !asked.held.contains(send.chunk)) return;
  }
  violate(fmt::format("{} sends version {} chunk {} to somebody who has it", name_of(node), send.payload.version.value,
                      send.chunk.value));
}

void Simulation::note_told(NodeIndex index, const wire::Assignment& assignment) {
  const PayloadId id = payload_of(assignment);
  std::vector<NodeIndex>& parents = nodes_[index].told[id];
  parents.clear();
  for (const wire::StripeSource& source : assignment.stripes()) {
    const wire::NodeAddress& parent = source.ancestors(0);
    parents.push_back(parent.peer_id() == 0 ? 0 : node_at(parent.address().host()));
  }
  newly_told_.push_back({index, id});
}

void Simulation::check_told() {
  for (const auto& [told, id] : std::exchange(newly_told_, {})) {
    const std::size_t stripes = nodes_[told].told[id].size();
    for (std::size_t stripe = 0; stripe < stripes; ++stripe) {
      NodeIndex at = told;
      for (std::size_t steps = 0; at != 0; ++steps) {
        const Node& node = nodes_[at];
        const auto parents = node.told.find(id);
        if (!node.core || node.installed >= id.version || parents == node.told.end() ||
            parents->second.size() != stripes) {
          break;
        }
        if (steps > nodes_.size()) {
          return violate(fmt::format("{} was told to take version {} stripe {} from a circle", name_of(told),
                                     id.version.value, stripe));
        }
        at = parents->second[stripe];
      }
    }
  }
}

}  // namespace weightcast::sim
