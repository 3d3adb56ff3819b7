// One core of a simulation: what it wants done is done, and it is called when it asked for.
#include <fmt/format.h>

#include <cmath>

#include "sim/simulation.h"
#include "sim/stand_ins.h"
#include "transport/core/manifest/payload_wire.h"

namespace weightcast::sim {
namespace {

// A deadline that is still in the past after so many calls without time passing will stay there.
constexpr std::uint32_t kSpinsMax = 1000;

}  // namespace

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
    if (violation()) return;
  }
  if (!newly_told_.empty()) check_told();
  arm(index);
}

void Simulation::arm(NodeIndex index) {
  Node& node = nodes_[index];
  if (!node.core || node.left) return;
  const std::optional<Instant> deadline = node.core->poll_deadline();
  if (!deadline) {
    if (index != 0 && node.dialling.empty())
      violate(fmt::format("{} has no deadline: it would wait for ever", name_of(index)));
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
  return conn.value < links.size() ? links[conn.value] : kNoIndex;
}

void Simulation::note_link(NodeIndex node, ConnId conn, LinkIndex link) {
  auto& links = nodes_[node].links;
  if (links.size() <= conn.value) links.resize(conn.value + 1, kNoIndex);
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
  if (link == kNoIndex) return;
  if (options_.thorough && nodes_[node].liar == nullptr) {
    if (send.message.has_subscribe()) check_asks_for_missing(node, send.message.subscribe());
    if (send.message.has_announce()) note_told(network_.other_end(link, node), send.message.announce().assignment());
    if (send.message.has_assignment()) note_told(network_.other_end(link, node), send.message.assignment());
  }
  // Padding takes as long as chunks do.
  const bool is_bulk = !send.message.rate_probe().padding().empty() || !send.message.rate_probed().padding().empty();
  const std::size_t bytes = send.message.ByteSizeLong();
  network_.send_control(now_, link, node, bytes, is_bulk, std::make_unique<MessageCargo>(std::move(send.message)));
}

void Simulation::perform(NodeIndex node, action::SendChunk& send) {
  const LinkIndex link = link_of(node, send.conn);
  const Manifest& manifest = *payloads_.at(send.payload).manifest;
  if (const LyingWorker* liar = nodes_[node].liar) {
    if (link == kNoIndex) return;
    return network_.send_chunk(now_, link, node, send.payload, send.chunk, manifest.chunk_size(send.chunk),
                               liar->damages_last());
  }
  if (node != 0 && !has_intact(nodes_[node], send.payload, send.chunk)) {
    return violate(fmt::format("{} forwards version {} chunk {}, which it has not verified", name_of(node),
                               send.payload.version.value, send.chunk.value));
  }
  if (node == 0 && send.chunk.value >= payloads_.at(send.payload).made_chunks) {
    return violate(fmt::format("the origin sends version {} chunk {}, which it has not made yet",
                               send.payload.version.value, send.chunk.value));
  }
  if (options_.thorough) check_sent_is_wanted(node, send);
  if (link != kNoIndex) {
    const bool damaged = nodes_[node].troubles.rotten.contains({send.payload, send.chunk});
    network_.send_chunk(now_, link, node, send.payload, send.chunk, manifest.chunk_size(send.chunk), damaged);
  }
}

void Simulation::perform(NodeIndex node, action::Close& close) {
  nodes_[node].dialling.erase(close.conn);
  if (const LinkIndex link = link_of(node, close.conn); link != kNoIndex) network_.close(now_, link, node);
}

void Simulation::perform(NodeIndex index, action::BeginPayload& begin) {
  const PayloadId id = begin.manifest->id();
  if (!continues(*begin.manifest, *payloads_.at(id).manifest)) {
    return violate(fmt::format("{} begins version {} under another manifest", name_of(index), id.version.value));
  }
  if (id.is_patch() && nodes_[index].installed != id.base) {
    return violate(fmt::format("{} begins a patch from version {}, and has version {}", name_of(index), id.base.value,
                               nodes_[index].installed.value));
  }
  // One at a time, and ever newer ones: what it was told of those before is nothing to it any more.
  std::erase_if(nodes_[index].told, [&](const auto& told) { return told.first.version < id.version; });
  start_disk_work(now_, {.work = DiskWork::kBegin,
                         .node = index,
                         .payload = id,
                         .failed = nodes_[index].disk.full,
                         .open = begin.manifest->open,
                         .chunks = begin.manifest->chunk_count()});
}

void Simulation::perform(NodeIndex node, action::GrowPayload& grow) {
  const PayloadId id = grow.manifest->id();
  if (!continues(*grow.manifest, *payloads_.at(id).manifest)) {
    return violate(fmt::format("{} lets version {} grow to what it is not", name_of(node), id.version.value));
  }
  if (Disk::Partial* partial = nodes_[node].disk.find(id)) {
    partial->open = grow.manifest->open;
    partial->room_chunks = grow.manifest->chunk_count();
  }
}

void Simulation::perform(NodeIndex node, action::PutDigestPart& put) {
  if (Disk::Partial* partial = nodes_[node].disk.find(put.payload)) partial->parts[put.part] = true;
}

void Simulation::perform(NodeIndex index, action::StoreChunk& store) {
  Node& node = nodes_[index];
  const Manifest& manifest = *payloads_.at(store.payload).manifest;
  if (is_damaged(store.bytes)) {
    return violate(fmt::format("{} stores version {} chunk {}, which is damaged", name_of(index),
                               store.payload.version.value, store.chunk.value));
  }
  const Disk::Partial* partial = node.disk.find(store.payload);
  if (partial == nullptr || store.chunk.value >= partial->room_chunks) {
    return violate(fmt::format("{} stores version {} chunk {}, for which it has made no room", name_of(index),
                               store.payload.version.value, store.chunk.value));
  }
  ChunkSet* handed = node.handed.find(store.payload);
  if (handed == nullptr) handed = node.handed.emplace(store.payload, ChunkSet(manifest.chunk_count())).first;
  if (!handed->insert(store.chunk)) {
    return violate(fmt::format("{} stores version {} chunk {} a second time", name_of(index),
                               store.payload.version.value, store.chunk.value));
  }
  const std::uint32_t bytes = manifest.chunk_size(store.chunk);
  node.storing_bytes += bytes;
  throttle_reading(index);
  start_disk_work(node.disk.write(now_, bytes), {.work = DiskWork::kStore,
                                                 .node = index,
                                                 .payload = store.payload,
                                                 .chunk = store.chunk,
                                                 .failed = node.disk.full});
}

void Simulation::throttle_reading(NodeIndex index) {
  Node& node = nodes_[index];
  const bool behind = node.storing_bytes > (node.reading_paused ? kStoringBytesMax / 2 : kStoringBytesMax);
  if (behind == node.reading_paused) return;
  node.reading_paused = behind;
  node.worker->handle_disk_behind(local(index), behind);
  for (const LinkIndex link : network_.links_of(index)) {
    if (!network_.brings_chunks(link, index)) continue;
    behind ? network_.pause(link, index) : network_.resume(now_, link, index);
  }
}

void Simulation::perform(NodeIndex index, action::FinishPayload& finish) {
  Node& node = nodes_[index];
  const Disk::Partial* partial = node.disk.find(finish.payload);
  if (partial == nullptr || partial->open || !partial->written.complete()) {
    return violate(
        fmt::format("{} installs version {}, which is not whole", name_of(index), finish.payload.version.value));
  }
  start_disk_work(now_ + options_.disk.finish_delay,
                  {.work = DiskWork::kFinish, .node = index, .payload = finish.payload, .failed = node.disk.full});
}

void Simulation::perform(NodeIndex node, action::DiscardPayload& discard) {
  nodes_[node].disk.discard(discard.payload);
  nodes_[node].handed.erase(discard.payload);
}

void Simulation::perform(NodeIndex node, action::MakePayload& make) {
  // To hash a version begins at once.
  start_disk_work(now_ + (make.payload.is_full() ? Duration::zero() : options_.patches.make_delay),
                  {.work = DiskWork::kMakePayload, .node = node, .payload = make.payload});
}

void Simulation::perform(NodeIndex node, action::CheckChunk& check) {
  start_disk_work(now_, {.work = DiskWork::kCheck, .node = node, .payload = check.payload, .chunk = check.chunk});
}

void Simulation::perform(NodeIndex node, action::Refused& refused) {
  action::Log log = action::warning(fmt::format("refused ({}): {}", to_string(refused.reason), refused.why.message()));
  perform(node, log);
}

void Simulation::perform(NodeIndex node, action::Log& log) {
  if (options_.log) options_.log(now_ - Instant{}, node, log);
  if (node == 0 && !options_.liars.empty()) note_named();
  remember(name_of(node) + " says: " + log.text);
}

}  // namespace weightcast::sim
