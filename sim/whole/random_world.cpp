#include <algorithm>
#include <array>

#include "sim/schedule.h"
#include "sim/whole/world.h"

namespace weightcast::sim {
namespace {

using std::chrono::microseconds;
using std::chrono::milliseconds;

constexpr Duration kFaultsFrom = milliseconds(50);
constexpr Duration kFaultsUntil = std::chrono::seconds(9);

// What happens once in a while is named once, what is the heart of the matter more often.
constexpr std::array kKinds{
    FaultKind::kKill,        FaultKind::kKill,      FaultKind::kCrash,      FaultKind::kCrash, FaultKind::kCrash,
    FaultKind::kLeave,       FaultKind::kWipe,      FaultKind::kWipe,       FaultKind::kRot,   FaultKind::kRot,
    FaultKind::kFailedCall,  FaultKind::kFullDisk,  FaultKind::kDiskErrors, FaultKind::kBlock, FaultKind::kReset,
    FaultKind::kStalledDisk, FaultKind::kPartition, FaultKind::kPartition,  FaultKind::kChoke, FaultKind::kThrottle,
    FaultKind::kCorrupt,     FaultKind::kLoss,      FaultKind::kDelay};

Fault draw_fault(Random& random, NodeIndex workers) {
  Fault fault = random_fault(random, workers, kFaultsFrom, kFaultsUntil, kKinds);
  const bool dies = fault.kind == FaultKind::kKill || fault.kind == FaultKind::kCrash;
  const bool is_wipe = fault.kind == FaultKind::kWipe;
  // The origin stops, too, and the trainer begins another run.
  if ((is_wipe || fault.kind == FaultKind::kLeave) && random.chance(0.3)) fault.node = fault.node_last = 0;
  if (fault.kind == FaultKind::kCrash && random.chance(0.1)) {
    fault.node = 0;
    fault.node_last = workers;
  }
  // Most processes die in the middle of what they change, and some do so again when they start.
  if ((dies || is_wipe) && random.chance(0.6)) fault.changes_later = random.between(1, 80);
  if (dies && random.chance(0.3)) fault.again_after = random.between(1, random.chance(0.5) ? 20 : 100);
  if (fault.kind == FaultKind::kFailedCall) fault.changes_later = random.between(1, random.chance(0.5) ? 40 : 400);
  return fault;
}

HostOptions draw_host(Random& random, NodeIndex index, bool some_in_memory) {
  HostOptions host;
  host.uplink = Rate{1e6 * double(random.between(1, 30))};
  host.delay = random.duration(microseconds(25), milliseconds(10));
  constexpr milliseconds kDiskDelays[] = {milliseconds(1), milliseconds(20), milliseconds(200)};
  host.disk_delay_max = kDiskDelays[random.below(3)];
  host.versions_kept = static_cast<std::uint32_t>(random.between(1, 3));
  host.in_memory = some_in_memory && random.chance(0.5);
  if (index == 0) return host;
  host.single_copy = random.chance(0.25);
  host.standby = index > 1 && random.chance(0.1);
  host.leaf_only = random.chance(0.1);
  host.streams = static_cast<std::uint32_t>(random.between(1, 2));
  if (random.chance(0.15)) host.starts_at = random.duration(Duration(1), kFaultsUntil);
  return host;
}

}  // namespace

WorldOptions random_world(std::uint64_t seed) {
  Random random(seed);
  WorldOptions world;
  world.seed = seed;
  const auto workers = static_cast<NodeIndex>(random.between(2, random.chance(0.7) ? 4 : 8));
  world.snapshot_bytes = random.between(100, random.chance(0.8) ? 300 : 1000) * kKiB / 2 * 2;
  if (random.chance(0.2)) world.files = static_cast<std::uint32_t>(random.between(2, 4));
  world.changed_share = random.chance(0.2) ? 0.9 : 0.002 + 0.1 * random.unit();
  if (random.chance(0.4)) world.sparse_share = random.chance(0.5) ? 1 : 0.5;
  if (random.chance(0.2)) world.reshaped_share = 0.25;
  world.reuses_numbers = random.chance(0.2);
  constexpr Topology kTopologies[] = {Topology::kAuto, Topology::kChain, Topology::kStar, Topology::kTree,
                                      Topology::kStriped};
  world.topology = random.chance(0.5) ? Topology::kAuto : kTopologies[random.below(5)];
  constexpr Packing kPackings[] = {Packing::kAuto, Packing::kAlways, Packing::kNever};
  world.packing = kPackings[random.below(3)];
  const bool some_in_memory = random.chance(0.5);
  for (NodeIndex i = 0; i <= workers; ++i) world.hosts.push_back(draw_host(random, i, some_in_memory));
  world.network.jitter_max = random.duration(Duration(1), milliseconds(5));
  // Some trainers publish in bursts, some now and then.
  const bool bursts = random.chance(0.3);
  Duration at = milliseconds(random.between(10, 800));
  for (std::uint64_t i = random.between(2, 8); i > 0; --i) {
    world.faults.push_back({.kind = FaultKind::kPublish, .at = at});
    at += random.duration(Duration(1), bursts ? milliseconds(150) : milliseconds(2500));
  }
  for (std::uint64_t i = random.chance(0.05) ? 0 : random.between(1, 10); i > 0; --i) {
    world.faults.push_back(draw_fault(random, workers));
  }
  for (std::uint64_t i = random.chance(0.7) ? random.below(8) : 0; i > 0; --i) {
    Reader reader;
    reader.host = static_cast<NodeIndex>(random.between(random.chance(0.1) ? 0 : 1, workers));
    reader.at = random.duration(kFaultsFrom, kFaultsUntil);
    reader.lasts = random.duration(Duration(1), random.chance(0.5) ? milliseconds(300) : milliseconds(8000));
    world.readers.push_back(reader);
  }
  world.calm_at = std::max(at, kFaultsUntil) + std::chrono::seconds(7);
  return world;
}

}  // namespace weightcast::sim
