#pragma once

#include <memory>

#include "patch/snapshot/snapshot_digest.h"
#include "transport/core/manifest/chunk_set.h"
#include "transport/io/store/files/version_files.h"
#include "transport/io/store/files/version_record.h"

namespace weightcast {

// What recovery asks of bytes that it cannot trust. All block. Errors: those that leave it open.

/// How many threads look at so much.
[[nodiscard]] unsigned threads_for(std::uint64_t bytes, unsigned threads_max);

/// The chunks of a payload whose bytes match their digests.
[[nodiscard]] Result<ChunkSet> verify_chunks(const VersionRecord& record, VersionFiles& files, unsigned threads);

/// SHA-256 of each chunk of the stream that the files hold; the last one may be short.
[[nodiscard]] Result<std::vector<ContentDigest>> chunk_digests_of(VersionFiles& files, std::uint32_t chunk_bytes,
                                                                  unsigned threads);

/// Makes the chunk digests of a full payload of `files`, if the record lacks some: it was torn, or a bit of it has
/// changed. Blocks. Errors: kCorrupt (they are not those of the manifest), kIo.
[[nodiscard]] Status make_missing_digests(VersionRecord& record, VersionFiles& files, unsigned threads);

/// write_record_again(), where the disk may be full. False: it is, and the record stays as it is.
[[nodiscard]] Result<bool> write_record_if_room(FileSystem& files, const std::filesystem::path& path);

/// The leaves of what the files hold if that is the snapshot of that manifest; else null.
[[nodiscard]] Result<std::shared_ptr<const LeafSums>> matching_leaves(const Manifest& manifest, VersionFiles& files,
                                                                      unsigned threads);

/// Whether they do.
[[nodiscard]] Result<bool> snapshot_matches(const Manifest& manifest, VersionFiles& files, unsigned threads);

}  // namespace weightcast
