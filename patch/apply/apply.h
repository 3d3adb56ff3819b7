#pragma once

#include <memory>
#include <mutex>
#include <vector>

#include "patch/codec/codec.h"

namespace weightcast {

/// Whether a patch is for the snapshot that the caller holds. Errors: kInvalidArgument for another model's patch,
/// kWrongBase for another version's, or where the digests differ (an all-zero digest on either side says that it is not
/// known).
Status check_applies(const PatchIdentity& patch, const PatchIdentity& held);

/// Turns a base into a result, segment by segment, in any order and from several threads. The target holds anything
/// until finish() has succeeded. Invariant: each segment of the plan is applied at most once.
class PatchApplier {
 public:
  /// Base and target are two streams, which outlive the applier. Errors: kWrongBase where the base has another length,
  /// kInvalidArgument where the target has.
  static Result<PatchApplier> start(const PatchHead& head, const ByteSource& base, ByteTarget& target,
                                    const Kernels& kernels = best_kernels());

  /// Errors: those of decode_segment() and of the streams; kCorrupt for a segment that the head does not plan;
  /// kAlreadyExists for one that was applied (harmless). After another error than kAlreadyExists the segment may be
  /// given again.
  Status apply(const Segment& segment);

  [[nodiscard]] std::size_t missing() const;
  /// Whether the result is complete. Errors: kCorrupt where segments are missing, or where the digest of all results is
  /// not what the end says.
  Status finish(const PatchEnd& end) const;

 private:
  enum class State : std::uint8_t { kMissing, kTaken, kApplied };

  PatchApplier(std::vector<SegmentRange> plan, const ByteSource& base, ByteTarget& target, const Kernels& kernels);
  /// Of one segment. Kept from one to the next: memory that is new to the process costs more than decoding into it.
  struct Buffers {
    std::vector<std::byte> before, after;
  };
  Status make(const Segment& segment, Buffers& buffers);

  std::vector<SegmentRange> plan_;
  const ByteSource* base_;
  ByteTarget* target_;
  const Kernels* kernels_;
  std::unique_ptr<std::mutex> mutex_;
  std::vector<State> states_;
  std::vector<Buffers> idle_buffers_;
  std::vector<Digest> results_;
};

/// Applies a whole patch that lies in memory. `threads` segments at a time. Errors: those of PatchReader and
/// PatchApplier; kCorrupt where the patch is cut short.
Status apply_patch(Bytes patch, const ByteSource& base, ByteTarget& target, unsigned threads = 1,
                   const Kernels& kernels = best_kernels());

}  // namespace weightcast
