#pragma once

#include <functional>
#include <optional>
#include <vector>

#include "patch/codec/head.h"
#include "patch/codec/segment_codec.h"
#include "patch/codec/stream.h"

namespace weightcast {

struct EncodeOptions {
  /// Segments encoded side by side. The bytes do not depend on it.
  unsigned threads = 1;  ///< 1: none is started; fewer where the machine allows no more
  const Kernels* kernels = &best_kernels();
  SparseForm sparse_form = SparseForm::kModelled;
};

/// Takes the next bytes of a patch, which are valid only during the call. An error ends the encoding.
using PatchSink = std::function<Status(Bytes)>;

struct PatchSummary {
  std::uint64_t patch_bytes = 0;
  std::uint64_t cells = 0;
  std::uint64_t changed_cells = 0;
  std::uint32_t segments = 0;
};

/// Writes a patch to `sink`: the head at once, then the segments in order, then the end. The sink runs on the caller's
/// thread. A slow sink holds the encoders back: at most 2 * threads segments wait for it, each with its buffers (four
/// bytes and a cell per changed cell). Errors: those of the sources and of the sink; kInvalidArgument (a source is not
/// as long as the head says).
Result<PatchSummary> encode_patch(const PatchHead& head, const ByteSource& base, const ByteSource& result,
                                  const EncodeOptions& options, const PatchSink& sink);

/// A segment's header, and its frame with the header in it.
struct EncodedSegment {
  SegmentHeader header;
  std::vector<std::byte> frame;
};
/// Makes the segment of a range. One thread at a time.
using SegmentMaker = std::function<Result<EncodedSegment>(const SegmentRange&)>;

/// The same of segments that makers make. `new_maker` is called once for each of `threads`, and by any thread; 1: none
/// is started. Errors: those of the makers and of the sink.
Result<PatchSummary> write_patch(const PatchHead& head, unsigned threads,
                                 const std::function<SegmentMaker()>& new_maker, const PatchSink& sink);

/// A segment that owns its bytes.
class OwnedSegment {
 public:
  OwnedSegment(SegmentHeader header, std::vector<std::byte> frame)
      : header_(std::move(header)), frame_(std::move(frame)) {}
  [[nodiscard]] Segment view() const { return {header_, Bytes(frame_).subspan(kSegmentHeaderBytes)}; }
  [[nodiscard]] const SegmentHeader& header() const { return header_; }

 private:
  SegmentHeader header_;
  std::vector<std::byte> frame_;
};

/// Reads a patch as its bytes arrive, and returns segments as they become complete. Pure: no I/O, no clock.
/// Invariant: holds the bytes of at most one incomplete frame. After an error, every call returns that error.
class PatchReader {
 public:
  /// Takes bytes until a frame is complete, and returns how many it took. The caller polls, then passes the rest.
  /// Errors: those of read_head(), peek_segment(), read_segment(), read_end(); kCorrupt (bytes after the end, or a
  /// segment that the head does not plan).
  Result<std::size_t> handle_bytes(Bytes bytes);

  /// The segment that has become complete. Each is returned once.
  [[nodiscard]] std::optional<OwnedSegment> poll_segment();

  /// Set once the head is complete.
  [[nodiscard]] const PatchHead* head() const { return head_ ? &*head_ : nullptr; }
  /// Set once the end is complete: nothing may follow.
  [[nodiscard]] const PatchEnd* end() const { return end_ ? &*end_ : nullptr; }

 private:
  Result<std::size_t> frame_bytes() const;
  Status handle_frame();

  std::vector<std::byte> buffer_;
  std::optional<Error> failed_;
  std::optional<PatchHead> head_;
  std::vector<SegmentRange> plan_;
  std::optional<OwnedSegment> segment_;
  std::optional<PatchEnd> end_;
};

}  // namespace weightcast
