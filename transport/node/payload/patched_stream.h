#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <vector>

#include "base/result.h"
#include "patch/codec/codec.h"
#include "patch/codec/segment_codec.h"
#include "transport/io/store/files/version_files.h"
#include "transport/io/store/files/version_record.h"

namespace weightcast {

/// Turns the bytes of a patch's base into those of its result while they pass, in order: nothing but the segment at
/// hand is held. Each chunk of the patch is checked against its digest before a byte of it counts. One thread at a
/// time.
class PatchedStream {
 public:
  using Sink = std::function<Status(Bytes)>;

  /// `record` is that of the patch, with all chunk digests; `payload` are its files; `base_digest` is that of its base.
  /// The result has as many bytes as the base. Errors: kCorrupt (digests are missing).
  [[nodiscard]] static Result<std::unique_ptr<PatchedStream>> make(VersionRecord record, FilesRef payload,
                                                                   const Checksum& base_digest,
                                                                   std::uint64_t stream_bytes);

  /// The next bytes of the base; `result` gets those that follow from them. Errors: kCorrupt (the patch is damaged),
  /// kWrongBase (these are not the base's bytes), kIo; those of `result`.
  [[nodiscard]] Status push(Bytes base, const Sink& result);
  /// The base has ended. Errors: kCorrupt (the patch has not).
  [[nodiscard]] Status finish();

 private:
  PatchedStream(VersionRecord record, FilesRef payload, PatchIdentity identity, std::uint64_t stream_bytes)
      : record_(std::move(record)),
        payload_(std::move(payload)),
        identity_(std::move(identity)),
        stream_bytes_(stream_bytes) {}

  /// Reads on until a segment is complete, or the patch is.
  Status read_on();
  Status read_chunk();
  Status begin_segment();

  const VersionRecord record_;
  const FilesRef payload_;
  const PatchIdentity identity_;
  const std::uint64_t stream_bytes_;
  PatchReader reader_;
  bool head_checked_ = false;
  std::uint32_t next_chunk_ = 0;
  std::vector<std::byte> chunk_;
  std::size_t chunk_used_ = 0;
  std::optional<OwnedSegment> segment_;    // at hand; what the decoder reads
  std::optional<SegmentDecoder> decoder_;  // of it
  std::uint32_t segment_left_ = 0;         // of its bytes
  std::uint64_t done_bytes_ = 0;           // of the stream
  std::vector<std::byte> cells_;           // that are not decoded yet: less than a cell between two calls
};

}  // namespace weightcast
