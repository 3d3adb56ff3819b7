#include <algorithm>

#include "sim/whole/world.h"

namespace weightcast::sim {
namespace {

constexpr Duration kFaultsFrom = std::chrono::milliseconds(50);
constexpr Duration kFaultsUntil = std::chrono::seconds(9);

Duration lasting(Random& random, HostFault::Kind kind) {
  using std::chrono::milliseconds;
  switch (kind) {
    case HostFault::Kind::kKill:
    case HostFault::Kind::kPowerCut:
    case HostFault::Kind::kStop:
    case HostFault::Kind::kWipe:
    case HostFault::Kind::kFreshRun: return random.duration(milliseconds(20), milliseconds(2500));
    case HostFault::Kind::kCorrupt:
    case HostFault::Kind::kDiskErrors:
    case HostFault::Kind::kNoSpace: return random.duration(milliseconds(100), milliseconds(3000));
    default: return random.duration(milliseconds(50), milliseconds(6000));
  }
}

/// What worlds had not always, drawn from a source of its own: a good part of the seeds mean what they have always
/// meant.
void add_more(std::uint64_t seed, WorldOptions& world) {
  using Kind = HostFault::Kind;
  using std::chrono::milliseconds;
  Random random(seed ^ 0x6d6f7265776f726c);
  if (random.chance(0.3)) return;
  const auto workers = static_cast<HostIndex>(world.hosts.size() - 1);
  if (random.chance(0.3)) world.files = static_cast<std::uint32_t>(random.between(2, 4));
  if (random.chance(0.3)) world.reshaped_share = 0.25;
  world.reuses_numbers = random.chance(0.3);
  for (HostIndex i = 1; i <= workers; ++i) {
    if (random.chance(0.2)) world.hosts[i].starts_at = random.duration(Duration(1), kFaultsUntil);
  }
  for (std::uint64_t i = random.below(8); i > 0; --i) {
    Reader reader;
    reader.host = static_cast<HostIndex>(random.between(random.chance(0.1) ? 0 : 1, workers));
    reader.at = random.duration(kFaultsFrom, kFaultsUntil);
    reader.lasts = random.duration(Duration(1), random.chance(0.5) ? milliseconds(300) : milliseconds(8000));
    world.readers.push_back(reader);
  }
  for (HostFault& fault : world.faults) {
    const bool ends = fault.kind == Kind::kKill || fault.kind == Kind::kPowerCut;
    if (ends && random.chance(0.4)) fault.again_after = random.between(1, random.chance(0.5) ? 20 : 100);
  }
  for (std::uint64_t i = random.chance(0.3) ? random.between(1, 4) : 0; i > 0; --i) {
    HostFault fault;
    fault.kind = Kind::kFailedCall;
    fault.host = static_cast<HostIndex>(random.below(workers + 1));
    fault.at = random.duration(kFaultsFrom, kFaultsUntil);
    fault.changes_later = random.between(1, random.chance(0.5) ? 40 : 400);
    world.faults.push_back(fault);
  }
  if (random.chance(0.1)) {
    HostFault blackout;
    blackout.kind = Kind::kBlackout;
    blackout.at = random.duration(kFaultsFrom, kFaultsUntil);
    blackout.lasts = lasting(random, Kind::kPowerCut);
    world.faults.push_back(blackout);
  }
}

/// The same for trainers that publish changes.
void add_sparse(std::uint64_t seed, WorldOptions& world) {
  Random random(seed ^ 0x7370617273652121);
  if (random.chance(0.4)) world.sparse_share = random.chance(0.5) ? 1 : 0.5;
}

/// The same, of another source: what joined the list later still.
void add_fresh_run(std::uint64_t seed, WorldOptions& world) {
  Random random(seed ^ 0x66726573682072);
  if (!random.chance(0.15)) return;
  HostFault fault;
  fault.kind = HostFault::Kind::kFreshRun;
  fault.at = random.duration(kFaultsFrom, kFaultsUntil);
  fault.lasts = lasting(random, fault.kind);
  if (random.chance(0.3)) fault.changes_later = random.between(1, 80);
  world.faults.push_back(fault);
}

/// The same for hosts with versions in memory.
void add_memory(std::uint64_t seed, WorldOptions& world) {
  Random random(seed ^ 0x6d656d6f727921);
  if (!random.chance(0.5)) return;
  for (HostOptions& host : world.hosts) host.in_memory = random.chance(0.5) && !host.single_copy;
}

/// The same for only copies in memory.
void add_single_copies_in_memory(std::uint64_t seed, WorldOptions& world) {
  Random random(seed ^ 0x6f6e65636f7079);
  if (!random.chance(0.5)) return;
  for (HostIndex i = 1; i < world.hosts.size(); ++i) {
    HostOptions& host = world.hosts[i];
    host.single_copy = host.single_copy || random.chance(0.2);
    if (host.single_copy) host.in_memory = random.chance(0.8);
  }
}

}  // namespace

WorldOptions random_world(std::uint64_t seed) {
  using Kind = HostFault::Kind;
  Random random(seed);
  WorldOptions world;
  world.seed = seed;
  const auto workers = static_cast<HostIndex>(random.between(2, random.chance(0.7) ? 4 : 8));
  world.snapshot_bytes = random.between(100, random.chance(0.8) ? 300 : 1000) * kKiB / 2 * 2;
  world.changed_share = random.chance(0.2) ? 0.9 : 0.002 + 0.1 * random.unit();
  constexpr Topology kTopologies[] = {Topology::kAuto, Topology::kChain, Topology::kStar, Topology::kTree,
                                      Topology::kStriped};
  world.topology = random.chance(0.5) ? Topology::kAuto : kTopologies[random.below(5)];
  constexpr Packing kPackings[] = {Packing::kAuto, Packing::kAlways, Packing::kNever};
  world.packing = kPackings[random.below(3)];
  for (HostIndex i = 0; i <= workers; ++i) {
    HostOptions host;
    host.uplink = Rate{1e6 * double(random.between(1, 30))};
    host.latency = random.duration(std::chrono::microseconds(50), std::chrono::milliseconds(20));
    constexpr std::chrono::milliseconds kDiskDelays[] = {std::chrono::milliseconds(1), std::chrono::milliseconds(20),
                                                         std::chrono::milliseconds(200)};
    host.disk_delay_max = kDiskDelays[random.below(3)];
    host.versions_kept = static_cast<std::uint32_t>(random.between(1, 3));
    if (i > 0) {
      host.single_copy = random.chance(0.2);
      host.standby = i > 1 && random.chance(0.1);
      host.leaf_only = random.chance(0.1);
      host.streams = static_cast<std::uint32_t>(random.between(1, 2));
    }
    world.hosts.push_back(host);
  }
  // Some trainers publish in bursts, some now and then.
  const bool bursts = random.chance(0.3);
  Duration at = std::chrono::milliseconds(random.between(10, 800));
  for (std::uint64_t i = 0, count = random.between(2, 8); i < count; ++i) {
    world.publish_at.push_back(at);
    at += random.duration(Duration(1), bursts ? std::chrono::milliseconds(150) : std::chrono::milliseconds(2500));
  }
  const std::uint64_t faults = random.chance(0.05) ? 0 : random.between(1, 10);
  for (std::uint64_t i = 0; i < faults; ++i) {
    HostFault fault;
    fault.kind = static_cast<Kind>(random.below(static_cast<std::uint64_t>(Kind::kCorrupt) + 1));
    if (random.chance(0.15)) fault.kind = Kind::kPowerCut;
    fault.host = static_cast<HostIndex>(random.below(workers + 1));
    fault.other = static_cast<HostIndex>((fault.host + 1 + random.below(workers)) % (workers + 1));
    if (fault.kind == Kind::kWipe && fault.host == 0) fault.host = 1;
    fault.at = random.duration(kFaultsFrom, kFaultsUntil);
    fault.lasts = lasting(random, fault.kind);
    if (random.chance(0.6)) fault.changes_later = random.between(1, 80);
    world.faults.push_back(fault);
  }
  add_more(seed, world);
  add_sparse(seed, world);
  add_fresh_run(seed, world);
  add_memory(seed, world);
  add_single_copies_in_memory(seed, world);
  world.calm_at = std::max(at, kFaultsUntil) + std::chrono::seconds(7);
  return world;
}

}  // namespace weightcast::sim
