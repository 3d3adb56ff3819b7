#include "sim/network.h"

#include <fmt/format.h>

#include <algorithm>

#include "proto/frame.h"

namespace weightcast::sim {
namespace {

// A lost frame is sent again after a pause that doubles; beyond this many the loss is a partition.
constexpr int kLossesInARowMax = 5;
// As transport/io/net/socket.cpp sets keep-alive.
constexpr Duration kProbedInVain = std::chrono::seconds(60);

Duration time_to_send(std::uint32_t bytes, Rate rate) {
  return rate.limited() ? from_seconds(bytes / rate.bytes_per_s) : Duration::zero();
}

}  // namespace

Network::Network(const NetworkOptions& options, std::uint32_t nodes, Random& random, EventQueue& events,
                 NetworkHandler& handler)
    : options_(options), random_(random), events_(events), handler_(handler), nodes_(nodes) {
  for (NodeIndex node = 0; node < nodes; ++node) {
    nodes_[node].uplink = options.uplink_of(node);
    nodes_[node].downlink = options.downlink_of(node);
  }
  for (const auto& [node, delay] : options.delays) nodes_[node].extra_delay = delay;
}

// ---- frames

FrameIndex Network::new_frame() {
  if (free_frames_ == kNoIndex) {
    frames_.emplace_back();
    return static_cast<FrameIndex>(frames_.size() - 1);
  }
  return std::exchange(free_frames_, frames_[free_frames_].next);
}

void Network::free_frame(FrameIndex index) {
  frames_[index].cargo.reset();
  frames_[index].next = free_frames_;
  free_frames_ = index;
}

void Network::send_control(Instant now, LinkIndex index, NodeIndex from, std::uint64_t bytes, bool is_bulk,
                           std::unique_ptr<Cargo> cargo) {
  const std::uint8_t end = end_of(links_[index], from);
  if (!links_[index].ends[end].open) return;
  send(now, {.kind = FrameKind::kControl,
             .is_bulk = is_bulk,
             .from_end = end,
             .link = index,
             .bytes = static_cast<std::uint32_t>(FrameHeader::kBytes + bytes),
             .cargo = std::move(cargo)});
}

void Network::send_chunk(Instant now, LinkIndex index, NodeIndex from, PayloadId payload, ChunkIndex chunk,
                         std::uint32_t bytes, bool damaged, std::unique_ptr<Cargo> cargo) {
  const std::uint8_t end = end_of(links_[index], from);
  if (!links_[index].ends[end].open) return;
  if (nodes_[from].corrupt_next > 0) {
    --nodes_[from].corrupt_next;
    damaged = true;
  }
  send(now, {.kind = FrameKind::kChunk,
             .damaged = damaged,
             .is_bulk = true,
             .from_end = end,
             .link = index,
             .bytes = static_cast<std::uint32_t>(FrameHeader::kBytes) + bytes,
             .chunk = chunk,
             .payload = payload,
             .cargo = std::move(cargo)});
}

void Network::send(Instant now, Frame made) {
  const FrameIndex index = new_frame();
  const Frame& frame = frames_[index] = std::move(made);
  Link& link = links_[frame.link];
  const NodeIndex from = link.ends[frame.from_end].node;
  Direction& direction = link.directions[frame.from_end];
  if (!frame.is_bulk && direction.first == kNoIndex && !direction.takes_turns) {
    const Duration cost = time_to_send(frame.bytes, nodes_[from].uplink);
    nodes_[from].owed += cost;
    direction.in_flight_bytes += frame.bytes;
    launch(now + cost, index);
    return;
  }
  if (direction.last == kNoIndex) {
    direction.first = index;
  } else {
    frames_[direction.last].next = index;
  }
  direction.last = index;
  if (!direction.takes_turns && !direction.full) {
    direction.takes_turns = true;
    nodes_[from].round.push_back({frame.link, frame.from_end});
  }
  serve(now, from);
}

void Network::serve(Instant now, NodeIndex index) {
  Node& node = nodes_[index];
  while (node.sending == kNoIndex && !node.round.empty()) {
    const auto [link, end] = node.round.front();
    node.round.pop_front();
    Direction& direction = links_[link].directions[end];
    if (direction.first == kNoIndex) {
      direction.takes_turns = false;
      continue;
    }
    if (direction.in_flight_bytes >= options_.in_flight_bytes_max) {
      direction.takes_turns = false;
      direction.full = true;
      continue;
    }
    const FrameIndex sending = direction.first;
    Frame& frame = frames_[sending];
    direction.first = frame.next;
    if (direction.first == kNoIndex) direction.last = kNoIndex;
    direction.in_flight_bytes += frame.bytes;
    if (!frame.is_bulk) {
      const Duration cost = time_to_send(frame.bytes, node.uplink);
      node.owed += cost;
      node.round.push_front({link, end});
      launch(now + cost, sending);
      continue;
    }
    node.sending = sending;
    const Duration cost = time_to_send(frame.bytes, node.uplink) + std::exchange(node.owed, Duration::zero());
    events_.schedule(now + cost, EventKind::kTransmitted, index, node.generation);
  }
}

Duration Network::delay(const Link& link, NodeIndex from, NodeIndex to) const {
  return options_.one_way_delay + link.jitter + nodes_[from].extra_delay + nodes_[to].extra_delay;
}

void Network::launch(Instant now, FrameIndex index) {
  const Frame& frame = frames_[index];
  Link& link = links_[frame.link];
  Direction& direction = link.directions[frame.from_end];
  const NodeIndex from = link.ends[frame.from_end].node, to = link.ends[1 - frame.from_end].node;
  Instant arrival = now + delay(link, from, to);
  const double loss = options_.loss_probability + nodes_[from].extra_loss;
  if (loss > 0) {
    Duration pause = options_.retransmit_after;
    for (int i = 0; i < kLossesInARowMax && random_.chance(loss); ++i, pause *= 2) arrival += pause;
  }
  if (frame.kind == FrameKind::kChunk) nodes_[from].chunk_bytes_sent += frame.bytes - FrameHeader::kBytes;
  if (frame.is_bulk) {
    Node& receiver = nodes_[to];
    arrival = std::max(arrival, receiver.downlink_free + time_to_send(frame.bytes, receiver.downlink));
    receiver.downlink_free = std::max(receiver.downlink_free, arrival);
  }
  direction.last_arrival = std::max(direction.last_arrival, arrival);
  events_.schedule(direction.last_arrival, EventKind::kArrive, index);
}

void Network::set_downlink(Instant now, NodeIndex index, Rate rate) {
  Node& node = nodes_[index];
  const Rate before = std::exchange(node.downlink, rate);
  if (!before.limited() || !rate.limited()) return;
  const double stretch = before.bytes_per_s / rate.bytes_per_s;
  const auto moved = [stretch](Instant at, Instant from) {
    return at > from ? from + from_seconds(to_seconds(at - from) * stretch) : at;
  };
  // Only the wait for the downlink is another, not the way there, nor, after a partition, that for the sender to try
  // again. A lost frame's pause counts as such a wait.
  const auto moved_on = [&](Instant at, const Link& link, std::uint8_t from_end) {
    return moved(at,
                 std::max(now + delay(link, link.ends[from_end].node, index), link.directions[from_end].held_until));
  };
  node.downlink_free = moved(node.downlink_free, now + options_.one_way_delay + node.extra_delay);
  for (const LinkIndex l : node.links) {
    Link& link = links_[l];
    const std::uint8_t from_end = 1 - end_of(link, index);
    link.directions[from_end].last_arrival = moved_on(link.directions[from_end].last_arrival, link, from_end);
  }
  events_.move_all([&](const Event& event) {
    if (node_of(event) != index) return event.at;
    if (event.kind == EventKind::kArrive) {
      const Frame& frame = frames_[event.a];
      return moved_on(event.at, links_[frame.link], frame.from_end);
    }
    // The end of a connection stays right behind what was sent before it; without power, it comes when probes find it.
    if (event.kind != EventKind::kClosed || links_[event.a].failed) return event.at;
    const auto [link_index, from_end] = way_of(event);
    const Link& link = links_[link_index];
    const Instant at = link.lost ? event.at : moved_on(event.at, link, from_end);
    return std::max(at, link.directions[from_end].last_arrival);
  });
}

// ---- connections

LinkIndex Network::dial(Instant now, NodeIndex from, ConnId conn, NodeIndex to) {
  Link& link = links_.emplace_back();
  const auto index = static_cast<LinkIndex>(links_.size() - 1);
  link.ends[0] = {from, conn, true};
  link.ends[1] = {to, ConnId{}, false};
  if (options_.jitter_max > Duration::zero()) link.jitter = random_.duration(Duration::zero(), options_.jitter_max);
  nodes_[from].links.push_back(index);
  events_.schedule(now + delay(link, from, to), EventKind::kDial, index);
  return index;
}

void Network::drop(FrameIndex& first, FrameIndex& last) {
  while (first != kNoIndex) {
    const FrameIndex next = frames_[first].next;
    free_frame(first);
    first = next;
  }
  last = kNoIndex;
}

void Network::stop_reading(Link& link, std::uint8_t end) {
  Direction& direction = link.directions[1 - end];
  drop(direction.unread_first, direction.unread_last);
  direction.paused = false;
}

void Network::close(Instant now, LinkIndex index, NodeIndex from) {
  Link& link = links_[index];
  const std::uint8_t end = end_of(link, from);
  if (!link.ends[end].open) return;
  link.ends[end].open = false;
  stop_reading(link, end);
  send(now, {.kind = FrameKind::kEnd, .from_end = end, .link = index, .bytes = FrameHeader::kBytes});
}

void Network::abandon(Instant now, LinkIndex index, NodeIndex from) {
  Link& link = links_[index];
  if (link.ends[end_of(link, from)].open) drop_queue(link, end_of(link, from));
  close(now, index, from);
}

void Network::pause(LinkIndex index, NodeIndex reader) {
  Link& link = links_[index];
  const std::uint8_t end = end_of(link, reader);
  if (link.ends[end].open) link.directions[1 - end].paused = true;
}

void Network::resume(Instant now, LinkIndex index, NodeIndex reader) {
  Link& link = links_[index];
  const std::uint8_t end = end_of(link, reader);
  Direction& direction = link.directions[1 - end];
  direction.paused = false;
  if (direction.unread_first != kNoIndex) events_.schedule(now, EventKind::kRead, index, end);
}

void Network::handle_restart(NodeIndex node) {
  nodes_[node].links.clear();
  nodes_[node].dark = false;
}

void Network::reset(Instant now, LinkIndex index) {
  Link& link = links_[index];
  link.failed = true;
  for (std::uint8_t end = 0; end < 2; ++end) {
    drop_queue(link, end);
    if (link.ends[end].open) events_.schedule(now, EventKind::kClosed, index, end);
  }
}

void Network::drop_node(Instant now, NodeIndex index, bool loses_power) {
  Node& node = nodes_[index];
  node.dark = loses_power;
  for (const LinkIndex l : node.links) {
    Link& link = links_[l];
    const std::uint8_t end = end_of(link, index);
    const std::uint8_t other = 1 - end;
    link.ends[end].open = false;
    link.lost = link.lost || loses_power;
    drop_queue(link, end);
    stop_reading(link, end);
    if (!link.ends[other].open) continue;
    const Instant told = now + (loses_power ? kProbedInVain : delay(link, index, link.ends[other].node));
    events_.schedule(std::max(told, link.directions[end].last_arrival), EventKind::kClosed, l, other);
  }
  if (node.sending != kNoIndex) {
    links_[frames_[node.sending].link].directions[frames_[node.sending].from_end].takes_turns = false;
    free_frame(std::exchange(node.sending, kNoIndex));
  }
  for (const auto& [link, end] : node.round) links_[link].directions[end].takes_turns = false;
  node.round.clear();
  node.owed = Duration::zero();
  ++node.generation;
  node.links.clear();
}

NodeIndex Network::other_end(LinkIndex index, NodeIndex node) const {
  const Link& link = links_[index];
  return link.ends[1 - end_of(link, node)].node;
}

void Network::fail_dial(Instant at, LinkIndex index, bool refused) {
  links_[index].failed = true;
  links_[index].refused = refused;
  events_.schedule(at, EventKind::kClosed, index, 0);
}

const Fault* Network::block_of(NodeIndex from, NodeIndex to) const {
  const auto block = std::ranges::find_if(blocks_, [&](const Fault& b) {
    return to >= b.node && to <= b.node_last && from != 0 && (b.peer == Fault::kEverybody || b.peer == from);
  });
  return block == blocks_.end() ? nullptr : &*block;
}

// ---- events

NodeIndex Network::node_of(const Event& event) const {
  switch (event.kind) {
    case EventKind::kTransmitted: return event.a;
    case EventKind::kArrive: return links_[frames_[event.a].link].ends[1 - frames_[event.a].from_end].node;
    case EventKind::kAccept: return links_[event.a].ends[1].node;
    case EventKind::kConnected: return links_[event.a].ends[0].node;
    case EventKind::kRead:
    case EventKind::kClosed: return links_[event.a].ends[event.b].node;
    default: return kNoIndex;
  }
}

void Network::handle(Instant now, const Event& event) {
  switch (event.kind) {
    case EventKind::kTransmitted: {
      Node& node = nodes_[event.a];
      if (node.generation != event.b) return;
      const FrameIndex sent = std::exchange(node.sending, kNoIndex);
      const Frame& frame = frames_[sent];
      const LinkIndex index = frame.link;
      const std::uint8_t end = frame.from_end;
      const bool chunk = frame.kind == FrameKind::kChunk;
      Link& link = links_[index];
      launch(now, sent);
      // Its turn comes again after the others'. What the core adds now goes behind what is queued.
      node.round.push_back({index, end});
      if (chunk && link.ends[end].open) handler_.on_chunk_sent(event.a, link.ends[end].conn);
      serve(now, event.a);
      return;
    }
    case EventKind::kArrive: return arrive(now, event.a);
    case EventKind::kRead: return read_on(now, event);
    case EventKind::kDial: {
      Link& link = links_[event.a];
      const NodeIndex from = link.ends[0].node, to = link.ends[1].node;
      if (!link.ends[0].open || link.failed) return;
      if (cut(from, to) || cut(to, from)) {
        // The packet is tried again every second, as TCP does at first.
        const bool give_up = std::chrono::seconds(event.b + 1) >= options_.connect_timeout;
        if (give_up) return fail_dial(now + std::chrono::seconds(1), event.a, false);
        return events_.schedule(now + std::chrono::seconds(1), EventKind::kDial, event.a, event.b + 1);
      }
      const Duration one_way = delay(link, from, to);
      if (const Fault* block = block_of(from, to)) {
        return fail_dial(now + (block->one_way ? one_way : options_.connect_timeout), event.a, block->one_way);
      }
      if (nodes_[to].dark) return fail_dial(now + options_.connect_timeout, event.a, false);
      if (!handler_.is_up(to)) return fail_dial(now + one_way, event.a, true);
      return events_.schedule(now + 2 * one_way, EventKind::kAccept, event.a);
    }
    case EventKind::kAccept: {
      Link& link = links_[event.a];
      if (!link.ends[0].open || link.failed) return;
      const Duration one_way = delay(link, link.ends[1].node, link.ends[0].node);
      if (!handler_.is_up(link.ends[1].node)) return fail_dial(now + one_way, event.a, true);
      link.ends[1].open = true;
      nodes_[link.ends[1].node].links.push_back(event.a);
      // The dialler hears of it before anything that is said on it.
      link.directions[1].last_arrival = now + one_way;
      events_.schedule(now + one_way, EventKind::kConnected, event.a);
      link.ends[1].conn = handler_.on_accept(link.ends[1].node, link.ends[0].node, event.a);
      return;
    }
    case EventKind::kConnected: {
      const Link& link = links_[event.a];
      if (link.ends[0].open && !link.failed) handler_.on_connected(link.ends[0].node, link.ends[0].conn);
      return;
    }
    case EventKind::kClosed: {
      Link& link = links_[event.a];
      const auto end = static_cast<std::uint8_t>(event.b);
      if (!link.ends[end].open) return;
      link.ends[end].open = false;
      drop_queue(link, end);
      stop_reading(link, end);
      Error why = fail(Errc::kClosed, Op::kReceive, "connection ended");
      if (link.failed && link.ends[1].conn == ConnId{}) {
        why = link.refused ? fail(Errc::kIo, Op::kConnect, "connection refused")
                           : fail(Errc::kTimedOut, Op::kConnect, "timed out");
      }
      handler_.on_closed(link.ends[end].node, link.ends[end].conn, why);
      return;
    }
    default: return;
  }
}

void Network::arrive(Instant now, FrameIndex index) {
  const Frame& frame = frames_[index];
  Direction& direction = links_[frame.link].directions[frame.from_end];
  if (!direction.paused && direction.unread_first == kNoIndex) return take(now, index);
  frames_[index].next = kNoIndex;
  (direction.unread_first == kNoIndex ? direction.unread_first : frames_[direction.unread_last].next) = index;
  direction.unread_last = index;
}

void Network::read_on(Instant now, const Event& event) {
  Direction& direction = links_[event.a].directions[1 - event.b];
  while (!direction.paused && direction.unread_first != kNoIndex) {
    const FrameIndex index = direction.unread_first;
    direction.unread_first = frames_[index].next;
    if (direction.unread_first == kNoIndex) direction.unread_last = kNoIndex;
    take(now, index);
  }
}

void Network::take(Instant now, FrameIndex index) {
  Frame frame = std::move(frames_[index]);
  free_frame(index);
  Link& link = links_[frame.link];
  Direction& direction = link.directions[frame.from_end];
  direction.in_flight_bytes -= frame.bytes;
  const End from = link.ends[frame.from_end];
  if (direction.full) {
    direction.full = false;
    direction.takes_turns = true;
    nodes_[from.node].round.push_back({frame.link, frame.from_end});
    serve(now, from.node);
  }
  const auto to_end = static_cast<std::uint8_t>(1 - frame.from_end);
  End& to = link.ends[to_end];
  if (link.failed) return;
  if (!to.open) {
    // A host that is back, and knows nothing of the connection, says so.
    const bool answers = link.lost && from.open && !nodes_[to.node].dark;
    if (answers)
      events_.schedule(now + delay(link, to.node, from.node), EventKind::kClosed, frame.link, frame.from_end);
    return;
  }
  switch (frame.kind) {
    case FrameKind::kControl: return handler_.on_control(to.node, to.conn, from.node, *frame.cargo);
    case FrameKind::kChunk:
      direction.brought_chunks = true;
      return handler_.on_chunk(to.node, to.conn, frame.payload, frame.chunk, frame.damaged, frame.cargo.get());
    case FrameKind::kEnd:
      to.open = false;
      drop_queue(link, to_end);
      return handler_.on_closed(to.node, to.conn, fail(Errc::kClosed, Op::kReceive, "the other side closed"));
  }
}

// ---- faults

bool Network::begin(Instant now, const Fault& fault) {
  switch (fault.kind) {
    case FaultKind::kPartition: partitions_.push_back(fault); return true;
    case FaultKind::kBlock: blocks_.push_back(fault); return true;
    default: break;
  }
  for (NodeIndex index = fault.node; index < nodes_.size() && index <= fault.node_last; ++index) {
    Node& node = nodes_[index];
    switch (fault.kind) {
      case FaultKind::kThrottle: node.uplink = fault.rate; break;
      case FaultKind::kChoke: set_downlink(now, index, fault.rate); break;
      case FaultKind::kCorrupt: node.corrupt_next += fault.count; break;
      case FaultKind::kLoss: node.extra_loss += fault.probability; break;
      case FaultKind::kDelay: node.extra_delay += fault.by; break;
      case FaultKind::kReset:
        for (const LinkIndex link : node.links) reset(now, link);
        break;
      default: return false;
    }
  }
  return true;
}

bool Network::end(Instant now, const Fault& fault) {
  switch (fault.kind) {
    case FaultKind::kPartition: end_partition(now, fault); return true;
    case FaultKind::kBlock: std::erase(blocks_, fault); return true;
    default: break;
  }
  for (NodeIndex index = fault.node; index < nodes_.size() && index <= fault.node_last; ++index) {
    Node& node = nodes_[index];
    switch (fault.kind) {
      case FaultKind::kThrottle: node.uplink = options_.uplink_of(index); break;
      case FaultKind::kChoke: set_downlink(now, index, options_.downlink_of(index)); break;
      case FaultKind::kLoss: node.extra_loss -= fault.probability; break;
      case FaultKind::kDelay: node.extra_delay -= fault.by; break;
      default: return false;
    }
  }
  return true;
}

bool Network::cut(NodeIndex from, NodeIndex to) const {
  for (const Fault& p : partitions_) {
    const auto inside = [&](NodeIndex node) { return node >= p.node && node <= p.node_last; };
    const auto beyond = [&](NodeIndex node) { return p.peer == Fault::kEverybody ? !inside(node) : node == p.peer; };
    if (inside(from) && beyond(to)) return true;
    if (!p.one_way && beyond(from) && inside(to)) return true;
  }
  return false;
}

std::pair<LinkIndex, std::uint8_t> Network::way_of(const Event& event) const {
  if (event.kind == EventKind::kArrive) return {frames_[event.a].link, frames_[event.a].from_end};
  return {event.a, static_cast<std::uint8_t>(1 - event.b)};
}

bool Network::hold(Instant now, const Event& event) {
  if (event.kind != EventKind::kArrive && event.kind != EventKind::kClosed) return false;
  const auto [index, from_end] = way_of(event);
  const Link& link = links_[index];
  // Behind what an earlier partition held, also where another one has begun since: that is met by all of them in order.
  if (now < link.directions[from_end].held_until) {
    events_.schedule(link.directions[from_end].held_until, event.kind, event.a, event.b);
    return true;
  }
  if (partitions_.empty() || !cut(link.ends[from_end].node, link.ends[1 - from_end].node)) return false;
  held_.push_back(event);
  return true;
}

void Network::end_partition(Instant now, const Fault& fault) {
  const auto found = std::find(partitions_.begin(), partitions_.end(), fault);
  if (found == partitions_.end()) return;
  partitions_.erase(found);
  for (const Event& event : std::exchange(held_, {})) {
    const auto [index, from_end] = way_of(event);
    Link& link = links_[index];
    if (cut(link.ends[from_end].node, link.ends[1 - from_end].node)) {
      held_.push_back(event);
      continue;
    }
    Direction& direction = link.directions[from_end];
    // The sender's retransmission timer is anywhere in its period.
    if (direction.held_until <= now)
      direction.held_until = now + random_.duration(Duration(1), std::chrono::seconds(1));
    events_.schedule(direction.held_until, event.kind, event.a, event.b);
  }
}

// ---- for people

std::string Network::describe(const Event& event) const {
  const auto name = [](NodeIndex node) { return node == 0 ? std::string("origin") : fmt::format("worker {}", node); };
  switch (event.kind) {
    case EventKind::kTransmitted: return name(event.a) + " has sent a frame";
    case EventKind::kArrive: {
      const Frame& frame = frames_[event.a];
      const Link& link = links_[frame.link];
      const std::string direction =
          name(link.ends[frame.from_end].node) + " -> " + name(link.ends[1 - frame.from_end].node);
      if (frame.kind == FrameKind::kEnd) return direction + ": end";
      if (frame.kind == FrameKind::kControl) return direction + ": " + frame.cargo->text();
      return fmt::format("{}: version {} chunk {}{}", direction, frame.payload.version.value, frame.chunk.value,
                         frame.damaged ? ", damaged" : "");
    }
    case EventKind::kDial:
    case EventKind::kAccept:
    case EventKind::kConnected:
    case EventKind::kClosed: {
      const Link& link = links_[event.a];
      const char* what = event.kind == EventKind::kDial        ? "dials"
                         : event.kind == EventKind::kAccept    ? "is accepted by"
                         : event.kind == EventKind::kConnected ? "is connected to"
                                                               : "is cut off from";
      const bool second = event.kind == EventKind::kClosed && event.b == 1;
      return fmt::format("{} {} {}", name(link.ends[second].node), what, name(link.ends[!second].node));
    }
    default: return {};
  }
}

}  // namespace weightcast::sim
