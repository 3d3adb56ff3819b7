#include "sim/disk.h"

#include <algorithm>

namespace weightcast::sim {

Disk::Partial& Disk::begin(PayloadId payload, std::uint32_t chunks, std::uint32_t parts) {
  Partial* there = partial_.find(payload);
  if (there != nullptr && !there->open) return *there;
  partial_.erase(payload);
  return *partial_.emplace(payload, {ChunkSet(chunks), std::vector<bool>(parts), false, 0, {}}).first;
}

void Disk::discard_open() {
  std::vector<PayloadId> open;
  for (const auto& [payload, partial] : partial_) {
    if (partial.open) open.push_back(payload);
  }
  for (const PayloadId payload : open) partial_.erase(payload);
}

Instant Disk::write(Instant now, std::uint32_t bytes) {
  if (!rate_.limited()) return now;
  free_at_ = std::max(now, free_at_) + from_seconds(bytes / rate_.bytes_per_s);
  return free_at_;
}

void Disk::handle_written(Instant now, Partial& partial, ChunkIndex chunk) const {
  partial.written.insert(chunk);
  while (!partial.unsynced.empty() && partial.unsynced.front().first + sync_delay_ <= now) partial.unsynced.pop_front();
  partial.unsynced.push_back({now, chunk});
}

void Disk::finish(Instant now, PayloadId payload) {
  finished_[payload.version] = {now, payload};
  // Kept until it is synced, for a crash may yet undo the version.
  partial_.erase_if([&](PayloadId kept) { return kept.version < payload.version && holds(kept.version); });
}

void Disk::crash(Instant now) {
  std::erase_if(finished_, [&](const auto& f) { return f.second.at + sync_delay_ > now; });
  partial_.erase_if([&](PayloadId kept) { return holds(kept.version); });
  for (auto& [version, partial] : partial_) {
    for (const auto& [at, chunk] : partial.unsynced) {
      if (at + sync_delay_ > now) partial.written.erase(chunk);
    }
    partial.unsynced.clear();
  }
}

}  // namespace weightcast::sim
