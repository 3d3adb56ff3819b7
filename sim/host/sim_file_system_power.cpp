// What a simulated disk keeps after a sync, a power cut and a restart, and what rots on it.
#include <algorithm>
#include <set>
#include <utility>

#include "sim/host/sim_file_system_inode.h"

namespace weightcast::sim {

void SimFileSystem::flip_bit(const Path& path, std::uint64_t offset, unsigned bit) {
  const Result<InodeRef> inode = find_existing(path, true, Op::kRead);
  WC_CHECK(inode.has_value() && offset < (*inode)->data->size());
  const auto mask = std::byte{1} << (bit % 8);
  (*(*inode)->data)[offset] ^= mask;
  if (offset < (*inode)->durable.size()) (*inode)->durable[offset] ^= mask;
  for (Change& change : (*inode)->changes) {
    if (offset >= change.offset && offset - change.offset < change.bytes.size()) {
      change.bytes[offset - change.offset] ^= mask;
    }
  }
}

void SimFileSystem::lose_writes(Inode& inode) {
  if (killed_ || faults_.lossy_sync == 0 || !random_.chance(faults_.lossy_sync)) return;
  std::erase_if(inode.changes, [](const Change& change) { return change.kind == Change::Kind::kWrite; });
  if (random_.chance(0.5)) return;
  auto left = std::make_shared<std::vector<std::byte>>(inode.durable);
  left->resize(inode.data->size());
  inode.data = std::move(left);
}

template <typename Picked>
void SimFileSystem::put_names(const Picked& picked) {
  std::vector<bool> goes(unsynced_names_.size());
  for (std::size_t i = goes.size(); i-- > 0;) {
    goes[i] = picked(i);
    for (std::size_t later = i + 1; later < goes.size() && !goes[i]; ++later) {
      goes[i] = goes[later] && unsynced_names_[i].is_before(unsynced_names_[later]);
    }
  }
  std::vector<NameChange> kept;
  for (std::size_t i = 0; i < goes.size(); ++i) {
    if (!goes[i]) {
      kept.push_back(std::move(unsynced_names_[i]));
      continue;
    }
    for (const NameChange::Slot& slot : unsynced_names_[i].slots) {
      if (slot.after) {
        slot.directory->durable_entries[slot.name] = slot.after;
      } else {
        slot.directory->durable_entries.erase(slot.name);
      }
    }
  }
  unsynced_names_ = std::move(kept);
}

void SimFileSystem::sync_names(const InodeRef& directory) {
  put_names([&](std::size_t i) {
    return std::ranges::any_of(unsynced_names_[i].slots, [&](const auto& slot) { return slot.directory == directory; });
  });
}

template <typename Visit>
void SimFileSystem::for_each_inode(const Visit& visit) const {
  std::set<const Inode*> seen;
  std::vector<InodeRef> left{root_};
  while (!left.empty()) {
    const InodeRef inode = std::move(left.back());
    left.pop_back();
    const bool first = seen.insert(inode.get()).second;
    visit(*inode, first);
    if (!first) continue;
    for (const auto& [_, entry] : inode->entries) left.push_back(entry);
  }
}

void SimFileSystem::keep_some_names() {
  enum class Way { kNone, kAll, kFirst, kAny };
  const auto way = static_cast<Way>(random_.below(4));
  const std::size_t first = unsynced_names_.empty() ? 0 : random_.below(unsynced_names_.size() + 1);
  put_names([&](std::size_t i) {
    switch (way) {
      case Way::kNone: return false;
      case Way::kAll: return true;
      case Way::kFirst: return i < first;
      case Way::kAny: return random_.chance(0.5);
    }
    return false;
  });
  unsynced_names_.clear();
}

void SimFileSystem::keep_some_bytes(Inode& inode) {
  enum class Way { kNone, kAll, kFirst, kAny };
  const auto way = static_cast<Way>(random_.below(4));
  const std::size_t first = random_.below(inode.changes.size() + 1);
  const std::size_t sector_bytes = random_.chance(0.5) ? 512 : 4096;
  const auto tear = [&](const Change& change) {
    const std::uint64_t end = change.offset + change.bytes.size();
    // The size may be there without the bytes.
    if (random_.chance(0.5) && inode.durable.size() < end) inode.durable.resize(end);
    for (std::uint64_t at = change.offset; at < end;) {
      const std::uint64_t next = std::min<std::uint64_t>(end, (at / sector_bytes + 1) * sector_bytes);
      if (random_.chance(0.5)) put(inode.durable, at, Bytes(change.bytes).subspan(at - change.offset, next - at));
      at = next;
    }
  };
  for (std::size_t i = 0; i < inode.changes.size(); ++i) {
    const Change& change = inode.changes[i];
    const bool torn = way == Way::kAny ? random_.below(3) == 0 : way == Way::kFirst && i == first;
    const bool stays =
        way == Way::kAll || (way == Way::kFirst && i < first) || (way == Way::kAny && random_.chance(0.5));
    if (change.kind == Change::Kind::kResize) {
      if (stays) inode.durable.resize(change.offset);
    } else if (torn) {
      tear(change);
    } else if (stays) {
      put(inode.durable, change.offset, change.bytes);
    }
  }
  inode.changes.clear();
}

void SimFileSystem::power_cut() {
  keep_some_names();
  if (options_.has_memory) root_->durable_entries.at(Path(kMemory).filename())->durable_entries.clear();
  for_each_inode([&](Inode& inode, bool first) {
    if (!first) return;
    inode.entries = inode.durable_entries;
    inode.opens_elsewhere = 0;
    if (inode.kind != FileInfo::Kind::kFile) return;
    keep_some_bytes(inode);
    inode.data = std::make_shared<std::vector<std::byte>>(inode.durable);
    // Pages that were set aside and not written are lost with the rest; a hole of now may have been read as zeros.
    const std::size_t pages = pages_of(inode.durable.size(), kPageBytes);
    inode.allocated.assign(pages, true);
    inode.written.assign(pages, true);
    inode.pages = pages;
  });
  restart();
}

void SimFileSystem::restart() {
  ++process_;
  killed_ = false;
  kill_at_.reset();
  fail_at_.reset();
  used_pages_ = 0;
  for_each_inode([&](Inode& inode, bool first) {
    if (first) {
      inode.opens = 0;
      inode.locked_by = nullptr;
      inode.links = 0;
      used_pages_ += inode.pages;
    }
    ++inode.links;
  });
}

}  // namespace weightcast::sim