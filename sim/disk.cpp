#include "sim/disk.h"

#include <algorithm>

namespace weightcast::sim {

Disk::Partial& Disk::begin(Version version, std::uint32_t chunks, std::uint32_t parts) {
  const auto [found, added] = partial_.try_emplace(version);
  if (added) found->second = {ChunkSet(chunks), ChunkSet(chunks), std::vector<bool>(parts), {}};
  return found->second;
}

Disk::Partial* Disk::find(Version version) {
  const auto found = partial_.find(version);
  return found == partial_.end() ? nullptr : &found->second;
}

Instant Disk::write(Instant now, std::uint32_t bytes) {
  if (!rate_.limited()) return now;
  free_at_ = std::max(now, free_at_) + from_seconds(bytes / rate_.bytes_per_s);
  return free_at_;
}

void Disk::handle_written(Instant now, Partial& partial, ChunkIndex chunk, bool damaged) const {
  partial.written.insert(chunk);
  if (damaged) partial.damaged.insert(chunk);
  while (!partial.unsynced.empty() && partial.unsynced.front().first + sync_delay_ <= now) partial.unsynced.pop_front();
  partial.unsynced.push_back({now, chunk});
}

void Disk::finish(Instant now, Version version) {
  finished_[version] = now;
  // Kept until it is synced, for a crash may yet undo the version.
  std::erase_if(partial_, [&](const auto& p) { return p.first < version && holds(p.first); });
}

void Disk::crash(Instant now) {
  std::erase_if(finished_, [&](const auto& f) { return f.second + sync_delay_ > now; });
  std::erase_if(partial_, [&](const auto& p) { return holds(p.first); });
  for (auto& [version, partial] : partial_) {
    for (const auto& [at, chunk] : partial.unsynced) {
      if (at + sync_delay_ <= now) continue;
      partial.written.erase(chunk);
      partial.damaged.erase(chunk);
    }
    partial.unsynced.clear();
  }
}

}  // namespace weightcast::sim
