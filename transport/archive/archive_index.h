#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/ids.h"
#include "base/result.h"
#include "base/units.h"
#include "patch/snapshot/file_table.h"

namespace weightcast {

/// An archive holds versions of one run, as a node's log does: some whole, and patches that lead on from these. All of
/// it is objects, whose names begin with the run:
///
///   index.json                              what follows, as JSON; written last, so it names nothing that is missing
///   RUN-000000000008.record                 the record of version 8 (version_record.h), with the origin's signature
///   RUN-000000000008.digests                SHA-256 of each chunk of its snapshot stream, 32 bytes each
///   RUN-000000000008.00000, .00001, ...     the snapshot stream, object_bytes in each but the last
///   RUN-000000000009-000000000008.record    the record of the patch from version 8 to 9, with its chunks' digests
///   RUN-000000000009-000000000008.00000 ... the patch
///
/// The index says where to look, and proves nothing: records and digests do.
inline constexpr const char* kIndexObject = "index.json";
inline constexpr std::uint32_t kIndexForm = 1;
inline constexpr std::uint64_t kIndexBytesMax = 64 * kMiB;
inline constexpr std::uint64_t kRecordBytesMax = kGiB;
inline constexpr std::size_t kArchivedMax = 200'000;
/// Chunks divide it. An interrupted transfer to the archive loses as much, and each connection holds as much.
inline constexpr std::uint64_t kObjectBytes = 32 * kMiB;
inline constexpr std::uint64_t kObjectBytesMax = kGiB;

/// A version that is there whole, or a patch.
struct ArchivedPayload {
  PayloadId id{};                 ///< never packed
  std::uint64_t bytes = 0;        ///< of the snapshot stream, or of the patch
  std::uint32_t chunk_bytes = 0;  ///< that its digests are over
  std::string files;              ///< files_key() of the snapshot

  bool operator==(const ArchivedPayload&) const = default;
};

struct ArchiveIndex {
  RunId run{};
  std::string model_id;
  std::uint64_t object_bytes = kObjectBytes;
  std::vector<ArchivedPayload> payloads;  ///< in the order in which they were archived

  bool operator==(const ArchiveIndex&) const = default;
};

/// Equal for equal files, in names, sizes, modes and order: a patch leads on where these stay the same.
[[nodiscard]] std::string files_key(const std::vector<SnapshotFile>& files);

[[nodiscard]] std::string to_json(const ArchiveIndex& index);
/// Errors: kCorrupt (no such index, or out of its limits), kUnsupported (another release wrote it).
[[nodiscard]] Result<ArchiveIndex> parse_index(std::string_view json);

[[nodiscard]] std::string record_object(RunId run, PayloadId payload);
[[nodiscard]] std::string digests_object(RunId run, PayloadId payload);
[[nodiscard]] std::string data_object(RunId run, PayloadId payload, std::uint64_t number);

}  // namespace weightcast
