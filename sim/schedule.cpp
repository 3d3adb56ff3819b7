#include "sim/schedule.h"

#include <algorithm>
#include <array>

#include "base/random.h"

namespace weightcast::sim {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

template <typename T, std::size_t N>
T one_of(Random& random, const std::array<T, N>& values) {
  return values[random.below(N)];
}

// What happens once in a while is named once, what is the heart of the matter more often.
constexpr std::array kKinds{FaultKind::kKill,     FaultKind::kKill,      FaultKind::kCrash,     FaultKind::kStall,
                            FaultKind::kThrottle, FaultKind::kPartition, FaultKind::kPartition, FaultKind::kReset,
                            FaultKind::kCorrupt,  FaultKind::kLoss,      FaultKind::kDelay,     FaultKind::kSlowDisk,
                            FaultKind::kFullDisk, FaultKind::kSkew,      FaultKind::kDrift,     FaultKind::kLeave,
                            FaultKind::kPublish};

void add_archive(SimOptions& options) {
  Random random(options.seed ^ 0x6172636869766521);
  if (!random.chance(0.3)) return;
  ArchiveOptions& archive = options.archive;
  archive.workers = static_cast<std::uint32_t>(random.between(1, options.workers));
  archive.rate = Rate::bits(1e6 * one_of(random, std::array{1.0, 20.0, 100.0, 1000.0}));
  archive.delay = random.duration(milliseconds(1), milliseconds(300));
  if (random.chance(0.4)) return;
  using ArchiveFault = ArchiveOptions::Fault;
  archive.fault = one_of(random, std::array{ArchiveFault::kLacks, ArchiveFault::kDiffers, ArchiveFault::kLies,
                                            ArchiveFault::kFails, ArchiveFault::kStalls, ArchiveFault::kUnranged});
  archive.fault_probability = random.chance(0.5) ? 1 : 0.2;
}

/// A fleet that is being upgraded: some nodes are of the release before.
void add_older_nodes(SimOptions& options) {
  Random random(options.seed ^ 0x7570677261646521);
  if (!random.chance(0.3)) return;
  for (NodeIndex node = 0; node <= options.workers; ++node) {
    if (random.chance(0.5)) options.nodes.older.insert(node);
  }
}

/// Drawn from sources of their own, like patches below: liars that are hard to find.
void add_quiet_liars(std::uint64_t seed, SimOptions& options) {
  Random drip_random(seed ^ 0x6472697073212121);
  if (drip_random.chance(0.15)) {
    LiarOptions& liar = options.liars.front();
    liar.lies.insert(Lie::kWithholds);
    liar.pace = drip_random.duration(milliseconds(200), seconds(3));
    liar.stripes_of = 0;
  }
  Random tail_random(seed ^ 0x7461696c73212121);
  if (tail_random.chance(0.15)) {
    LiarOptions& liar = options.liars.back();
    liar.lies.insert(Lie::kWithholds);
    liar.pace = Duration::zero();
    liar.tail_chunks = static_cast<std::uint32_t>(tail_random.between(1, 8));
  }
  // Several who lie in the same way, and accuse the same honest member.
  Random collusion_random(seed ^ 0x636f6c6c75646521);
  if (options.workers >= 6 && collusion_random.chance(0.15)) {
    NodeIndex victim = 0;
    const auto is_liar = [&](NodeIndex node) {
      return std::ranges::find(options.liars, node, &LiarOptions::node) != options.liars.end();
    };
    do {
      victim = static_cast<NodeIndex>(collusion_random.between(1, options.workers));
    } while (is_liar(victim));
    options.liars.front().lies.insert(Lie::kBlames);
    options.liars.front().accomplice_of = victim;
    while (options.liars.size() < std::max<std::size_t>(2, options.workers / 4)) {
      const auto node = static_cast<NodeIndex>(collusion_random.between(1, options.workers));
      if (node == victim || is_liar(node)) continue;
      options.liars.push_back(options.liars.front());
      options.liars.back().node = node;
    }
  }
}

/// Honest members whose uplinks are slow, and nobody has said so: no flag, and half of the time no probe before the
/// first version.
void add_slow_uplinks(std::uint64_t seed, SimOptions& options) {
  Random random(seed ^ 0x736c6f7775702121);
  if (!random.chance(0.2)) return;
  options.nodes.rates_configured = false;
  if (random.chance(0.5)) options.publish_at = milliseconds(50);
  const std::uint64_t nodes = random.between(1, std::max<std::uint64_t>(1, options.workers / 3));
  for (std::uint64_t i = 0; i < nodes; ++i) {
    const auto node = static_cast<NodeIndex>(random.between(1, options.workers));
    options.network.uplinks[node] = Rate::bits(1e3 * double(random.between(1000, 10'000)));
  }
}

}  // namespace

Fault random_fault(Random& random, std::uint32_t workers, Duration from, Duration until,
                   std::span<const FaultKind> kinds) {
  Fault fault;
  fault.kind = kinds[random.below(kinds.size())];
  fault.at = random.duration(from, until);
  // Short ones end before anyone has noticed, long ones after everyone has.
  fault.lasts = random.chance(0.5) ? random.duration(milliseconds(1), milliseconds(900))
                                   : random.duration(milliseconds(900), seconds(12));
  const bool may_hit_origin =
      fault.kind != FaultKind::kLeave && fault.kind != FaultKind::kWipe && fault.kind != FaultKind::kBlock;
  fault.node = may_hit_origin && random.chance(0.15) ? 0 : static_cast<NodeIndex>(random.between(1, workers));
  fault.node_last = fault.node;
  // Several at once: half of the relays, or a rack.
  if (fault.node != 0 && random.chance(0.2)) {
    fault.node_last = static_cast<NodeIndex>(random.between(fault.node, workers));
  }
  switch (fault.kind) {
    case FaultKind::kChoke:
    case FaultKind::kThrottle: fault.rate = Rate::bits(1e3 * double(random.between(500, 20'000))); break;
    case FaultKind::kPartition:
      fault.one_way = random.chance(0.3);
      if (random.chance(0.6)) fault.peer = static_cast<NodeIndex>(random.between(0, workers));
      if (fault.peer >= fault.node && fault.peer <= fault.node_last) fault.peer = Fault::kEverybody;
      break;
    case FaultKind::kBlock:
      fault.one_way = random.chance(0.5);
      if (random.chance(0.4)) fault.peer = static_cast<NodeIndex>(random.between(1, workers));
      break;
    case FaultKind::kCorrupt: fault.count = static_cast<std::uint32_t>(random.between(1, 4)); break;
    case FaultKind::kLoss: fault.probability = 0.001 * double(random.between(1, 200)); break;
    case FaultKind::kDelay: fault.by = random.duration(milliseconds(1), milliseconds(400)); break;
    case FaultKind::kSkew: fault.by = random.duration(milliseconds(1), seconds(8)); break;
    case FaultKind::kSlowDisk: fault.rate = Rate{1e6 * double(random.between(1, 20))}; break;
    case FaultKind::kDrift: fault.probability = 0.0001 * double(random.between(1, 100)); break;
    default: break;
  }
  switch (fault.kind) {
    case FaultKind::kReset:
    case FaultKind::kCorrupt:
    case FaultKind::kSkew:
    case FaultKind::kPublish:
    case FaultKind::kRot:
    case FaultKind::kFailedCall: fault.lasts = Duration::zero(); break;
    default: break;
  }
  if (fault.kind == FaultKind::kPublish) fault.node = fault.node_last = 0;
  return fault;
}

SimOptions random_schedule(std::uint64_t seed) {
  Random random(seed);
  SimOptions options;
  options.seed = seed;
  options.workers = static_cast<std::uint32_t>(random.between(1, 14));
  options.topology = one_of(random, std::array{Topology::kAuto, Topology::kStar, Topology::kChain, Topology::kTree,
                                               Topology::kStriped, Topology::kChain, Topology::kStriped});
  options.chunk_bytes = static_cast<std::uint32_t>(64 * kKiB << random.below(4));
  options.payload_bytes = random.between(1, 96) * 256 * kKiB - random.below(2) * random.below(100 * kKiB);
  options.network.origin_uplink = Rate::bits(1e6 * one_of(random, std::array{50.0, 100.0, 300.0, 1000.0}));
  options.network.worker_uplink = Rate::bits(1e6 * one_of(random, std::array{20.0, 100.0, 100.0, 300.0}));
  options.network.worker_downlink = Rate::bits(1e6 * one_of(random, std::array{50.0, 100.0, 300.0}));
  options.network.one_way_delay = random.duration(std::chrono::microseconds(50), milliseconds(60));
  options.network.jitter_max = random.chance(0.5) ? Duration::zero() : random.duration(Duration(1), milliseconds(20));
  options.network.loss_probability = random.chance(0.2) ? 0.01 : 0;
  options.network.in_flight_bytes_max = static_cast<std::uint32_t>(256 * kKiB << random.below(5));
  options.disk.finish_delay = random.chance(0.5) ? Duration::zero() : random.duration(Duration(1), milliseconds(300));
  if (random.chance(0.3)) options.disk.write_rate = Rate{1e6 * double(random.between(5, 200))};

  // Most of what goes wrong should do so while there is something to go wrong with.
  const double transfer_s = double(options.payload_bytes) / std::min(options.network.worker_uplink.bytes_per_s,
                                                                     options.network.origin_uplink.bytes_per_s);
  const Duration span = from_seconds(std::clamp(transfer_s * 2, 0.5, 15.0));
  const std::uint64_t faults = random.between(0, 6);
  std::uint32_t publications = 1;
  for (std::uint64_t i = 0; i < faults; ++i) {
    Fault fault = random_fault(random, options.workers, Duration::zero(), span, kKinds);
    if (fault.kind == FaultKind::kLeave) fault.lasts = Duration::zero();
    options.faults.push_back(fault);
    publications += fault.kind == FaultKind::kPublish ? 1 : 0;
  }
  // Drawn from a source of its own: what a seed meant before there were patches it means still, but for them.
  Random patch_random(seed ^ 0x7061746368657321);
  if (patch_random.chance(0.5)) {
    options.patches.enabled = true;
    options.patches.share = 0.001 * double(patch_random.between(1, 400));
    options.patches.make_delay = patch_random.duration(Duration(1), seconds(2));
    options.patches.useless_probability = patch_random.chance(0.3) ? 0.3 : 0;
    options.patches.unfit_probability = patch_random.chance(0.5) ? 0.2 : 0;
    for (std::uint64_t i = patch_random.between(1, 5); i > 0; --i) {
      options.faults.push_back(
          {.kind = FaultKind::kPublish, .at = patch_random.duration(Duration::zero(), span + seconds(5))});
      ++publications;
    }
  }
  // And downlinks that fall.
  Random choke_random(seed ^ 0x63686f6b65212121);
  if (choke_random.chance(0.3)) {
    Fault choke;
    choke.kind = FaultKind::kChoke;
    choke.at = choke_random.duration(Duration::zero(), span);
    choke.lasts = choke_random.duration(milliseconds(200), seconds(12));
    choke.node = static_cast<NodeIndex>(choke_random.between(1, options.workers));
    choke.node_last = choke_random.chance(0.7)
                          ? choke.node
                          : static_cast<NodeIndex>(choke_random.between(choke.node, options.workers));
    choke.rate = Rate::bits(1e3 * double(choke_random.between(500, 20'000)));
    options.faults.push_back(choke);
  }
  // And ports of workers that others cannot reach.
  Random block_random(seed ^ 0x626c6f636b656421);
  if (block_random.chance(0.25)) {
    Fault block;
    block.kind = FaultKind::kBlock;
    block.at = block_random.duration(Duration::zero(), span);
    block.lasts = block_random.chance(0.5) ? Duration::zero() : block_random.duration(milliseconds(200), seconds(20));
    block.one_way = block_random.chance(0.5);
    block.node = static_cast<NodeIndex>(block_random.between(1, options.workers));
    block.node_last = block_random.chance(0.6)
                          ? block.node
                          : static_cast<NodeIndex>(block_random.between(block.node, options.workers));
    if (block_random.chance(0.4)) block.peer = static_cast<NodeIndex>(block_random.between(1, options.workers));
    options.faults.push_back(block);
  }
  // The same again: patches that are sent while they are made.
  Random open_random(seed ^ 0x67726f7774682121);
  if (options.patches.enabled && open_random.chance(0.7)) {
    options.patches.growths = static_cast<std::uint32_t>(open_random.between(1, 12));
    options.patches.part_chunks = static_cast<std::uint32_t>(open_random.between(1, 9));
    options.patches.withdrawn_probability = open_random.chance(0.3) ? 0.3 : 0;
  }
  // And again: versions that are sent while they are taken over.
  Random takeover_random(seed ^ 0x74616b656f766572);
  if (takeover_random.chance(0.5)) {
    options.takeover.growths = static_cast<std::uint32_t>(takeover_random.between(1, 12));
    options.takeover.lasts = takeover_random.duration(Duration(1), seconds(2));
    options.takeover.part_chunks = static_cast<std::uint32_t>(takeover_random.between(1, 9));
    options.takeover.refused_probability = takeover_random.chance(0.3) ? 0.3 : 0;
  }
  // And again: packed payloads.
  Random packed_random(seed ^ 0x7061636b65642121);
  if (packed_random.chance(0.4)) {
    options.patches.packing = packed_random.chance(0.5) ? Packing::kAuto : Packing::kAlways;
    options.patches.packed_share = 0.001 * double(packed_random.between(300, 950));
    if (!options.patches.enabled) {
      options.patches.make_delay = packed_random.duration(Duration(1), seconds(2));
      options.patches.growths = static_cast<std::uint32_t>(packed_random.between(0, 12));
      options.patches.part_chunks = static_cast<std::uint32_t>(packed_random.between(1, 9));
      options.patches.useless_probability = packed_random.chance(0.3) ? 0.3 : 0;
      options.patches.unfit_probability = packed_random.chance(0.5) ? 0.2 : 0;
      options.patches.withdrawn_probability = packed_random.chance(0.3) ? 0.3 : 0;
    }
  }
  // And again: versions that are published by their patches.
  Random by_patch_random(seed ^ 0x6279706174636821);
  if (options.patches.enabled && by_patch_random.chance(0.5)) {
    options.takeover.by_patch_probability = by_patch_random.chance(0.5) ? 1 : 0.5;
  }
  // And again: nodes that are not configured as most are.
  Random node_random(seed ^ 0x6e6f646573212121);
  if (node_random.chance(0.4)) {
    options.nodes.rates_configured = node_random.chance(0.5);
    if (node_random.chance(0.4)) options.nodes.streams = static_cast<std::uint32_t>(node_random.between(2, 4));
    if (node_random.chance(0.3)) {
      options.nodes.leaves = static_cast<std::uint32_t>(node_random.between(1, options.workers));
    }
    options.nodes.versions_kept = static_cast<std::uint32_t>(node_random.between(1, 4));
    if (node_random.chance(0.3)) options.nodes.anchor_interval = static_cast<std::uint32_t>(node_random.between(1, 3));
  }
  // As slow as a star or a disk may be, several times over; and then what the core's own waits may take.
  double least_bytes_per_s =
      std::min({options.network.origin_uplink.bytes_per_s, options.network.worker_uplink.bytes_per_s,
                options.network.worker_downlink.bytes_per_s});
  if (options.disk.write_rate.limited()) {
    least_bytes_per_s = std::min(least_bytes_per_s, options.disk.write_rate.bytes_per_s);
  }
  const double slowest_s = double(options.payload_bytes) * options.workers / least_bytes_per_s;
  options.settle_max = seconds(60) + from_seconds(2 * publications * slowest_s);
  add_archive(options);
  add_older_nodes(options);
  return options;
}

SimOptions hostile_schedule(std::uint64_t seed) {
  SimOptions options = random_schedule(seed);
  Random random(seed ^ 0x686f7374696c6521);
  // Half of the worlds have liars and nothing else: only there can it be said whom to blame.
  const bool faults_too = random.chance(0.3);
  std::erase_if(options.faults, [&](const Fault& fault) { return fault.kind != FaultKind::kPublish && !faults_too; });
  options.workers = std::max<std::uint32_t>(options.workers, 4);
  options.nodes.leaves = std::min(options.nodes.leaves, options.workers / 2);
  for (std::uint64_t i = random.between(0, 4); i > 0; --i) {
    options.faults.push_back({.kind = FaultKind::kPublish, .at = random.duration(Duration::zero(), seconds(20))});
  }
  const std::uint64_t liars = random.between(1, std::max<std::uint64_t>(1, options.workers / 4));
  std::set<NodeIndex> nodes;
  while (nodes.size() < liars) nodes.insert(static_cast<NodeIndex>(random.between(1, options.workers)));
  const std::uint32_t victim = random.chance(0.3) ? static_cast<std::uint32_t>(random.between(1, options.workers)) : 0;
  for (const NodeIndex node : nodes) {
    LiarOptions liar;
    liar.node = node;
    do {
      liar.lies.insert(static_cast<Lie>(random.below(kWords<Lie>.size())));
    } while (random.chance(0.4));
    liar.share = random.chance(0.5) ? 1 : random.unit();
    liar.chunks_before = random.chance(0.5) ? 0 : static_cast<std::uint32_t>(random.below(40));
    if (random.chance(0.3)) liar.stripes_of = static_cast<std::uint32_t>(random.between(2, 4));
    if (random.chance(0.5)) liar.pace = random.duration(milliseconds(1), seconds(3));
    liar.accomplice_of = victim;
    options.liars.push_back(std::move(liar));
  }
  add_quiet_liars(seed, options);
  add_slow_uplinks(seed, options);
  return options;
}

std::uint64_t fresh_seed(Duration since_epoch) {
  return static_cast<std::uint64_t>(std::chrono::duration_cast<seconds>(since_epoch).count()) * kSeedsPerSecond;
}

}  // namespace weightcast::sim
