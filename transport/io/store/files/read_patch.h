#pragma once

#include <functional>
#include <vector>

#include "patch/apply/patch_applier.h"
#include "transport/core/manifest/manifest.h"
#include "transport/io/store/files/version_files.h"

namespace weightcast {

/// Reads a complete patch, which `manifest` describes, from its file. Once the head is found to lead from `base_digest`
/// and `table` to the manifest's version, `start` gets its plan; then `apply` gets each segment, by `threads` at once.
/// Returns the patch's end. Blocks. Memory: the code of `threads` segments. Errors: those of check_head() and both
/// functions; kCorrupt (the payload does not decode), and those of the file.
[[nodiscard]] Result<PatchEnd> read_patch(VersionFiles& patch, const Manifest& manifest, const Checksum& base_digest,
                                          const FileTable& table, unsigned threads,
                                          const std::function<Status(std::vector<SegmentRange>)>& start,
                                          const std::function<Status(const Segment&)>& apply);

/// Files whose cells become new ones where they are.
class InPlaceStreams final : public ApplyStreams {
 public:
  explicit InPlaceStreams(VersionFiles& files) : files_(files) {}
  Status read_base(std::uint64_t offset, MutableBytes cells) override { return read_stream(files_, offset, cells); }
  Status write_result(std::uint64_t offset, Bytes after) override { return write_stream(files_, offset, after); }

 private:
  VersionFiles& files_;
};

}  // namespace weightcast
