#include "transport/node/payload/model_files.h"

#include <fmt/format.h>

#include <algorithm>
#include <unordered_map>
#include <vector>

#include "base/files/memory_file.h"
#include "patch/snapshot/safetensors.h"

namespace weightcast {
namespace {

// Of what differs; the rest is counted.
constexpr std::size_t kNamesMax = 3;

/// "a, b and 5 more".
std::string listed(const std::vector<std::string>& what) {
  std::string text = fmt::format("{}", fmt::join(what.begin(), what.begin() + std::min(what.size(), kNamesMax), ", "));
  if (what.size() > kNamesMax) text += fmt::format(" and {} more", what.size() - kNamesMax);
  return text;
}

std::string shape_of(const TensorInfo& tensor) {
  return fmt::format("{} [{}]", tensor.dtype, fmt::join(tensor.shape, ", "));
}

}  // namespace

Result<Sidecars> unpack_files(FileSystem& files, const FileRef& packed, std::uint64_t size_bytes) {
  WC_ASSIGN(const SnapshotSource source, SnapshotSource::over(files, packed, size_bytes, "the files"));
  const auto refuse = [](Errc code, std::string why) {
    return fail(code, Op::kPublish, "the files that accompany the weights: " + std::move(why));
  };
  if (source.tensors().size() > kSidecarsMax || size_bytes > kSidecarsBytesMax + kSafetensorsHeaderBytesMax) {
    return refuse(Errc::kTooLarge, fmt::format("{} of them in {} bytes; at most {} in {} bytes are taken",
                                               source.tensors().size(), size_bytes, kSidecarsMax, kSidecarsBytesMax));
  }
  Sidecars sidecars;
  for (const TensorInfo& file : source.tensors()) {
    if (!is_sidecar_name(file.name) || file.dtype != "U8") {
      return refuse(Errc::kInvalidArgument,
                    fmt::format("{} is not one; configuration and tokenizer are, by plain names that end with .json, "
                                ".jinja, .model or .txt",
                                quoted_name(file.name)));
    }
    if (file.size_bytes > kSidecarBytesMax) {
      return refuse(Errc::kTooLarge, fmt::format("{} has {} bytes, above the limit of {}", quoted_name(file.name),
                                                 file.size_bytes, kSidecarBytesMax));
    }
    auto bytes = std::make_shared<MemoryFile>(file.size_bytes);
    WC_TRY(source.read_at(file.offset_bytes, bytes->bytes()));
    sidecars.emplace(file.name, std::move(bytes));
  }
  return sidecars;
}

Result<SnapshotSource> open_stored(FileSystem& files, const std::string& directory,
                                   const std::vector<SnapshotFile>& of_manifest, bool file_tree) {
  if (!file_tree) return SnapshotSource::open(files, directory);
  return SnapshotSource::open_tree(files, directory, tree_files(of_manifest));
}

std::optional<std::string> difference_of(std::span<const TensorInfo> before, std::span<const TensorInfo> now) {
  std::unordered_map<std::string_view, const TensorInfo*> old;
  for (const TensorInfo& tensor : before) old.emplace(tensor.name, &tensor);
  std::vector<std::string> differences;
  for (const TensorInfo& tensor : now) {
    const auto found = old.extract(tensor.name);
    if (!found) {
      differences.push_back(fmt::format("{} is new", quoted_name(tensor.name)));
    } else if (const TensorInfo& was = *found.mapped(); tensor.dtype != was.dtype || tensor.shape != was.shape) {
      differences.push_back(
          fmt::format("{} is {} and was {}", quoted_name(tensor.name), shape_of(tensor), shape_of(was)));
    }
  }
  for (const TensorInfo& tensor : before) {
    if (old.contains(tensor.name)) differences.push_back(fmt::format("{} is gone", quoted_name(tensor.name)));
  }
  if (differences.empty()) return std::nullopt;
  return listed(differences);
}

std::string lost_sidecars(std::span<const SnapshotFile> before, std::span<const SnapshotFile> now) {
  std::vector<std::string> lost;
  for (const SnapshotFile& file : before) {
    if (!is_sidecar_name(file.name)) continue;
    if (std::ranges::find(now, file.name, &SnapshotFile::name) == now.end()) lost.push_back(file.name);
  }
  return lost.empty() ? std::string() : listed(lost);
}

}  // namespace weightcast
