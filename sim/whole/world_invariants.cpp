// What has to hold in every world, whatever goes wrong.
#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>

#include "sim/whole/world_run.h"
#include "transport/core/worker/worker_core.h"
#include "transport/io/log.h"

namespace weightcast::sim {
namespace {

// One chunk of each connection that a worker may have had to a parent since its disk fell behind, beyond the bound.
constexpr std::uint64_t kStoringSlackBytes = 12 * 4 * kKiB;

// Of versions of a few leaves, which the store reads a fifth of a second after they are installed.
constexpr Duration kRotFoundIn = std::chrono::seconds(5);

// The store tries each second to take what was refused from where complete versions lie.
constexpr Duration kTakenOutIn = std::chrono::seconds(3);

std::string difference(const FileDigests& expected, const FileDigests& found) {
  for (const auto& [name, digest] : expected) {
    if (!found.contains(name)) return name + " is missing";
    if (found.at(name) != digest) return name + " has other bytes";
  }
  for (const auto& [name, _] : found) {
    if (!expected.contains(name)) return name + " is not of it";
  }
  return "nothing";
}

std::filesystem::path versions_directory(FileSystem& disk) {
  return StoreLayout::versions_root_of(disk, kState).value_or(kState) / "versions";
}

}  // namespace

Version version_of(const std::filesystem::path& path) {
  return Version{std::strtoull(path.filename().c_str(), nullptr, 10)};
}

std::vector<Version> versions_in(FileSystem& disk) {
  std::vector<Version> found;
  for (const std::string& name : disk.list(versions_directory(disk)).value_or(std::vector<std::string>{})) {
    found.push_back(version_of(name));
  }
  return found;
}

SnapshotFiles read_files(FileSystem& disk, const std::filesystem::path& directory) {
  SnapshotFiles files;
  for (const std::string& name : disk.list(directory).value_or(std::vector<std::string>{})) {
    files[name] = read_file(disk, directory / name, 64 * kMiB).value_or("unreadable");
  }
  return files;
}

void WorldRun::check_step(Host& host) {
  const std::uint64_t storing = host.node->driver().storing_bytes();
  if (storing <= options_.storing_bytes_max) host.early_bytes = 0;
  // What waited in memory goes to the disk all at once, when the origin has said what it is.
  if (storing > options_.storing_bytes_max + kStoringSlackBytes + host.early_bytes) {
    violate(host, fmt::format("{} bytes are on their way to the disk, at most {} should be", storing,
                              options_.storing_bytes_max));
  }
  if (const auto* worker = dynamic_cast<const WorkerCore*>(&host.node->core())) {
    host.early_bytes = std::max<std::uint64_t>(host.early_bytes, worker->intake().early_bytes());
    // It may give a payload up for another, and take up the first again, between two calls of check_node().
    if (worker->receiving() != host.receiving) {
      host.receiving = worker->receiving();
      host.verified = 0;
    }
  }
  // Its files change where they are, and are lost if that ends in the middle.
  if (host.config.single_copy && host.node->store().versions().empty()) host.durable = {};
  if (host.disk->changes() == host.checked_change) return;
  host.checked_change = host.disk->changes();
  const RunVersion used = in_use(host.node->store());
  const Version current = host.node->store().current();
  if (const StoredVersion* stored = host.node->store().find(current); stored != nullptr && stored->durable) {
    host.durable = std::max(host.durable, used);
  }
  if (used != host_current_[host.index]) {
    host_current_[host.index] = used;
    if (const StoredVersion* stored = host.node->store().find(current)) {
      const PayloadId by = stored->manifest.id();
      ++(by.is_packed() ? result_.counts.packed : by.is_patch() ? result_.counts.patches : result_.counts.full);
    }
    if (options_.bug == PlantedBug::kForgottenBase) {
      std::vector<PayloadId> kept;
      for (const auto& [payload, holding] : host.node->core().holdings()) {
        if (payload.version >= current) kept.push_back(payload);
      }
      host.store->retain(kept);
    }
    result_.counts.hash = result_.counts.hash * 31 + used.second.value * 7 + host.index;
    check_all(host);
  }
}

void WorldRun::check_all(Host& host) {
  if (over()) return;
  // After a power cut `current` may name what was torn, until the next start has looked at it.
  if (host.runs() || !host.lost_power) check_disk(host);
  if (host.runs()) check_node(host);
}

void WorldRun::check_disk(Host& host) {
  host.disk->observe([&](FileSystem& disk) {
    const auto link = disk.read_link(kState / "current");
    if (link.has_value() && exists(disk, kState / "current"))
      check_version(host, disk, kState / "current", version_of(*link));
    if (host.config.single_copy) return;  // its files change in place, and `current` leads nowhere meanwhile
    const std::filesystem::path versions = versions_directory(disk);
    for (const std::string& name : disk.list(versions).value_or(std::vector<std::string>{})) {
      check_version(host, disk, versions / name, version_of(name));
    }
  });
}

void WorldRun::check_node(Host& host) {
  for (const auto& [payload, holding] : host.node->core().holdings()) {
    if (!holding.complete()) continue;
    const Store& store = host.node->store();
    const auto is_it = [payload](const auto& stored) { return stored.manifest.id() == payload; };
    const bool there =
        payload.is_full() ? store.find(payload.version) != nullptr : std::ranges::any_of(store.patches(), is_it);
    if (!there && std::ranges::none_of(store.partial(), is_it)) {
      violate(host, fmt::format("may be asked for {}, which its store does not have", to_string(payload)));
    }
  }
  const auto* worker = dynamic_cast<const WorkerCore*>(&host.node->core());
  if (worker == nullptr) return;
  const PayloadId receiving = worker->receiving();
  const std::uint64_t verified = worker->intake().chunks_verified();
  if (host.has_sound_disk && receiving != PayloadId{} && receiving == host.receiving && verified < host.verified) {
    violate(host, fmt::format("{} chunks of {} were verified, and now {} are", host.verified, to_string(receiving),
                              verified));
  }
  host.receiving = receiving;
  host.verified = verified;
}

void WorldRun::check_version(Host& host, FileSystem& disk, const std::filesystem::path& directory, Version version) {
  if (host.rotten.contains(version)) return;
  const auto expected = published_.find(version);
  if (expected == published_.end()) return violate(host, fmt::format("version {} was never published", version.value));
  const FileDigests found = digests_of(read_files(disk, directory));
  bool was_refused = false;
  for (const auto& [run, digests] : expected->second) {
    if (found != digests) continue;
    if (!refused_.contains({run, version})) return;
    was_refused = true;
  }
  if (was_refused) {
    const Instant works_since = std::max(host.disk_fails_until, host.stalled_until);
    if (host.disk_fails_until != Instant{} && clock_.now() - works_since <= kTakenOutIn) return;
    return violate(host, fmt::format("has version {}, which was refused", version.value));
  }
  if (host.rotten_somewhere) {
    // A step reads nothing but what it changes. The store soon finds by itself what has rotted beside that; nobody
    // looks for it while the host is down.
    if (!host.runs()) return;
    const auto seen = host.wrong_since.emplace(version, clock_.now()).first;
    if (clock_.now() - std::max(seen->second, host.stalled_until) <= kRotFoundIn) return;
  }
  violate(host, fmt::format("{} is not what was published as version {}: {}", directory.string(), version.value,
                            difference(expected->second.rbegin()->second, found)));
}

void WorldRun::violate(const Host& host, const std::string& what) {
  if (over()) return;
  verdict_.violate(clock_.now() - began_, host.config.name + ": " + what);
  log_info("VIOLATION {}", *verdict_.violation());
}

void WorldRun::say(std::string event) {
  const Duration at = clock_.now() - began_;
  log_info("{:.6f} {}", to_seconds(at), event);
  verdict_.remember(at, std::move(event));
}

}  // namespace weightcast::sim
