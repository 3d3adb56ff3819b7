#pragma once

#include <memory>
#include <optional>
#include <unordered_map>
#include <utility>

#include "transport/io/store/files/patched_snapshot.h"
#include "transport/io/store/files/snapshot_check.h"
#include "transport/io/store/store.h"
#include "transport/io/store/store_recovery.h"

namespace weightcast {

struct Store::Incoming {
  explicit Incoming(RecoveredVersion from)
      : record(std::move(from.record)), files(std::move(from.files)), held(std::move(from.held)) {}

  VersionRecord record;
  FilesRef files;
  ChunkSet held;                                        // on disk
  std::unordered_map<ChunkIndex, BufferRef> unwritten;  // handed in, not on disk yet
  std::unique_ptr<SnapshotCheck> check;                 // of a full payload, from begin() on
  CompleteRef base;                                     // of a patch that needs one, from begin() on
  FilesRef target;                                      // of what is made beside, from begin() on; or the base's
  std::unique_ptr<PatchedSnapshot> applied;             // with that
  bool finishing = false;
  bool record_is_behind = false;       // a full disk refused a part or the end; touched by serial work alone
  std::optional<Instant> waits_since;  // for those who read the only copy
  bool discarded = false;

  [[nodiscard]] const Manifest& manifest() const { return record.manifest; }
  [[nodiscard]] PayloadId id() const { return record.manifest.id(); }
  [[nodiscard]] bool begun() const { return check || applied || base; }
  /// Bytes on disk, counted from the first without a gap.
  [[nodiscard]] std::uint64_t prefix_bytes() const {
    const auto gap = held.next_missing(ChunkIndex{0});
    return gap ? manifest().chunk_offset(*gap) : manifest().payload_bytes;
  }
};

}  // namespace weightcast
