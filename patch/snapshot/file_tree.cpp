#include "patch/snapshot/file_tree.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <map>
#include <optional>
#include <string_view>

#include "patch/snapshot/tensor.h"

namespace weightcast {
namespace {

namespace fs = std::filesystem;

class TreeWalk {
 public:
  TreeWalk(FileSystem& files, const std::string& directory) : files_(files), directory_(directory) {}

  Result<std::vector<TreeFile>> run() {
    WC_TRY(look_into(""));
    std::vector<TreeFile> found;
    for (const auto& [path, file] : regular_) found.push_back({file, path});
    for (const std::string& link : links_) {
      WC_ASSIGN(const fs::path target, files_.read_link(path_of(link)));
      const std::string path = below_directory(link, target);
      const auto named = regular_.find(path);
      const std::optional<FileInfo> blob = named == regular_.end() ? blob_at(path) : std::nullopt;
      if (named == regular_.end() && !blob) {
        return refuse(link, fmt::format("is a symbolic link to {}, which is no file of this directory",
                                        quoted_name(target.native())));
      }
      found.push_back(blob ? TreeFile{{link, blob->size_bytes, blob->executable}, path}
                           : TreeFile{{link, named->second.size_bytes, named->second.executable}, path});
    }
    std::ranges::sort(found, {}, [](const TreeFile& file) -> const std::string& { return file.file.name; });
    return found;
  }

 private:
  [[nodiscard]] fs::path path_of(const std::string& name) const { return fs::path(directory_) / name; }

  [[nodiscard]] Error refuse(const std::string& name, std::string_view why) const {
    return fail(Errc::kInvalidArgument, Op::kOpen,
                fmt::format("{}: {} {}; remove it, or put a file in its place", directory_, quoted_name(name), why));
  }

  /// Where a link leads, as a path below the directory, as far as names tell.
  [[nodiscard]] std::string below_directory(const std::string& link, const fs::path& target) const {
    if (target.is_absolute())
      return target.lexically_normal().lexically_relative(fs::path(directory_).lexically_normal());
    return (fs::path(link).parent_path() / target).lexically_normal();
  }

  /// A snapshot in Hugging Face's cache, snapshots/REVISION, consists of links to files of blobs/, which stands beside
  /// snapshots/: they are its files. No other path leads out of the directory.
  [[nodiscard]] std::optional<FileInfo> blob_at(const std::string& path) const {
    constexpr std::string_view kBlobs = "../../blobs/";
    const fs::path whole = (fs::absolute(directory_) / "").lexically_normal().parent_path();
    if (whole.parent_path().filename() != "snapshots" || !path.starts_with(kBlobs)) return std::nullopt;
    if (!check_file_name(std::string_view(path).substr(kBlobs.size())).has_value()) return std::nullopt;
    const Result<FileInfo> info = files_.link_info(path_of(path));
    return info.has_value() && info->is_file() ? std::optional(*info) : std::nullopt;
  }

  Status look_into(const std::string& parent) {
    WC_ASSIGN(const std::vector<std::string> names, files_.list(path_of(parent)));
    for (const std::string& entry : names) {
      const std::string name = parent.empty() ? entry : parent + '/' + entry;
      if (const Status safe = check_file_path(name); !safe.has_value()) {
        return fail(Errc::kInvalidArgument, Op::kOpen, fmt::format("{}: {}", directory_, safe.error().detail));
      }
      WC_ASSIGN(const FileInfo info, files_.link_info(path_of(name)));
      if (info.is_directory()) {
        WC_TRY(look_into(name));
      } else if (info.is_file()) {
        regular_.emplace(name, SnapshotFile{name, info.size_bytes, info.executable});
      } else if (info.is_link()) {
        links_.push_back(name);
      } else {
        return refuse(name, "is neither a file nor a directory");
      }
      if (regular_.size() + links_.size() > kSnapshotFilesMax) {
        return fail(
            Errc::kTooLarge, Op::kOpen,
            fmt::format("{}: holds more than {} files; publish an archive of them", directory_, kSnapshotFilesMax));
      }
    }
    return {};
  }

  FileSystem& files_;
  const std::string directory_;
  std::map<std::string, SnapshotFile> regular_;  // by path
  std::vector<std::string> links_;
};

}  // namespace

Result<std::vector<TreeFile>> list_file_tree(FileSystem& files, const std::string& directory) {
  WC_ASSIGN(const FileInfo info, files.info(directory));
  if (!info.is_directory()) {
    return fail(Errc::kInvalidArgument, Op::kOpen,
                fmt::format("{}: it is no directory; name the directory whose files are to be published", directory));
  }
  return TreeWalk(files, directory).run();
}

std::vector<TreeFile> tree_files(const std::vector<SnapshotFile>& files) {
  std::vector<TreeFile> made;
  made.reserve(files.size());
  for (const SnapshotFile& file : files) made.push_back({file, file.name});
  return made;
}

}  // namespace weightcast
