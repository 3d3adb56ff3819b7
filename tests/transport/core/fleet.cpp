#include "tests/transport/core/fleet.h"

#include <algorithm>
#include <array>

#include "transport/core/payload_wire.h"

namespace weightcast {
namespace {

constexpr std::uint16_t kFirstPort = 1000;

Error refused(std::string what) { return fail(Errc::kClosed, Op::kConnect, std::move(what)); }

/// What there is of a payload after `growth` of `growths` steps: whole parts of two chunks, and all of it in the end.
MadePayload grown(Manifest manifest, std::uint32_t growth, std::uint32_t growths) {
  MadePayload made{nullptr, fleet_digests(manifest.id(), manifest.chunk_count())};
  manifest.part_chunks = 2;
  manifest.open = growth < growths;
  if (manifest.open) {
    manifest.expected_bytes = manifest.payload_bytes;
    made.chunk_digests.resize(manifest.chunk_count() / 2 * growth / growths * 2);
    manifest.payload_bytes = made.chunk_digests.size() * manifest.chunk_bytes;
    if (manifest.kind == PayloadKind::kFull) manifest.snapshot_digest = {};
  }
  manifest.part_digests = part_digests_of(made.chunk_digests, manifest.part_chunks);
  made.manifest = std::make_shared<const Manifest>(std::move(manifest));
  return made;
}

}  // namespace

Digest fleet_digest(PayloadId payload, ChunkIndex chunk) {
  const std::array<std::uint64_t, 2> content{std::hash<PayloadId>()(payload), chunk.value};
  return digest_of(std::as_bytes(std::span(content)));
}

std::vector<Digest> fleet_digests(PayloadId payload, std::uint32_t chunks) {
  std::vector<Digest> digests;
  for (std::uint32_t i = 0; i < chunks; ++i) digests.push_back(fleet_digest(payload, ChunkIndex{i}));
  return digests;
}

std::shared_ptr<const Manifest> fleet_manifest(PayloadId payload, std::uint32_t chunks) {
  auto manifest = std::make_shared<Manifest>();
  manifest->version = payload.version;
  manifest->base_version = payload.base;
  manifest->kind = payload.kind;
  manifest->chunk_bytes = kChunkBytesMin;
  manifest->payload_bytes = std::uint64_t{chunks} * kChunkBytesMin - 1;  // the last one is short
  manifest->part_digests = part_digests_of(fleet_digests(payload, chunks));
  manifest->files = {{"model.safetensors", manifest->payload_bytes}};
  manifest->snapshot_digest = digest_of(std::as_bytes(std::span(&payload.version.value, 1)));
  return manifest;
}

Fleet::Fleet(OriginConfig config, PatchChunks patch_chunks) : patch_chunks_(std::move(patch_chunks)) {
  config.patches = patch_chunks_ != nullptr;
  auto node = std::make_unique<Node>();
  node->name = config.name;
  node->port = kFirstPort;
  auto core = std::make_unique<OriginCore>(std::move(config));
  origin_ = core.get();
  node->core = std::move(core);
  nodes_.push_back(std::move(node));
  start(0);
}

Fleet::Node& Fleet::add(const std::string& name, WorkerConfig config) {
  auto node = std::make_unique<Node>();
  node->name = name;
  node->port = static_cast<std::uint16_t>(kFirstPort + nodes_.size());
  config.name = name;
  config.incarnation = nodes_.size();
  config.origin_host = "host";
  config.origin_port = kFirstPort;
  config.listen_port = node->port;
  node->config = std::move(config);
  nodes_.push_back(std::move(node));
  restart(*nodes_.back());
  return *nodes_.back();
}

void Fleet::restart(Node& node) {
  const auto index = std::size_t(node.port - kFirstPort);
  node.config.incarnation += 1000;
  auto core = std::make_unique<WorkerCore>(node.config);
  for (const auto& [payload, disk] : node.disk) {
    if (!disk.complete) continue;
    core->restore(disk.manifest, disk.digests);
    if (payload.is_encoded()) core->restore_patch(disk.manifest, disk.digests);
  }
  node.worker = core.get();
  node.core = std::move(core);
  start(index);
}

void Fleet::start(std::size_t index) {
  nodes_[index]->core->start(now_);
  pump(index);
}

void Fleet::kill(Node& node) {
  const auto index = std::size_t(node.port - kFirstPort);
  while (!node.ends.empty()) cut(index, node.ends.begin()->first, now_);
  node.core.reset();
  node.worker = nullptr;
  std::erase_if(node.disk, [](const auto& disk) { return disk.second.manifest->open; });
}

void Fleet::thaw(Node& node) {
  node.frozen = false;
  for (auto& what : std::exchange(node.missed, {})) later(now_, std::move(what));
}

void Fleet::publish(std::uint64_t version, std::uint32_t chunks) {
  if (takeover_growths > 0) {
    grow_version(Version{version}, chunks, 0);
  } else {
    origin_->handle_publish(
        now_, now_, MadePayload{fleet_manifest(Version{version}, chunks), fleet_digests(Version{version}, chunks)});
  }
  pump(0);
}

void Fleet::grow_version(Version version, std::uint32_t chunks, std::uint32_t growth) {
  const MadePayload made = grown(*fleet_manifest(version, chunks), growth, takeover_growths);
  if (!made.manifest->open && refuses_versions) return origin_->handle_publish_failed(now_, version);
  if (!made.manifest->open) return origin_->handle_publish(now_, now_, made);
  if (growth == 0) {
    origin_->handle_publish_begun(now_, made.manifest, packable);
  } else {
    origin_->handle_publish_grown(made);
  }
  later_at(0, ConnId{}, now_ + kGrowthTime,
           [this, version, chunks, growth](Node&) { grow_version(version, chunks, growth + 1); });
}

void Fleet::later(Instant at, std::function<void()> what) {
  events_.emplace(std::pair(std::max(at, now_), ++sequence_), std::move(what));
}

void Fleet::later_at(std::size_t node, ConnId conn, Instant at, std::function<void(Node&)> what) {
  later(at, [this, node, conn, what = std::move(what)] { deliver(node, conn, what); });
}

void Fleet::deliver(std::size_t index, ConnId conn, std::function<void(Node&)> what) {
  Node& node = *nodes_[index];
  if (!node.core || (conn != ConnId{} && !node.ends.contains(conn))) return;
  if (node.frozen) {
    node.missed.push_back([this, index, conn, what = std::move(what)] { deliver(index, conn, what); });
    return;
  }
  what(node);
  pump(index);
}

void Fleet::cut(std::size_t index, ConnId conn, Instant at) {
  const Node::End end = nodes_[index]->ends.at(conn);
  nodes_[index]->ends.erase(conn);
  if (end.peer_conn == ConnId{}) return;  // still dialling
  later_at(end.peer, end.peer_conn, std::max(at, end.free_at) + kLatency, [this, end](Node& peer) {
    peer.ends.erase(end.peer_conn);
    peer.core->handle_closed(now_, end.peer_conn, fail(Errc::kClosed, Op::kReceive, "the peer closed it"));
  });
}

void Fleet::pump(std::size_t index) {
  Node& node = *nodes_[index];
  while (node.core) {
    std::optional<Action> next = node.core->poll_action();
    if (!next) break;
    perform(index, node, std::move(*next));
  }
}

void Fleet::perform(std::size_t index, Node& node, Action action) {
  const auto disk_error = [&] { return fail(Errc::kNoSpace, Op::kWrite, "the disk is full"); };
  if (const auto* connect = std::get_if<action::Connect>(&action)) {
    const std::size_t peer = connect->port - std::size_t{kFirstPort};
    const ConnId conn = connect->conn;
    node.ends[conn] = {};
    later_at(index, conn, now_ + kLatency, [this, index, peer, conn](Node& self) {
      if (peer >= nodes_.size() || !nodes_[peer]->core) {
        self.ends.erase(conn);
        return self.core->handle_closed(now_, conn, refused("nobody listens there"));
      }
      const ConnId accepted = nodes_[peer]->core->next_conn();
      self.ends[conn] = {peer, accepted, now_};
      nodes_[peer]->ends[accepted] = {index, conn, now_};
      later_at(peer, accepted, now_, [this, accepted](Node& n) { n.core->handle_accepted(now_, accepted, "host"); });
      self.core->handle_connected(now_, conn);
    });
  } else if (const auto* send = std::get_if<action::Send>(&action)) {
    const auto end = node.ends.find(send->conn);
    if (end == node.ends.end() || end->second.peer_conn == ConnId{}) return;
    later_at(end->second.peer, end->second.peer_conn, std::max(now_, end->second.free_at) + kLatency,
             [this, conn = end->second.peer_conn, message = send->message](Node& peer) {
               peer.core->handle_message(now_, conn, message);
             });
  } else if (const auto* chunk = std::get_if<action::SendChunk>(&action)) {
    const auto end = node.ends.find(chunk->conn);
    if (end == node.ends.end()) return;
    if (node.withholds_chunks) return say_up_to_date(index, chunk->conn, chunk->payload);
    end->second.free_at = std::max(now_, end->second.free_at) + node.chunk_time;
    Digest digest = fleet_digest(chunk->payload, chunk->chunk);
    if (node.damages_chunks || node.rotten.contains({chunk->payload, chunk->chunk})) digest.bytes[0] ^= std::byte{1};
    later_at(end->second.peer, end->second.peer_conn, end->second.free_at + kLatency,
             [this, from = index, conn = end->second.peer_conn, sent = *chunk, digest](Node& peer) {
               const Node& sender = *nodes_[from];
               const auto holding = origin_->holdings().find(sent.payload);
               const std::uint32_t size = holding == origin_->holdings().end()
                                              ? kChunkBytesMin
                                              : holding->second.manifest().chunk_size(sent.chunk);
               deliveries_.push_back({sender.name, peer.name, sent.payload, sent.chunk,
                                      digest != fleet_digest(sent.payload, sent.chunk)});
               peer.core->handle_chunk(now_, conn, {sent.payload, sent.chunk, size, digest, nullptr});
             });
    later_at(index, chunk->conn, end->second.free_at,
             [this, conn = chunk->conn](Node& self) { self.core->handle_chunk_sent(now_, conn); });
  } else if (const auto* close = std::get_if<action::Close>(&action)) {
    if (node.ends.contains(close->conn)) cut(index, close->conn, now_);
  } else if (const auto* begin = std::get_if<action::BeginPayload>(&action)) {
    const PayloadId payload = begin->manifest->id();
    if (node.disk_full) {
      return later_at(index, ConnId{}, now_, [this, payload, why = disk_error()](Node& self) {
        self.core->handle_payload_begun(now_, payload, why);
      });
    }
    Node::Disk& disk = node.disk[payload];
    disk.manifest = begin->manifest;
    if (disk.held.size() == 0) disk.held = ChunkSet(begin->manifest->chunk_count());
    later_at(index, ConnId{}, now_, [this, payload](Node& self) {
      const Node::Disk& d = self.disk.at(payload);
      self.core->handle_payload_begun(now_, payload, RestoredPayload{d.digests, d.held});
    });
  } else if (const auto* grow = std::get_if<action::GrowPayload>(&action)) {
    Node::Disk& disk = node.disk.at(grow->manifest->id());
    disk.manifest = grow->manifest;
    disk.held.grow(grow->manifest->chunk_count());
  } else if (const auto* part = std::get_if<action::PutDigestPart>(&action)) {
    const Node::Disk& disk = node.disk.at(part->payload);
    std::vector<Digest>& known = node.disk.at(part->payload).digests;
    if (known.size() == std::size_t{part->part} * disk.manifest->part_chunks) {
      known.insert(known.end(), part->digests.begin(), part->digests.end());
    }
  } else if (const auto* store = std::get_if<action::StoreChunk>(&action)) {
    Status status;
    if (node.disk_full) {
      status = disk_error();
    } else {
      node.disk.at(store->payload).held.insert(store->chunk);
    }
    later_at(index, ConnId{}, now_, [this, payload = store->payload, at = store->chunk, status](Node& self) {
      self.core->handle_chunk_stored(now_, payload, at, status);
    });
  } else if (const auto* finish = std::get_if<action::FinishPayload>(&action)) {
    Status status;
    if (node.damages_snapshots) {
      status = fail(Errc::kCorrupt, Op::kInstall, "the snapshot digest does not match");
    } else if (node.damaged_base && finish->payload.is_encoded()) {
      status = fail(Errc::kWrongBase, Op::kDecode, "the base is not the one that the patch was made from");
    } else {
      node.disk.at(finish->payload).complete = true;
    }
    later_at(index, ConnId{}, now_, [this, payload = finish->payload, status](Node& self) {
      self.core->handle_finished(now_, payload, status);
    });
  } else if (const auto* discard = std::get_if<action::DiscardPayload>(&action)) {
    node.disk.erase(discard->payload);
  } else if (const auto* check = std::get_if<action::CheckChunk>(&action)) {
    later_at(index, ConnId{}, now_ + kLatency, [this, check = *check](Node& self) {
      Digest digest = fleet_digest(check.payload, check.chunk);
      if (self.rotten.contains({check.payload, check.chunk})) digest.bytes[0] ^= std::byte{1};
      self.core->handle_chunk_checked(now_, check.payload, check.chunk, digest);
    });
  } else if (const auto* make = std::get_if<action::MakePatch>(&action)) {
    later_at(index, ConnId{}, now_ + kLatency, [this, payload = make->payload](Node&) { make_patch(payload); });
  } else if (const auto* log = std::get_if<action::Log>(&action)) {
    node.log.push_back(log->text);
  }
}

void Fleet::say_up_to_date(std::size_t index, ConnId conn, PayloadId payload) {
  wire::Message message;
  set_payload(*message.mutable_up_to_date(), payload);
  perform(index, *nodes_[index], action::Send{conn, message});
  later_at(index, conn, now_ + std::chrono::milliseconds(250),
           [this, index, conn, payload](Node&) { say_up_to_date(index, conn, payload); });
}

void Fleet::make_patch(PayloadId payload) {
  const std::uint32_t chunks = patch_chunks_(payload);
  if (chunks == 0) {
    return origin_->handle_patch_made(now_, payload, fail(Errc::kTooLarge, Op::kEncode, "everything changed"));
  }
  if (patch_growths > 0) return grow_patch(payload, 0);
  origin_->handle_patch_made(now_, payload,
                             MadePayload{fleet_manifest(payload, chunks), fleet_digests(payload, chunks)});
}

void Fleet::grow_patch(PayloadId payload, std::uint32_t growth) {
  if (growth == patch_growths && withdraws_patches) {
    return origin_->handle_patch_made(now_, payload, fail(Errc::kTooLarge, Op::kEncode, "more changed than it seemed"));
  }
  Manifest manifest = *fleet_manifest(payload, patch_chunks_(payload));
  manifest.files = {{"model.safetensors", kMiB}};
  const MadePayload made = grown(std::move(manifest), growth, patch_growths);
  if (!made.manifest->open) return origin_->handle_patch_made(now_, payload, made);
  if (growth == 0) {
    origin_->handle_patch_begun(now_, made.manifest);
  } else {
    origin_->handle_patch_grown(made);
  }
  later_at(0, ConnId{}, now_ + kGrowthTime, [this, payload, growth](Node&) { grow_patch(payload, growth + 1); });
}

bool Fleet::step(Instant until) {
  std::optional<Instant> due;
  std::optional<std::size_t> who;
  for (std::size_t i = 0; i < nodes_.size(); ++i) {
    if (!nodes_[i]->core || nodes_[i]->frozen) continue;
    const auto deadline = nodes_[i]->core->poll_deadline();
    if (deadline && (!due || *deadline < *due)) {
      due = deadline;
      who = i;
    }
  }
  if (!events_.empty() && (!due || events_.begin()->first.first <= *due)) {
    due = events_.begin()->first.first;
    who.reset();
  }
  if (!due || *due > until) {
    now_ = until;
    return false;
  }
  now_ = std::max(now_, *due);
  if (who) {
    nodes_[*who]->core->handle_timeout(now_);
    pump(*who);
  } else {
    events_.extract(events_.begin()).mapped()();
  }
  return true;
}

void Fleet::run_for(Duration span) {
  const Instant until = now_ + span;
  while (step(until)) {
  }
}

bool Fleet::run_until(const std::function<bool()>& done, Duration limit) {
  const Instant until = now_ + limit;
  while (!done()) {
    if (!step(until)) return done();
  }
  return true;
}

bool Fleet::run_until_installed(std::uint64_t version, Duration limit) {
  return run_until(
      [&] {
        return std::ranges::all_of(nodes_, [&](const auto& node) {
          return node->worker == nullptr || node->worker->installed_version() >= Version{version};
        });
      },
      limit);
}

Fleet::Node& Fleet::operator[](const std::string& name) {
  return **std::ranges::find_if(nodes_, [&](const auto& node) { return node->name == name; });
}

const Member& Fleet::member(const std::string& name) const {
  const auto& all = origin_->members().all();
  return std::ranges::find_if(all, [&](const auto& m) { return m.second.name == name; })->second;
}

std::string Fleet::parent_of(const std::string& name) const {
  const std::vector<PeerId> ancestors = ancestors_of(*origin_->latest_plan(), member(name).id, 0);
  return ancestors.front() == kOriginId ? nodes_[0]->name : origin_->members().find(ancestors.front())->name;
}

std::size_t Fleet::deliveries_to(const std::string& name) const {
  return static_cast<std::size_t>(std::ranges::count_if(deliveries_, [&](const Delivery& d) { return d.to == name; }));
}

std::vector<PayloadId> Fleet::payloads_to(const std::string& name) const {
  std::vector<PayloadId> payloads;
  for (const Delivery& delivery : deliveries_) {
    const bool known = std::ranges::find(payloads, delivery.payload) != payloads.end();
    if (delivery.to == name && !known) payloads.push_back(delivery.payload);
  }
  return payloads;
}

}  // namespace weightcast
