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

void WorldRun::begin(const Fault& fault) {
  if (fault.kind == FaultKind::kPublish) return publish();
  say("fault: " + to_text(fault));
  if (!fault.forever()) {
    lasting_.push_back(fault);
    clock_.at(clock_.now() + fault.lasts, [this, fault] { end(fault); });
  }
  if (cables_.network().begin(clock_.now(), fault)) return;
  for (NodeIndex i = fault.node; i < hosts_.size() && i <= fault.node_last; ++i) begin(*hosts_[i], fault);
}

void WorldRun::begin(Host& host, const Fault& fault) {
  switch (fault.kind) {
    case FaultKind::kKill:
    case FaultKind::kCrash:
    case FaultKind::kWipe:
      if (fault.changes_later == 0 || !host.runs()) return die(host, fault);
      return arm(host, fault);
    case FaultKind::kFailedCall:
      host.has_sound_disk = false;
      if (host.runs()) return arm(host, fault);
      host.starts_with = fault;
      return;
    case FaultKind::kLeave: return stop(host, fault.lasts);
    case FaultKind::kFullDisk:
      host.has_sound_disk = false;
      return host.disk->set_capacity(host.disk->used_bytes() + random_.below(options_.snapshot_bytes));
    case FaultKind::kDiskErrors: {
      FileFaults faults;
      faults.error = 0.02;
      faults.no_space = 0.01;
      faults.short_io = 0.2;
      host.has_sound_disk = false;
      host.disk_fails_until = std::max(host.disk_fails_until, clock_.now() + fault.lasts);
      return host.disk->set_faults(faults);
    }
    case FaultKind::kStalledDisk:
      host.stalled_until = std::max(host.stalled_until, clock_.now() + fault.lasts);
      if (!host.runs()) return;
      host.chunks->stall_until(host.stalled_until);
      host.loop->stall_until(host.stalled_until);
      return;
    case FaultKind::kRot: return rot(host);
    default: WC_CHECK(false);  // of cores alone
  }
}

void WorldRun::end(const Fault& fault) {
  const auto found = std::ranges::find(lasting_, fault);
  if (found == lasting_.end()) return;  // when all faults ended
  say("over: " + to_text(fault));
  lasting_.erase(found);
  if (cables_.network().end(clock_.now(), fault)) return;
  for (NodeIndex i = fault.node; i < hosts_.size() && i <= fault.node_last; ++i) {
    if (fault.kind == FaultKind::kFullDisk) hosts_[i]->disk->set_capacity(SimFileSystem::kUnlimited);
    if (fault.kind == FaultKind::kDiskErrors) hosts_[i]->disk->set_faults({});
  }
}

void WorldRun::rot(Host& host) {
  std::vector<std::filesystem::path> files;
  host.disk->observe([&](FileSystem& disk) {
    for (const char* folder : {"versions", "patches", "incoming", "records"}) {
      list_files(disk, kState / folder, files);
      if (options_.hosts[host.index].in_memory) list_files(disk, kVersionsInMemory / folder, files);
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
  say("all faults have ended");
  while (!lasting_.empty()) end(Fault(lasting_.back()));
  for (auto& host : hosts_) {
    host->stalled_until = {};
    host->disk_fails_until = std::min(host->disk_fails_until, clock_.now());
    if (host->runs()) {
      host->chunks->stall_until({});
      host->loop->stall_until({});
    }
    while (!host->readers.empty()) close_reader(*host, host->readers.front().number);
    if (host->ends_with) {
      Fault fault = *host->ends_with;
      fault.lasts = Duration(1);
      fault.again_after = 0;
      die(*host, fault);
    }
    host->starts_with.reset();
    start(*host);
  }
}

}  // namespace weightcast::sim
