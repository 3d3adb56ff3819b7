#pragma once

#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <vector>

#include "patch/apply/leaf_digests.h"
#include "patch/codec/codec.h"
#include "patch/snapshot/file_table.h"
#include "patch/snapshot/snapshot_digest.h"

namespace weightcast {

/// Whether a patch is for the snapshot that the caller holds. Errors: kInvalidArgument for another model's patch,
/// kWrongBase for another version's, or where the digests differ (an all-zero digest on either side says that it is not
/// known).
[[nodiscard]] Status check_applies(const PatchIdentity& patch, const PatchIdentity& held);

/// Whether a patch's head is what `wanted` says, for a base and a result of these sizes. Errors: kCorrupt where it
/// leads elsewhere, kWrongBase where it is for another base.
[[nodiscard]] Status check_head(const PatchHead& head, const PatchIdentity& wanted, std::uint64_t base_bytes,
                                std::uint64_t result_bytes);

/// Where a patch's old bytes come from and where its new ones go. Called by the threads that apply, for ranges that do
/// not overlap.
class ApplyStreams {
 public:
  virtual ~ApplyStreams() = default;
  /// Fills `cells` with the base's bytes from `offset` on. Errors: kWrongBase where they cannot be read.
  [[nodiscard]] virtual Status read_base(std::uint64_t offset, MutableBytes cells) = 0;
  /// The result holds `after` from `offset` on. `before`: the old cells, where ApplyOptions::keeps_before is set and
  /// the range has a base; else empty. Errors: those of the medium.
  [[nodiscard]] virtual Status write_result(std::uint64_t offset, Bytes before, Bytes after) = 0;
  /// Reads back what write_result() was given.
  [[nodiscard]] virtual Status read_result(std::uint64_t offset, MutableBytes cells) = 0;
};

struct ApplyOptions {
  /// What one write_result() is given at most: small enough to stay in a core's cache from the read to the write. A
  /// window ends at a multiple of it in the result's file. A power of two, from 4 KiB.
  std::uint32_t window_bytes = 64 * 1024;
  /// write_result() is shown the old cells.
  bool keeps_before = false;
  /// The result's digest is wanted.
  bool hashes = true;
  const Kernels* kernels = &best_kernels();
};

/// Turns a base into a result, segment by segment, in any order and from several threads. Each segment is read,
/// decoded, hashed and written a window at a time. What is hashed is what write_result() is given: it is read back only
/// where two segments share a leaf of the digest and the first of them is not done before the second begins. Memory:
/// two windows for each thread. Invariant: each segment of the plan is applied once at most.
class PatchApplier {
 public:
  /// `plan` is that of the patch's head, whose sizes have been checked; `table` says what files the result consists of.
  /// The streams outlive the applier.
  PatchApplier(std::vector<SegmentRange> plan, FileTable table, ApplyStreams& streams, ApplyOptions options = {});
  ~PatchApplier();

  /// Errors: those of SegmentDecoder and of the streams; kCorrupt for a segment that the head does not plan;
  /// kAlreadyExists for one that was applied or is being applied. After kCorrupt for such a segment, and after
  /// kAlreadyExists, nothing has happened; after any other error the result cannot become complete.
  Status apply(const Segment& segment);

  /// Segments that are not applied yet.
  [[nodiscard]] std::size_t missing() const;

  /// The result's digest once it is complete; zero where none was wanted. Not while apply() runs. Errors: kCorrupt
  /// where segments are missing, or where the digest of all results is not what the end says.
  Result<Digest> finish(const PatchEnd& end) const;

 private:
  enum class State : std::uint8_t { kMissing, kTaken, kApplied };
  class Window;

  Status make(const Segment& segment, Window& window);
  void hash(std::uint64_t offset, Bytes bytes, std::optional<DigestStream>& leaf);
  Status go_on(std::uint64_t at, DigestStream digest, Window& window);
  Status catch_up(std::uint64_t begin, std::uint64_t end, Window& window);
  [[nodiscard]] std::uint64_t leaf_end(std::uint64_t offset) const;
  [[nodiscard]] std::uint64_t offset_in_file(std::uint64_t offset) const;

  const std::vector<SegmentRange> plan_;
  const FileTable table_;
  ApplyStreams& streams_;
  const ApplyOptions options_;
  LeafDigests leaves_;

  mutable std::mutex mutex_;  // guards what follows
  std::vector<State> states_;
  std::vector<Digest> results_;
  SnapshotDigest digest_;
  // By where it begins: what go_on() is to read back, up to where.
  std::map<std::uint64_t, std::uint64_t> unhashed_;
  // Kept from one segment to the next: memory that is new to the process costs more than decoding into it.
  std::vector<std::unique_ptr<Window>> idle_;
};

}  // namespace weightcast
