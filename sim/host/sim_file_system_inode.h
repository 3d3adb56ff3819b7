#pragma once

#include <algorithm>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "sim/host/sim_file_system.h"

/// The state of a SimFileSystem. Only its own .cpp files include this.
namespace weightcast::sim {

/// What happened to a file since it was last synced, in order.
struct SimFileSystem::Change {
  enum class Kind : std::uint8_t { kWrite, kResize };

  Kind kind = Kind::kWrite;
  std::uint64_t offset = 0;  ///< of a resize: the new size
  std::vector<std::byte> bytes;
};

/// A file, directory or link. A directory's entries and a file's bytes exist twice: as processes see them, and on the
/// platter.
struct SimFileSystem::Inode {
  FileInfo::Kind kind = FileInfo::Kind::kFile;
  std::uint64_t number = 0;
  std::uint64_t links = 0;
  std::int64_t modified_ns = 0;
  bool executable = false;

  // Shared with mappings. A file that grows while it is mapped leaves them with what they had.
  std::shared_ptr<std::vector<std::byte>> data = std::make_shared<std::vector<std::byte>>();
  std::vector<std::byte> durable;
  std::vector<Change> changes;
  std::vector<bool> written;    ///< by page: not a hole
  std::vector<bool> allocated;  ///< by page: takes space
  std::size_t pages = 0;        ///< allocated ones

  std::map<std::string, InodeRef> entries, durable_entries;
  Path target;

  std::uint64_t opens = 0;            ///< by the process, mappings included
  std::uint64_t opens_elsewhere = 0;  ///< by others
  const void* locked_by = nullptr;

  [[nodiscard]] std::uint64_t size_bytes() const { return kind == FileInfo::Kind::kFile ? data->size() : 0; }
};

/// One atomic change of names.
struct SimFileSystem::NameChange {
  struct Slot {
    InodeRef directory;
    std::string name;
    InodeRef before, after;
  };
  std::vector<Slot> slots;

  /// Whether a file system with a journal cannot have `later` without this.
  [[nodiscard]] bool is_before(const NameChange& later) const {
    const auto touches = [](const Slot& slot, const InodeRef& inode) {
      return inode && (slot.before == inode || slot.after == inode);
    };
    for (const Slot& mine : slots) {
      for (const Slot& theirs : later.slots) {
        if (mine.directory == theirs.directory && mine.name == theirs.name) return true;
        if (touches(theirs, mine.before) || touches(theirs, mine.after)) return true;
      }
    }
    return false;
  }
};

inline std::size_t pages_of(std::uint64_t bytes, std::size_t page_bytes) {
  return static_cast<std::size_t>((bytes + page_bytes - 1) / page_bytes);
}

/// Writes into `data`, which grows if it must.
inline void put(std::vector<std::byte>& data, std::uint64_t offset, Bytes bytes) {
  if (bytes.empty()) return;
  if (data.size() < offset + bytes.size()) data.resize(offset + bytes.size());
  std::ranges::copy(bytes, data.begin() + static_cast<std::ptrdiff_t>(offset));
}

}  // namespace weightcast::sim
