#include "patch/snapshot/file_table.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <set>
#include <unordered_set>

#include "patch/snapshot/tensor.h"

namespace weightcast {

Status check_file_name(std::string_view name) {
  const auto refuse = [name](std::string_view why) {
    return fail(Errc::kInvalidArgument, Op::kVerify, fmt::format("file name {} {}", quoted_name(name), why));
  };
  if (name.empty()) return refuse("is empty");
  if (name.size() > kFileNameBytesMax) return refuse(fmt::format("is longer than {} bytes", kFileNameBytesMax));
  if (name.front() == '.') return refuse("begins with '.'");
  if (name.find('/') != name.npos) return refuse("leads out of its directory");
  if (name.find('\0') != name.npos) return refuse("holds a NUL");
  return {};
}

Status check_file_path(std::string_view path) {
  const auto refuse = [path](std::string_view why) {
    return fail(Errc::kInvalidArgument, Op::kVerify, fmt::format("file {} {}", quoted_name(path), why));
  };
  if (path.size() > kFilePathBytesMax)
    return refuse(fmt::format("has a path of more than {} bytes", kFilePathBytesMax));
  if (path.find('\0') != path.npos) return refuse("holds a NUL");
  std::size_t depth = 0;
  for (std::size_t begin = 0; begin <= path.size(); ++depth) {
    const std::size_t end = std::min(path.find('/', begin), path.size());
    const std::string_view part = path.substr(begin, end - begin);
    if (part.empty()) return refuse("has a part without a name");
    if (part == "." || part == "..") return refuse("leads out of its directory");
    if (part.size() > kFileNameBytesMax)
      return refuse(fmt::format("has a part of more than {} bytes", kFileNameBytesMax));
    begin = end + 1;
  }
  if (depth > kFileDepthMax) return refuse(fmt::format("is more than {} directories deep", kFileDepthMax - 1));
  return {};
}

bool is_kind_of_snapshot_file(std::string_view name) {
  constexpr std::array<std::string_view, 5> kSuffixes{".safetensors", ".json", ".jinja", ".model", ".txt"};
  return std::ranges::any_of(kSuffixes, [&](std::string_view suffix) { return name.ends_with(suffix); });
}

Result<FileTable> FileTable::make(std::vector<SnapshotFile> files) {
  if (files.empty()) return fail(Errc::kInvalidArgument, Op::kVerify, "a snapshot without files");
  if (files.size() > kSnapshotFilesMax) {
    return fail(Errc::kTooLarge, Op::kVerify,
                fmt::format("a snapshot of {} files; the limit is {}", files.size(), kSnapshotFilesMax));
  }
  FileTable table;
  table.offsets_bytes_.reserve(files.size());
  std::unordered_set<std::string_view> names;
  for (const SnapshotFile& file : files) {
    WC_TRY(check_file_path(file.name));
    if (!names.insert(file.name).second) {
      return fail(Errc::kInvalidArgument, Op::kVerify, fmt::format("file {} is given twice", quoted_name(file.name)));
    }
    if (file.size_bytes > kSnapshotBytesMax - table.size_bytes_) {
      return fail(Errc::kTooLarge, Op::kVerify,
                  fmt::format("a snapshot above the limit of {} bytes, at file {} of {} bytes", kSnapshotBytesMax,
                              quoted_name(file.name), file.size_bytes));
    }
    table.offsets_bytes_.push_back(table.size_bytes_);
    table.size_bytes_ += file.size_bytes;
  }
  std::set<std::string_view> directories;
  for (const SnapshotFile& file : files) {
    const std::string_view path = file.name;
    for (std::size_t end = path.rfind('/'); end != path.npos; end = path.rfind('/', end - 1)) {
      if (!directories.insert(path.substr(0, end)).second) break;
    }
    if (directories.size() <= kSnapshotDirectoriesMax) continue;
    return fail(Errc::kTooLarge, Op::kVerify,
                fmt::format("a snapshot of more than {} directories", kSnapshotDirectoriesMax));
  }
  for (const std::string_view directory : directories) {
    if (!names.contains(directory)) continue;
    return fail(Errc::kInvalidArgument, Op::kVerify,
                fmt::format("{} is a file and a directory", quoted_name(directory)));
  }
  table.directories_.assign(directories.begin(), directories.end());
  table.files_ = std::move(files);
  return table;
}

std::vector<FilePiece> FileTable::pieces(std::uint64_t offset_bytes, std::uint64_t size_bytes) const {
  WC_CHECK(offset_bytes <= size_bytes_ && size_bytes <= size_bytes_ - offset_bytes);
  std::vector<FilePiece> out;
  const auto after = std::upper_bound(offsets_bytes_.begin(), offsets_bytes_.end(), offset_bytes);
  for (auto file = static_cast<std::size_t>(after - offsets_bytes_.begin()) - 1; size_bytes > 0; ++file) {
    const std::uint64_t inside = offset_bytes - offsets_bytes_[file];
    const std::uint64_t take = std::min(size_bytes, files_[file].size_bytes - inside);
    if (take > 0) out.push_back({file, inside, take});
    offset_bytes += take;
    size_bytes -= take;
  }
  return out;
}

}  // namespace weightcast
