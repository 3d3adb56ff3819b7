// What goes wrong with the hosts of a world, and how it ends.
#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "sim/whole/world_run.h"
#include "transport/core/worker/worker_core.h"

namespace weightcast::sim {
namespace {

void list_files(FileSystem& disk, const std::filesystem::path& folder, std::vector<std::filesystem::path>& out) {
  const auto names = disk.list(folder);
  if (!names.has_value()) return;
  for (const std::string& name : *names) {
    const auto info = disk.link_info(folder / name);
    if (info.has_value() && info->is_directory()) list_files(disk, folder / name, out);
    if (info.has_value() && info->is_file()) out.push_back(folder / name);
  }
}

}  // namespace

void WorldRun::begin(const HostFault& fault) {
  using Kind = HostFault::Kind;
  Host& host = *hosts_[fault.host];
  const Instant now = clock_.now();
  const auto after = [this, &fault](std::function<void()> task) {
    clock_.at(clock_.now() + fault.lasts, std::move(task));
  };
  say(host, fmt::format("fault {}", static_cast<int>(fault.kind)));
  switch (fault.kind) {
    case Kind::kKill:
    case Kind::kPowerCut:
    case Kind::kWipe:
    case Kind::kFreshRun:
      if (fault.changes_later == 0 || !host.runs()) return die(host, fault);
      return arm(host, fault);
    case Kind::kBlackout:
      for (auto& each : hosts_) die(*each, fault);
      return;
    case Kind::kFailedCall:
      host.has_sound_disk = false;
      if (host.runs()) return arm(host, fault);
      host.starts_with = fault;
      return;
    case Kind::kStop: return stop(host, fault.lasts);
    case Kind::kNoSpace: {
      host.has_sound_disk = false;
      host.disk->set_capacity(host.disk->used_bytes() + random_.below(options_.snapshot_bytes));
      after([&host] { host.disk->set_capacity(SimFileSystem::kUnlimited); });
      break;
    }
    case Kind::kDiskErrors: {
      FileFaults faults;
      faults.error = 0.02;
      faults.no_space = 0.01;
      faults.short_io = 0.2;
      host.has_sound_disk = false;
      host.disk->set_faults(faults);
      after([&host] { host.disk->set_faults({}); });
      break;
    }
    case Kind::kStalledDisk:
      host.stalled_until = std::max(host.stalled_until, now + fault.lasts);
      if (!host.runs()) return;
      host.chunks->stall_until(host.stalled_until);
      host.loop->stall_until(host.stalled_until);
      break;
    case Kind::kBitRot: return rot(host);
    case Kind::kIsolate:
      for (HostIndex i = 0; i < hosts_.size(); ++i) {
        if (i != fault.host) cables_.partition(fault.host, i, now + fault.lasts);
      }
      break;
    case Kind::kPartition: cables_.partition(fault.host, fault.other, now + fault.lasts); break;
    case Kind::kReset: cables_.reset(fault.host, fault.other); break;
    case Kind::kSlowUplink:
      cables_.set_uplink(fault.host, Rate{options_.hosts[fault.host].uplink.bytes_per_s / 50});
      after([this, i = fault.host] { cables_.set_uplink(i, options_.hosts[i].uplink); });
      break;
    case Kind::kCorrupt:
      cables_.set_corruption(fault.host, 0.1);
      after([this, i = fault.host] { cables_.set_corruption(i, 0); });
      break;
  }
}

void WorldRun::rot(Host& host) {
  std::vector<std::filesystem::path> files;
  host.disk->observe([&](FileSystem& disk) {
    for (const char* folder : {"versions", "patches", "incoming", "records", "undo"})
      list_files(disk, kState / folder, files);
    if (options_.hosts[host.index].in_memory) {
      for (const char* folder : {"anchors", "arriving"}) list_files(disk, kState / folder, files);
      for (const char* folder : {"versions", "incoming", "undo"}) list_files(disk, kVersionsInMemory / folder, files);
    }
  });
  if (files.empty()) return;
  const std::filesystem::path victim = files[random_.below(files.size())];
  const std::uint64_t size =
      host.disk->observe([&](FileSystem& disk) { return disk.info(victim).value_or(FileInfo{}).size_bytes; });
  if (size == 0) return;
  say(host, "a bit changes in " + victim.string());
  host.disk->flip_bit(victim, random_.below(size), static_cast<unsigned>(random_.below(8)));
  host.rotten_somewhere = true;
  host.has_sound_disk = false;
  for (Host::OpenVersion& reader : host.readers) reader.rotten = true;
  host.disk->observe([&](FileSystem& disk) {
    for (const Version version : versions_in(disk)) host.rotten.insert(version);
  });
  host.rotten.insert(version_of(victim.parent_path()));  // of one that is arriving
  // An in-place update hashes what the patch leads to, and reads the files that it leaves as they are no more after.
  if (host.config.single_copy && host.runs()) {
    host.rotten.insert(dynamic_cast<const WorkerCore&>(host.node->core()).receiving().version);
  }
}

void WorldRun::calm() {
  calm_ = true;
  say(*hosts_[0], "all faults have ended");
  for (auto& host : hosts_) {
    host->disk->set_faults({});
    host->disk->set_capacity(SimFileSystem::kUnlimited);
    host->stalled_until = {};
    while (!host->readers.empty()) close_reader(*host, host->readers.front().number);
    if (host->ends_with) {
      HostFault fault = *host->ends_with;
      fault.lasts = Duration(1);
      fault.again_after = 0;
      die(*host, fault);
    }
    host->starts_with.reset();
    start(*host);
  }
}

}  // namespace weightcast::sim
