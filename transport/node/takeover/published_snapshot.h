#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "base/files/file_system.h"
#include "base/ids.h"
#include "base/result.h"
#include "patch/snapshot/finite.h"
#include "patch/snapshot/snapshot.h"

namespace weightcast {

/// What a trainer gives to be published whole.
struct SnapshotOrder {
  Version version{};
  std::string path = {};     ///< a safetensors file or a directory
  FileRef region = nullptr;  ///< instead of a path: a safetensors file without a name
  std::uint64_t region_bytes = 0;
  FileRef files = nullptr;  ///< what accompanies the weights: see unpack_files()
  std::uint64_t files_bytes = 0;
  bool file_tree = false;  ///< the path is a directory of any files, published whole
  bool new_model = false;  ///< its tensors may be other ones than those of the version before
  /// The version before, which stays complete in the store until this one is; without a path there is none. From it
  /// come the files that accompany weights which bring none.
  Version before{};
  std::filesystem::path before_path = {};
  std::vector<SnapshotFile> before_files = {};  ///< as its manifest has them: what else lies there is somebody else's
  bool before_is_tree = false;
};

/// ... opened, with the files that accompany it.
struct PublishedSnapshot {
  SnapshotSource source;
  std::string name;        ///< as errors call it
  bool is_region = false;  ///< given by a program, and not by the command
  bool file_tree = false;
  std::string notice;  ///< what whoever published should know, in a line; "" for nothing
  /// The share of its bytes that are others than those of the version before, as samples tell; absent where the two
  /// have other files or tensors, so that there is nothing to compare.
  std::optional<double> changed_share;

  /// Blocks. Errors: those of SnapshotSource; kInvalidArgument (it holds nothing; tensors of another model; a
  /// file tree after a model or the other way round; files that are named twice).
  [[nodiscard]] static Result<PublishedSnapshot> open(FileSystem& files, const SnapshotOrder& order);
};

/// What a scan over all of `snapshot` found. Errors: kInvalidArgument (NaN or infinite elements).
[[nodiscard]] Status check_finite(const NonFiniteScan& scan, const PublishedSnapshot& snapshot);

}  // namespace weightcast
