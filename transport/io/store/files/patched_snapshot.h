#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>

#include "patch/apply/patch_applier.h"
#include "transport/io/event_loop.h"
#include "transport/io/store/files/spare_update.h"
#include "transport/io/store/files/version_files.h"

namespace weightcast {

/// Fills `cells` with a base's bytes from `offset` on. It reads and does not map: a file that somebody cuts short
/// causes an error, not a signal. Errors: kWrongBase.
[[nodiscard]] Status read_base(VersionFiles& base, std::uint64_t offset, MutableBytes cells);

/// Makes the files of a version from its base and a patch, while the patch arrives. Pool threads apply each segment as
/// soon as its last byte is stored. The digest is of the bytes that the kernel was given: a write that it reports as
/// done is trusted, as for a chunk. Memory: for each of the loop's jobs_at_once_max() the code of a segment, less if
/// segments are long, a window of it, and lists of changed cells. Loop thread only; what pool threads use outlives it.
/// Invariant: it reads bytes of the patch only below what handle_prefix() told.
class PatchedSnapshot {
 public:
  /// Target files that hold an older version become the new one where they are, which costs less than to read the base
  /// and to write all of them.
  struct Steps {
    std::vector<StepRef> earlier;  ///< from what the target holds to the base; none: the base is read
    /// The patch's own changes are listed for take_step() while they take no more than that; 0: they are not.
    std::uint64_t list_bytes_max = 0;
    /// Of the base; null where they are not known.
    std::shared_ptr<const LeafSums> base_leaves = nullptr;
  };

  /// `patch` is the one file of the payload; `target` has files of full size that nobody reads yet. `identity` says
  /// what the patch must be, and is compared with its head. `base` is null for a packed payload.
  PatchedSnapshot(EventLoop& loop, PatchIdentity identity, FilesRef base, FilesRef patch, FilesRef target, Steps steps);
  /// Jobs on pool threads stop after their present segment.
  ~PatchedSnapshot();
  PatchedSnapshot(const PatchedSnapshot&) = delete;
  PatchedSnapshot& operator=(const PatchedSnapshot&) = delete;

  /// The first `bytes` of the patch are verified and in its file. Grows.
  void handle_prefix(std::uint64_t bytes);

  /// Why it cannot succeed, once that is known. kWrongBase: the patch was made from another base, or the base cannot be
  /// read; kCorrupt: the payload does not decode, though its chunks match; kNoSpace, kIo: a write failed.
  [[nodiscard]] const std::optional<Error>& error() const { return error_; }

  /// Calls `done`, later, with the digest of the snapshot as written. handle_prefix() has told all bytes of the patch.
  /// Errors: those of error().
  void finish(std::function<void(Result<Checksum>)> done);

  /// What the patch has changed, once finish() has given a digest. Null if nothing was listed.
  [[nodiscard]] StepRef take_step();
  /// The leaves of the result, once finish() has given its digest.
  [[nodiscard]] std::shared_ptr<const LeafSums> leaves() const;

 private:
  struct Work;
  struct Step;

  void start_jobs();
  void handle_step(const Step& step);
  void finish_if_idle();

  EventLoop& loop_;
  std::shared_ptr<Work> work_;
  std::uint64_t prefix_bytes_ = 0;
  unsigned jobs_ = 0;
  bool starved_ = true;  // the last job found no whole segment: more bytes are needed
  std::optional<Error> error_;
  std::function<void(Result<Checksum>)> done_;
  std::shared_ptr<bool> alive_ = std::make_shared<bool>();  // expires with this: callbacks look first
};

}  // namespace weightcast
