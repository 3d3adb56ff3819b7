#include "patch/snapshot/layout_pair.h"

#include <algorithm>
#include <map>
#include <span>
#include <string_view>
#include <utility>
#include <vector>

#include "base/units.h"
#include "patch/snapshot/snapshot_stream.h"

namespace weightcast {
namespace {

constexpr std::size_t kComparedBytes = 256 * kKiB;
constexpr std::uint64_t kCommonBytesMin = 64;  // a piece takes some of a patch's head

/// A file of one of the two, as a part of its stream.
struct FileRange {
  const SnapshotSource* source = nullptr;
  std::uint64_t begin = 0, size_bytes = 0;
  std::span<const TensorInfo> tensors;

  /// Whether it is carried as it is.
  [[nodiscard]] bool is_raw() const { return tensors.size() == 1 && tensors.front().size_bytes == size_bytes; }
};

std::vector<FileRange> files_of(const SnapshotSource& source) {
  std::vector<FileRange> files;
  std::span<const TensorInfo> left = source.tensors();
  for (std::size_t i = 0; i < source.file_table().files().size(); ++i) {
    FileRange file{&source, source.file_table().offset_bytes(i), source.file_table().files()[i].size_bytes, {}};
    const auto end = std::ranges::find_if(
        left, [&](const TensorInfo& tensor) { return tensor.offset_bytes >= file.begin + file.size_bytes; });
    // A tensor without bytes at the border may count to either of the two.
    file.tensors = left.first(std::size_t(end - left.begin()));
    left = left.subspan(file.tensors.size());
    files.push_back(file);
  }
  return files;
}

class FileComparison {
 public:
  FileComparison(const FileRange& base, const FileRange& result) : base_(base), result_(result) {}

  /// How many bytes both begin with, or end with beside those.
  Result<std::uint64_t> equal_prefix(std::uint64_t bytes_max) {
    std::uint64_t equal = 0;
    while (equal < bytes_max) {
      const auto size = std::size_t(std::min<std::uint64_t>(kComparedBytes, bytes_max - equal));
      WC_TRY(read(base_.begin + equal, result_.begin + equal, size));
      const auto [differing, _] = std::ranges::mismatch(before_, after_);
      equal += std::uint64_t(differing - before_.begin());
      if (differing != before_.end()) break;
    }
    return equal;
  }
  Result<std::uint64_t> equal_suffix(std::uint64_t bytes_max) {
    std::uint64_t equal = 0;
    while (equal < bytes_max) {
      const auto size = std::size_t(std::min<std::uint64_t>(kComparedBytes, bytes_max - equal));
      WC_TRY(
          read(base_.begin + base_.size_bytes - equal - size, result_.begin + result_.size_bytes - equal - size, size));
      const auto differing = std::mismatch(before_.rbegin(), before_.rend(), after_.rbegin()).first;
      equal += std::uint64_t(differing - before_.rbegin());
      if (differing != before_.rend()) break;
    }
    return equal;
  }

 private:
  Status read(std::uint64_t base_offset, std::uint64_t result_offset, std::size_t size) {
    before_.resize(size);
    after_.resize(size);
    WC_TRY(base_.source->read_at(base_offset, before_));
    return result_.source->read_at(result_offset, after_);
  }

  const FileRange& base_;
  const FileRange& result_;
  std::vector<std::byte> before_, after_;
};

/// What becomes of a file's tensors in a layout.
using Pieces = std::vector<TensorInfo>;

/// The beginning, what is between, and the end, by names that no other piece has.
Pieces cut(const FileRange& file, const std::string& path, std::uint64_t prefix_bytes, std::uint64_t suffix_bytes) {
  Pieces pieces;
  std::uint64_t begin = file.begin;
  const auto add = [&](const char* part, std::uint64_t size_bytes) {
    if (size_bytes > 0) pieces.push_back({path + part, "U8", {size_bytes}, begin, size_bytes});
    begin += size_bytes;
  };
  add("//begin", prefix_bytes);
  add("//middle", file.size_bytes - prefix_bytes - suffix_bytes);
  add("//end", suffix_bytes);
  return pieces;
}

Result<std::pair<Pieces, Pieces>> compare(const std::string& path, const FileRange& base, const FileRange& result) {
  FileComparison comparison(base, result);
  const std::uint64_t shorter = std::min(base.size_bytes, result.size_bytes);
  const auto whole = [&path](const FileRange& file) {
    return Pieces{{path, "U8", {file.size_bytes}, file.begin, file.size_bytes}};
  };
  if (base.size_bytes == result.size_bytes && shorter > 0) {
    WC_ASSIGN(const std::uint64_t equal, comparison.equal_prefix(shorter));
    if (equal == shorter) return std::pair(whole(base), whole(result));
  } else if (base.is_raw() && result.is_raw()) {
    WC_ASSIGN(const std::uint64_t prefix, comparison.equal_prefix(shorter));
    WC_ASSIGN(const std::uint64_t suffix, comparison.equal_suffix(shorter - prefix));
    if (prefix + suffix >= kCommonBytesMin) {
      return std::pair(cut(base, path, prefix, suffix), cut(result, path, prefix, suffix));
    }
  }
  return std::pair(Pieces(base.tensors.begin(), base.tensors.end()),
                   Pieces(result.tensors.begin(), result.tensors.end()));
}

void append(std::vector<TensorInfo>& to, const Pieces& pieces) { to.insert(to.end(), pieces.begin(), pieces.end()); }

}  // namespace

Result<LayoutPair> layouts_of(const SnapshotSource& base, const SnapshotSource& result) {
  if (!base.is_tree() || !result.is_tree()) return LayoutPair{layout_of(base), layout_of(result)};
  const std::vector<FileRange> old_files = files_of(base), new_files = files_of(result);
  std::map<std::string_view, std::size_t> old_by_path;
  for (std::size_t i = 0; i < old_files.size(); ++i) old_by_path.emplace(base.file_table().files()[i].name, i);
  LayoutPair layouts{{base.size_bytes(), {}}, {result.size_bytes(), {}}};
  std::vector<Pieces> old_pieces(old_files.size());
  for (std::size_t i = 0; i < old_files.size(); ++i) {
    old_pieces[i].assign(old_files[i].tensors.begin(), old_files[i].tensors.end());
  }
  for (std::size_t i = 0; i < new_files.size(); ++i) {
    const std::string& path = result.file_table().files()[i].name;
    const auto old = old_by_path.find(path);
    if (old == old_by_path.end()) {
      append(layouts.result.tensors, Pieces(new_files[i].tensors.begin(), new_files[i].tensors.end()));
      continue;
    }
    WC_ASSIGN(auto pieces, compare(path, old_files[old->second], new_files[i]));
    old_pieces[old->second] = std::move(pieces.first);
    append(layouts.result.tensors, pieces.second);
  }
  for (const Pieces& pieces : old_pieces) append(layouts.base.tensors, pieces);
  return layouts;
}

}  // namespace weightcast
