#pragma once

#include <cstdint>
#include <filesystem>
#include <span>
#include <string>
#include <vector>

#include "base/file_system.h"
#include "base/result.h"
#include "transport/core/chunk_set.h"
#include "transport/core/manifest.h"

namespace weightcast {

/// The digests of a payload's chunks, as far as they are known.
struct ChunkDigests {
  std::vector<Digest> chunks;  ///< one per chunk of the payload
  ChunkSet parts;              ///< whose digests are known
  std::uint32_t part_chunks = 0;

  explicit ChunkDigests(const Manifest& manifest);
  /// `manifest` continues the one that this was made for.
  void grow(const Manifest& manifest);
  /// Errors: kCorrupt when `digests` is not what the manifest says of `part`.
  [[nodiscard]] Status put_part(const Manifest& manifest, std::uint32_t part, std::span<const Digest> digests);
  [[nodiscard]] bool complete() const { return parts.complete(); }
  [[nodiscard]] bool knows(ChunkIndex chunk) const { return parts.contains(ChunkIndex{chunk.value / part_chunks}); }
  /// The digests of one part, known or not.
  [[nodiscard]] std::span<const Digest> part(std::uint32_t part) const;
  /// Whole parts, from the first up to the first that is missing.
  [[nodiscard]] std::vector<Digest> prefix() const;
};

/// What DIR/records/N says. The file is a log:
///
///   8 bytes    "wcrecord"
///   4 bytes    form of the file, little endian: 2
///   then entries, each
///     4 bytes    length of the body, little endian
///     16 bytes   XXH3-128 of the body
///     n bytes    body: a record.Entry
///
/// The first entry is the manifest; digest parts follow as they arrive, and a mark when the version is durable. The
/// file appears whole, by rename, with its manifest; entries are appended. An append that was cut short ends the log
/// where it begins: what follows is fetched or verified again.
struct VersionRecord {
  Manifest manifest;
  ChunkDigests digests;
  bool durable = false;
};

/// Writes a new record with the manifest and what digests are known. Blocks, but not for the disk: a payload's first
/// chunk and a version's installation wait for it, and the disk may be busy with the version before. A process that is
/// killed leaves the old file or the new one, and perhaps `path` with ".tmp" behind it. What a loss of power leaves is
/// no record (kCorrupt), as long as append_durable_mark() has not returned.
[[nodiscard]] Status write_record(FileSystem& files, const std::filesystem::path& path, const VersionRecord& record);
[[nodiscard]] Status append_digest_part(FileSystem& files, const std::filesystem::path& path, std::uint32_t part,
                                        std::span<const Digest> digests);
/// Appends the mark and syncs the record, all of it. Only after the version's files and its name were synced.
[[nodiscard]] Status append_durable_mark(FileSystem& files, const std::filesystem::path& path);

/// Reads a record as far as it is whole. Errors: kCorrupt when there is no whole manifest in it,
/// kUnsupported when another release wrote it, kIo.
[[nodiscard]] Result<VersionRecord> read_record(FileSystem& files, const std::filesystem::path& path);

}  // namespace weightcast
