// The inference engines of a world: they open what is current, and it must not change under them.
#include <fmt/format.h>

#include <algorithm>

#include "sim/whole/world_run.h"

namespace weightcast::sim {
namespace {

FileDigests read_digests(const Host::OpenVersion& open) {
  SnapshotFiles files;
  for (const auto& [name, file] : open.files) {
    const Bytes bytes = file->bytes();
    files[name].assign(reinterpret_cast<const char*>(bytes.data()), bytes.size());
  }
  return digests_of(files);
}

}  // namespace

void WorldRun::open_current(const Reader& reader) {
  Host& host = *hosts_[reader.host];
  if (!host.runs() || over()) return;
  const std::filesystem::path current = kState / "current";
  Host::OpenVersion open;
  host.disk->observe([&](FileSystem& disk) {
    const auto link = disk.read_link(current);
    if (!link.has_value() || !exists(disk, current)) return;
    open.version = version_of(*link);
    for (const std::string& name : disk.list(current).value_or(std::vector<std::string>{})) {
      open.files[name] = host.disk->open_elsewhere(current / name);
    }
  });
  if (open.files.empty()) return;
  open.number = ++host.readers_so_far;
  open.digests = read_digests(open);
  ++result_.counts.readers;
  say(host, fmt::format("reader {} opens version {}", open.number, open.version.value));
  clock_.at(clock_.now() + reader.lasts, [this, &host, number = open.number] { close_reader(host, number); });
  host.readers.push_back(std::move(open));
}

void WorldRun::close_reader(Host& host, std::uint64_t number) {
  const auto found = std::ranges::find(host.readers, number, &Host::OpenVersion::number);
  if (found == host.readers.end()) return;  // the power went meanwhile
  if (read_digests(*found) != found->digests && !found->rotten) {
    violate(host, fmt::format("what a reader had open of version {} has changed", found->version.value));
  }
  host.readers.erase(found);
}

}  // namespace weightcast::sim
