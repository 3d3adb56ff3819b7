#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <map>
#include <optional>
#include <vector>

#include "base/time.h"
#include "transport/archive/archive_index.h"
#include "transport/archive/node_log.h"
#include "transport/archive/object_store.h"

namespace weightcast {

struct ArchiveOptions {
  std::filesystem::path state;  ///< of the node
  std::uint64_t every = 16;     ///< versions from one that is whole to the next
  unsigned connections = 4;
  /// How long a new version waits for the patch that leads to it before it counts as one without.
  Duration patch_grace{};
  std::uint64_t object_bytes = kObjectBytes;  ///< of a new archive
  /// Told of each payload how much of it is there; on any thread. May be null.
  std::function<void(std::uint64_t done, std::uint64_t total)> on_progress = nullptr;
};

/// Copies a node's log to an archive, payload by payload, oldest first. One process at a time writes to an archive.
/// Each chunk is checked before it is sent. A process that dies leaves objects that the next one does not send again,
/// and an index that names nothing that is missing.
class Archiver {
 public:
  /// Reads the index. `files` and `objects` outlive this. Errors: those of parse_index() and of the objects.
  [[nodiscard]] static Result<Archiver> open(FileSystem& files, ObjectStore& objects, ArchiveOptions options);

  struct Archived {
    ArchivedPayload payload;
    std::uint64_t sent_bytes = 0;  ///< the rest was there
  };
  /// Archives what comes next, and writes the index. Nothing if the archive has all that counts at `now`. Blocks.
  /// Errors: kInvalidArgument (the archive is of another run or model), kTooLarge (it is full), kCorrupt (the node's
  /// bytes are not those that were published), those of read_node_log() and of the objects.
  [[nodiscard]] Result<std::optional<Archived>> archive_next(Instant now);

  [[nodiscard]] const ArchiveIndex& index() const { return index_; }

 private:
  Archiver(FileSystem& files, ObjectStore& objects, ArchiveOptions options)
      : files_(&files), objects_(&objects), options_(std::move(options)) {}

  [[nodiscard]] Result<std::optional<Archived>> archive_once(Instant now);
  [[nodiscard]] Status check_run(const NodePayload& payload) const;
  /// Of the chunks of a whole version whose record has none. Errors: kCorrupt (its bytes are not those published).
  [[nodiscard]] Result<std::vector<ContentDigest>> digests_of(const HeldPayload& held, const NodePayload& payload,
                                                              std::uint32_t chunk_bytes) const;
  [[nodiscard]] Result<Archived> send(const NodePayload& payload);

  FileSystem* files_;
  ObjectStore* objects_;
  ArchiveOptions options_;
  ArchiveIndex index_;
  std::map<Version, Instant> first_seen_;  // whole versions
};

}  // namespace weightcast
