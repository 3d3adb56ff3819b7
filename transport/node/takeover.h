#pragma once

#include <filesystem>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "base/ids.h"
#include "base/open_files.h"
#include "transport/io/jobs.h"
#include "transport/io/store/store.h"
#include "transport/node/payload_producer.h"

namespace weightcast {

struct TakeoverRequest {
  Version version{};
  std::string path;  ///< a safetensors file or a directory
  FileRef region;    ///< instead of a path: a safetensors file without a name
  std::uint64_t region_bytes = 0;
  FileRef files = nullptr;  ///< what accompanies the weights: see unpack_files()
  std::uint64_t files_bytes = 0;
  std::string model_id;
  bool allow_nonfinite = false;
  bool new_model = false;  ///< its tensors may be other ones than those of the version before
  /// The version before, which stays complete in the store until this one is; without a path there is none. From it
  /// come the files that accompany weights which bring none.
  Version before{};
  std::filesystem::path before_path = {};
  std::vector<SnapshotFile> before_files = {};  ///< as its manifest has them: what else lies there is somebody else's
  bool sample_packing = false;
  ManifestAuthor author = {};
  /// Called on the loop's thread with the payload's size.
  std::function<std::uint32_t(std::uint64_t payload_bytes)> choose_chunk_bytes;
  /// What whoever published should know, in a line. Called on the loop's thread, before `observer.done`, or never.
  std::function<void(std::string)> notice = nullptr;
};

/// Makes the origin's own copy of a snapshot in its store, hashing as it copies, off the loop. When it succeeded the
/// version is complete and current in the store. It is told of in steps that grow, so that a snapshot of any size takes
/// some hundred of them.
/// Nothing reads the source after `observer.done`. Errors: those of SnapshotSource; kInvalidArgument (a tensor that is
/// not finite; tensors of another model); kCorrupt (the source changed while it was read); kClosed (the jobs were
/// cancelled); kTooLarge (a manifest that cannot be sent); kNoSpace, kIo.
void take_over(Jobs& jobs, FileSystem& files, Store& store, TakeoverRequest request, PayloadObserver observer);

}  // namespace weightcast
