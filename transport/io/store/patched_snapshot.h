#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>

#include "patch/apply/patch_applier.h"
#include "transport/io/event_loop.h"
#include "transport/io/store/version_files.h"

namespace weightcast {

/// Fills `cells` with a base's bytes from `offset` on. By reading, not by mapping: a file that somebody cut short is an
/// error then, and not a signal. Errors: kWrongBase.
[[nodiscard]] Status read_base(VersionFiles& base, std::uint64_t offset, MutableBytes cells);

/// Makes the files of a version out of its base's and of a patch, while the patch arrives: each segment is applied on a
/// pool thread as soon as its last byte is stored. What is hashed is what is handed to the kernel: a write that the
/// kernel reports as done is believed, as that of a chunk is. Memory: the code of two segments, or of one if it is
/// long, and a window of each. Loop thread only; what pool threads use outlives it. Invariant: bytes of the patch are
/// read only below what handle_prefix() told.
class PatchedSnapshot {
 public:
  /// `patch` is the one file of the payload, `target` files of full size that nobody looks at yet. `identity` says
  /// what the patch has to be: it is compared with what its head says. `base` is null for a packed payload.
  PatchedSnapshot(EventLoop& loop, PatchIdentity identity, std::shared_ptr<VersionFiles> base,
                  std::shared_ptr<VersionFiles> patch, std::shared_ptr<VersionFiles> target);
  /// What is under way on pool threads stops after the segment at hand.
  ~PatchedSnapshot();
  PatchedSnapshot(const PatchedSnapshot&) = delete;
  PatchedSnapshot& operator=(const PatchedSnapshot&) = delete;

  /// The first `bytes` of the patch are verified and in its file. Grows.
  void handle_prefix(std::uint64_t bytes);

  /// Why it cannot become anything, once that is known. kWrongBase: the base is not the one that the patch was made
  /// from, or cannot be read; kCorrupt: the patch is none, though its chunks match; kNoSpace, kIo: writing failed.
  [[nodiscard]] const std::optional<Error>& error() const { return error_; }

  /// Calls `done`, later, with the snapshot's digest as it was written to the files; all bytes of the patch must have
  /// been told.
  /// Errors: those of error().
  void finish(std::function<void(Result<Digest>)> done);

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
  std::function<void(Result<Digest>)> done_;
  std::shared_ptr<bool> alive_ = std::make_shared<bool>();  // expires with this: callbacks look first
};

}  // namespace weightcast
