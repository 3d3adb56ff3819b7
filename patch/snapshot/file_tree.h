#pragma once

#include <string>
#include <vector>

#include "base/files/file_system.h"
#include "base/result.h"
#include "patch/snapshot/file_table.h"

namespace weightcast {

/// A file of a directory that is published whole.
struct TreeFile {
  SnapshotFile file;
  std::string path;  ///< where its bytes are, from the directory: of a symbolic link the file that it names
};

/// All files below `directory`, ordered by name; empty directories are left out. A symbolic link counts as the file
/// that it names, which is in the directory, too, and no link itself; or, of a directory snapshots/REVISION as Hugging
/// Face's cache has them, a file of ../../blobs. Errors: kInvalidArgument (any other link; what is
/// neither file nor directory; a path that check_file_path() refuses), kTooLarge (more than kSnapshotFilesMax),
/// kNotFound (no such directory), and those of fail_errno().
[[nodiscard]] Result<std::vector<TreeFile>> list_file_tree(FileSystem& files, const std::string& directory);

/// The same for files of ours, of which none is a link.
[[nodiscard]] std::vector<TreeFile> tree_files(const std::vector<SnapshotFile>& files);

}  // namespace weightcast
