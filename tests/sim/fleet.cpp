#include "tests/sim/fleet.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <set>
#include <utility>

#include "tests/transport/core/plan/relations.h"
#include "transport/core/manifest/payload_wire.h"

namespace weightcast::sim {
namespace {

constexpr Rate kChunksPerMillisecond{kChunkBytesMin * 1000.0};

std::uint64_t bytes_of(std::uint32_t chunks) { return std::uint64_t{chunks} * kChunkBytesMin - 1; }

/// A relay that sends no chunk while `*withholds`, and says again and again that it has nothing more.
class Withholding final : public WorkerCore {
 public:
  Withholding(const WorkerConfig& config, const bool* withholds) : WorkerCore(config), withholds_(withholds) {}

  void handle_timeout(Instant now) override {
    now_ = now;
    if (says_again_at_ && *says_again_at_ <= now) {
      says_again_at_ = now + kSaysAgainAfter;
      for (const auto& [conn, payload] : asked_) say(conn, payload);
    }
    WorkerCore::handle_timeout(now);
  }
  void handle_message(Instant now, ConnId conn, const wire::Message& message) override {
    now_ = now;
    WorkerCore::handle_message(now, conn, message);
  }
  void handle_chunk(Instant now, ConnId conn, const ChunkArrival& chunk) override {
    now_ = now;
    WorkerCore::handle_chunk(now, conn, chunk);
  }
  void handle_closed(Instant now, ConnId conn, const Error& why) override {
    std::erase_if(asked_, [conn](const auto& asked) { return asked.first == conn; });
    WorkerCore::handle_closed(now, conn, why);
  }
  std::optional<Action> poll_action() override {
    if (auto said = said_.poll()) return said;
    std::optional<Action> action = WorkerCore::poll_action();
    const auto* chunk = action ? std::get_if<action::SendChunk>(&*action) : nullptr;
    if (!*withholds_ || chunk == nullptr) return action;
    asked_.insert({chunk->conn, chunk->payload});
    if (!says_again_at_) says_again_at_ = now_ + kSaysAgainAfter;
    say(chunk->conn, chunk->payload);
    return said_.poll();
  }
  std::optional<Instant> poll_deadline() const override {
    const std::optional<Instant> deadline = WorkerCore::poll_deadline();
    return deadline && says_again_at_ ? std::min(*deadline, *says_again_at_) : deadline;
  }

 private:
  static constexpr Duration kSaysAgainAfter = std::chrono::milliseconds(250);

  void say(ConnId conn, PayloadId payload) {
    wire::Message message;
    set_payload(*message.mutable_up_to_date(), payload);
    said_.push(action::Send{conn, std::move(message)});
  }

