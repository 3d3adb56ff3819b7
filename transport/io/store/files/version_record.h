#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/files/file_system.h"
#include "base/result.h"
#include "transport/core/manifest/chunk_set.h"
#include "transport/core/manifest/manifest.h"

namespace weightcast {

/// The form of a state directory, as its records tell it. See HACKING.md, "The form of state directories".
inline constexpr std::uint32_t kRecordForm = 5;

/// The digests of a payload's chunks, as far as they are known.
struct ChunkDigests {
  std::vector<ContentDigest> chunks;  ///< one per chunk of the payload
  ChunkSet parts;                     ///< whose digests are known
  std::uint32_t part_chunks = 0;

  explicit ChunkDigests(const Manifest& manifest);
  /// All are known: `digests` are those of all chunks.
  ChunkDigests(const Manifest& manifest, std::vector<ContentDigest> digests);
  /// `manifest` continues the one that this was made for.
  void grow(const Manifest& manifest);
  /// Errors: kCorrupt when `digests` is not what the manifest says of `part`.
  [[nodiscard]] Status put_part(const Manifest& manifest, std::uint32_t part, std::span<const ContentDigest> digests);
  [[nodiscard]] bool complete() const { return parts.complete(); }
  [[nodiscard]] bool knows(ChunkIndex chunk) const { return parts.contains(ChunkIndex{chunk.value / part_chunks}); }
  /// The digests of one part, known or not.
  [[nodiscard]] std::span<const ContentDigest> part(std::uint32_t part) const;
  /// Whole parts, from the first up to the first that is missing.
  [[nodiscard]] std::vector<ContentDigest> prefix() const;
};

/// What DIR/records/N says. The file is a log:
///
///   8 bytes    "wcrecord"
///   4 bytes    form of the file, little endian: 5
///   then entries, each
///     4 bytes    length of the body, little endian
///     16 bytes   XXH3-128 of the body
///     n bytes    body: a record.Entry
///
/// The first entry is the manifest. Digest parts follow as they arrive, then a mark once the version is durable. The
/// file appears with its manifest, by rename; later entries are appended. The log ends before the first entry that is
/// cut short: whatever it lacks is fetched or verified again.
struct VersionRecord {
  Manifest manifest;
  ChunkDigests digests;
  bool durable = false;
  /// Of one that was read: its first entry that is not whole begins here. What is appended behind that is never read.
  std::optional<std::uint64_t> torn_at = std::nullopt;
};

/// Writes a new record with the manifest and the known digests. Blocks, but does not sync: a payload's first chunk and
/// a version's installation wait for it, while the disk may be busy with the version before. A kill leaves the old file
/// or the new one, and perhaps one with ".tmp" at its end. Until append_durable_mark() has returned, a power cut may
/// leave no record, or one that is kCorrupt.
[[nodiscard]] Status write_record(FileSystem& files, const std::filesystem::path& path, const VersionRecord& record);
/// The same, but syncs the new record before it replaces the old one: a power cut leaves either.
[[nodiscard]] Status rewrite_record(FileSystem& files, const std::filesystem::path& path, const VersionRecord& record);
[[nodiscard]] Status append_digest_part(FileSystem& files, const std::filesystem::path& path, std::uint32_t part,
                                        std::span<const ContentDigest> digests);
/// Appends the mark and syncs the whole record. Only after the version's files and its name were synced.
[[nodiscard]] Status append_durable_mark(FileSystem& files, const std::filesystem::path& path);

/// Writes what a record says once more, and syncs it and its name. A sync of it may have failed while the process
/// before lived: what can be read is then perhaps in memory alone, and another sync says nothing.
[[nodiscard]] Status write_record_again(FileSystem& files, const std::filesystem::path& path);

/// Reads a record up to its first entry that is not whole. Errors: kCorrupt (no whole manifest), kUnsupported (another
/// release wrote it), kNotFound, kIo.
[[nodiscard]] Result<VersionRecord> read_record(FileSystem& files, const std::filesystem::path& path);

/// Takes an entry that is not whole off the file that `record` was read from, so that others may be appended.
[[nodiscard]] Status cut_torn_entry(FileSystem& files, const std::filesystem::path& path, VersionRecord& record);

}  // namespace weightcast
