#pragma once

#include <filesystem>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "base/files/open_files.h"
#include "patch/changes/list_changes.h"
#include "transport/io/jobs.h"
#include "transport/io/store/files/spare_update.h"

namespace weightcast {

struct TellChangesRequest {
  Version from{}, to{};
  std::string
      from_digest;  ///< of the version that whoever asks has, in hexadecimal digits: another run may have its number
  std::string to_digest;
  bool old_values = false;          ///< are wanted, too
  std::vector<StepRef> steps;       ///< that lead there, oldest first: see Store::steps()
  std::filesystem::path directory;  ///< of version `to`, which stays until it is done
  std::filesystem::path base;       ///< of version `from`, likewise; empty where it is not here
  bool file_tree = false;
  std::uint64_t snapshot_bytes = 0;
  std::shared_ptr<File> into;  ///< empty; gets the file of changes
};

/// Writes the changes between two versions as a file of changes (patch/changes/change_names.h), off the loop: what an
/// engine writes over the one version to have the other. They come from the steps; where these do not lead there, from
/// comparing the files of both versions, in either direction. Old values come from the base's files. Memory: as much as
/// the lists of the steps take, and twice that where more than one step changed the same segment; of a comparison, the
/// list.
/// Errors: kTooFar, with its reason (a step is not known, or is from another version of that number, and the base is
/// not here to compare with; old values are wanted, and it is not here; the changes take half of the snapshot or more;
/// other tensors; `file_tree`, of which engines know no tensors); kNotFound (`directory` is empty); kClosed (the jobs
/// were cancelled); kNoSpace, kIo, kCorrupt (the files cannot be read).
void tell_changes(Jobs& jobs, FileSystem& files, TellChangesRequest request,
                  std::function<void(Result<ListedChanges>)> done);

}  // namespace weightcast