  const bool* withholds_;
  Instant now_{};
  std::set<std::pair<ConnId, PayloadId>> asked_;
  std::optional<Instant> says_again_at_;
  ActionQueue said_;
};

Fault fault_of(FaultKind kind, NodeIndex node) {
  Fault fault;
  fault.kind = kind;
  fault.node = fault.node_last = node;
  return fault;
}

}  // namespace

SimOptions Fleet::options(OriginConfig config, PatchChunks patch_chunks) {
  config.patches = patch_chunks != nullptr;
  SimOptions options;
  options.workers = kWorkersMax;
  options.chunk_bytes = kChunkBytesMin;
  options.network.origin_uplink = options.network.worker_uplink = kChunksPerMillisecond;
  options.network.worker_downlink = Rate{};
  options.network.one_way_delay = kLatency;
  options.patches.make_delay = kLatency;
  options.patches.part_chunks = options.takeover.part_chunks = 2;
  options.takeover.tries_again = false;
  options.configure_origin = [config](OriginConfig& made) { made = config; };
  options.configure_worker = [this](NodeIndex index, WorkerConfig& made) {
    WorkerConfig wanted = nodes_[index]->config;
    wanted.name = nodes_[index]->name;
    wanted.incarnation = made.incarnation;
    wanted.origin_host = made.origin_host;
    wanted.origin_port = made.origin_port;
    wanted.listen_host = made.listen_host;
    wanted.listen_port = made.listen_port;
    made = std::move(wanted);
  };
  options.encoded_bytes = [patch_chunks](PayloadId payload) -> std::optional<std::uint64_t> {
    const std::uint32_t chunks = patch_chunks ? patch_chunks(payload) : 0;
    if (chunks == 0) return std::nullopt;
    return bytes_of(chunks);
  };
  options.make_worker = [this](NodeIndex index, const WorkerConfig& made) {
    return std::make_unique<Withholding>(made, &nodes_[index]->withholds_chunks);
  };
  options.on_delivery = [this](const Delivery& delivery) {
    deliveries_.push_back(
        {nodes_[delivery.from]->name, nodes_[delivery.to]->name, delivery.payload, delivery.chunk, delivery.damaged});
  };
  options.log = [this](Duration, NodeIndex index, const action::Log& log) { nodes_[index]->log.push_back(log.text); };
  return options;
}

Fleet::Fleet(OriginConfig config, PatchChunks patch_chunks) : simulation_(options(config, std::move(patch_chunks))) {
  nodes_.push_back(std::make_unique<Node>());
  nodes_[0]->name = config.name;
  simulation_.start_node(0);
}

Fleet::Node& Fleet::add(const std::string& name, WorkerConfig config) {
  auto node = std::make_unique<Node>();
  node->name = name;
  node->index = static_cast<NodeIndex>(nodes_.size());
  node->config = std::move(config);
  nodes_.push_back(std::move(node));
  restart(*nodes_.back());
  return *nodes_.back();
}

Fleet::Node& Fleet::join(const std::string& name, WorkerConfig config) {
  Node& node = add(name, std::move(config));
  EXPECT_TRUE(run_until([&] { return node.worker->joined(); })) << name;
  return node;
}

void Fleet::freeze_origin() { begin(FaultKind::kStall, *nodes_[0]); }
void Fleet::thaw_origin() { end(FaultKind::kStall, *nodes_[0]); }

void Fleet::restart(Node& node) {
  simulation_.start_node(node.index);
  node.worker = simulation_.worker(node.index);
}

void Fleet::kill(Node& node) {
  simulation_.stop_node(node.index, false);
  node.worker = nullptr;
}

void Fleet::begin(FaultKind kind, const Node& node) { simulation_.begin_fault(fault_of(kind, node.index)); }
void Fleet::end(FaultKind kind, const Node& node) { simulation_.end_fault(fault_of(kind, node.index)); }

namespace {

Fault block_of(NodeIndex node, bool refused, NodeIndex from) {
  Fault fault = fault_of(FaultKind::kBlock, node);
  fault.one_way = refused;
  fault.peer = from;
  return fault;
}

}  // namespace

void Fleet::block(Node& node, bool refused, const Node* from) {
  simulation_.begin_fault(block_of(node.index, refused, from == nullptr ? Fault::kEverybody : from->index));
}

void Fleet::unblock(Node& node, bool refused, const Node* from) {
  simulation_.end_fault(block_of(node.index, refused, from == nullptr ? Fault::kEverybody : from->index));
}

void Fleet::damage_chunks_of(Node& node) {
  Fault fault = fault_of(FaultKind::kCorrupt, node.index);
  fault.count = 1'000'000;
  simulation_.begin_fault(fault);
}

void Fleet::set_chunk_time(Node& node, Duration time) {
  Fault fault = fault_of(FaultKind::kThrottle, node.index);
  fault.rate = Rate{kChunkBytesMin / to_seconds(time)};
  simulation_.begin_fault(fault);
}

void Fleet::set_disk_rate(Node& node, Rate rate) {
  Fault fault = fault_of(FaultKind::kSlowDisk, node.index);
  fault.rate = rate;
  simulation_.begin_fault(fault);
}

void Fleet::grow_patches(std::uint32_t growths) {
  simulation_.options().patches.growths = growths;
  simulation_.options().patches.make_delay = growths == 0 ? kLatency : kGrowthTime * growths;
}

void Fleet::grow_versions(std::uint32_t growths) {
  simulation_.options().takeover.growths = growths;
  simulation_.options().takeover.lasts = kGrowthTime * growths;
}

void Fleet::publish(std::uint64_t version, std::uint32_t chunks) {
  simulation_.options().payload_bytes = bytes_of(chunks);
  simulation_.publish();
  EXPECT_EQ(origin().publications().latest(), Version{version});
}

bool Fleet::install(std::uint64_t version, std::uint32_t chunks) {
  publish(version, chunks);
  return run_until_installed(version);
}

bool Fleet::step(Instant until) {
  const bool happened = simulation_.step(until);
  if (!simulation_.violation()) return happened;
  ADD_FAILURE() << *simulation_.violation();
  return false;
}

void Fleet::run_for(Duration span) {
  const Instant until = now() + span;
  while (step(until)) {
  }
}

bool Fleet::run_until(const std::function<bool()>& done, Duration limit) {
  const Instant until = now() + limit;
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

const Member& Fleet::member(const std::string& name) {
  const auto& all = origin().members().all();
  return std::ranges::find_if(all, [&](const auto& m) { return m.second.name == name; })->second;
}

std::string Fleet::parent_of(const std::string& name) {
  const std::vector<PeerId> ancestors = ancestors_of(*origin().publications().latest_plan(), member(name).id, 0);
  return ancestors.front() == kOriginId ? nodes_[0]->name : origin().members().find(ancestors.front())->name;
}

std::size_t Fleet::deliveries_to(const std::string& name) const {
  return static_cast<std::size_t>(std::ranges::count_if(deliveries_, [&](const Arrival& d) { return d.to == name; }));
}

std::vector<PayloadId> Fleet::payloads_to(const std::string& name) const {
  std::vector<PayloadId> payloads;
  for (const Arrival& arrival : deliveries_) {
    const bool known = std::ranges::find(payloads, arrival.payload) != payloads.end();
    if (arrival.to == name && !known) payloads.push_back(arrival.payload);
  }
  return payloads;
}

}  // namespace weightcast::sim
