#include "trainer/model/model_files.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <iterator>
#include <nlohmann/json.hpp>
#include <unordered_map>

#include "base/json_text.h"
#include "base/text.h"
#include "patch/snapshot/safetensors.h"
#include "patch/snapshot/write_file.h"

namespace weightcast {
namespace {

constexpr std::size_t kNamesShown = 3;
constexpr std::uint64_t kConfigBytesMax = kSidecarBytesMax;
constexpr std::uint64_t kCopyBytes = std::uint64_t{4} << 20;
constexpr std::string_view kHead = "lm_head.weight";

/// Tensors with one kind of fault, for a message: how many, and the first few.
class Faults {
 public:
  explicit Faults(std::string kind) : kind_(std::move(kind)) {}
  void add(std::string text) {
    if (shown_.size() < kNamesShown) shown_.push_back(std::move(text));
    ++count_;
  }
  void describe(std::vector<std::string>& parts) const {
    if (count_ == 0) return;
    parts.push_back(
        fmt::format("{} {} ({}{})", count_, kind_, fmt::join(shown_, "; "), count_ > shown_.size() ? "; ..." : ""));
  }

 private:
  std::string kind_;
  std::vector<std::string> shown_;
  std::size_t count_ = 0;
};

bool is_shape(std::span<const std::uint64_t> found, std::span<const std::int64_t> wanted) {
  return std::equal(found.begin(), found.end(), wanted.begin(), wanted.end(),
                    [](std::uint64_t a, std::int64_t b) { return a == static_cast<std::uint64_t>(b); });
}

/// Copies `size_bytes` bytes of the snapshot's stream.
Status copy_range(const SnapshotSource& source, std::uint64_t begin, std::uint64_t size_bytes, FileWriter& out) {
  std::vector<std::byte> buffer(std::min(size_bytes, kCopyBytes));
  for (std::uint64_t done = 0; done < size_bytes;) {
    const MutableBytes piece(buffer.data(), std::min<std::uint64_t>(buffer.size(), size_bytes - done));
    WC_TRY(source.read_at(begin + done, piece));
    WC_TRY(out.write(piece));
    done += piece.size();
  }
  return {};
}

Result<Bytes> checked_bytes(const TensorBytes& bytes_of, const TensorInfo& info) {
  WC_ASSIGN(const Bytes bytes, bytes_of(info));
  if (bytes.size() != info.size_bytes) {
    return fail(Errc::kInvalidArgument, Op::kWrite,
                fmt::format("tensor {}: {} bytes were given, and it has {}", quoted_name(info.name), bytes.size(),
                            info.size_bytes));
  }
  return bytes;
}

/// Indices of tensors by file, in the order given.
std::vector<std::vector<std::size_t>> divide_into_shards(std::span<const TensorInfo> tensors, std::uint64_t bytes_max) {
  std::vector<std::vector<std::size_t>> shards(1);
  std::uint64_t shard_bytes = 0;
  for (std::size_t i = 0; i < tensors.size(); ++i) {
    if (!shards.back().empty() && shard_bytes + tensors[i].size_bytes > bytes_max) {
      shards.emplace_back();
      shard_bytes = 0;
    }
    shards.back().push_back(i);
    shard_bytes += tensors[i].size_bytes;
  }
  return shards;
}

Status write_shard(FileWriter& out, std::span<const TensorInfo> tensors, std::span<const std::size_t> members,
                   const TensorBytes& bytes_of) {
  std::vector<TensorInfo> chosen;
  for (const std::size_t i : members) chosen.push_back(tensors[i]);
  WC_ASSIGN(const SafetensorsLayout layout, lay_out_safetensors(chosen, {{"format", "pt"}}));
  WC_TRY(out.write(std::as_bytes(std::span(layout.header))));
  for (const std::size_t i : layout.order) {
    WC_ASSIGN(const Bytes bytes, checked_bytes(bytes_of, chosen[i]));
    WC_TRY(out.write(bytes));
  }
  return {};
}

/// Copies a file of the snapshot, with the bytes that `bytes_of` gives where it has tensors of the model.
Status copy_file(const SnapshotSource& source, std::size_t file, const TensorBytes& bytes_of, FileWriter& out) {
  std::uint64_t done = source.file_table().offset_bytes(file);
  const std::uint64_t end = done + source.file_table().files()[file].size_bytes;
  const std::vector<TensorInfo>& tensors = source.tensors();
  // Tensors are in the order of the stream.
  auto tensor = std::lower_bound(tensors.begin(), tensors.end(), done,
                                 [](const TensorInfo& info, std::uint64_t begin) { return info.offset_bytes < begin; });
  for (; tensor != tensors.end() && tensor->offset_bytes < end; ++tensor) {
    if (is_rope_buffer(tensor->name)) continue;
    WC_TRY(copy_range(source, done, tensor->offset_bytes - done, out));
    WC_ASSIGN(const Bytes bytes, checked_bytes(bytes_of, *tensor));
    WC_TRY(out.write(bytes));
    done = tensor->offset_bytes + tensor->size_bytes;
  }
  return copy_range(source, done, end - done, out);
}

Status write_text(FileSystem& files, const std::filesystem::path& path, std::string_view text) {
  return write_new_file(files, path, [&](FileWriter& out) { return out.write(std::as_bytes(std::span(text))); });
}

}  // namespace

Status check_tensors(std::span<const TensorSpec> specs, std::span<const TensorInfo> tensors, std::string_view what,
                     std::string_view config) {
  std::unordered_map<std::string_view, const TensorInfo*> found;
  for (const TensorInfo& tensor : tensors) found.emplace(tensor.name, &tensor);
  Faults missing("missing");
  Faults extra("that the model does not have");
  Faults shape("of another shape");
  Faults dtype("of a dtype that is not F32, BF16 or F16");
  for (const TensorSpec& spec : specs) {
    const auto position = found.find(spec.name);
    if (position == found.end()) {
      missing.add(quoted_name(spec.name));
      continue;
    }
    const TensorInfo& tensor = *position->second;
    found.erase(position);
    if (!is_shape(tensor.shape, spec.shape)) {
      shape.add(fmt::format("{} is [{}], {} makes it [{}]", quoted_name(spec.name), fmt::join(tensor.shape, ", "),
                            config, fmt::join(spec.shape, ", ")));
    }
    if (tensor.dtype != "F32" && tensor.dtype != "BF16" && tensor.dtype != "F16") {
      dtype.add(fmt::format("{} is {}", quoted_name(spec.name), printable(cut_text(tensor.dtype, 32))));
    }
  }
  for (const TensorInfo& tensor : tensors) {
    if (found.contains(tensor.name)) extra.add(quoted_name(tensor.name));
  }
  std::vector<std::string> parts;
  for (const Faults* faults : {&missing, &extra, &shape, &dtype}) faults->describe(parts);
  if (parts.empty()) return {};
  return fail(Errc::kInvalidArgument, Op::kVerify,
              fmt::format("{}: the weights do not fit {}: {} tensors are {}", printable(what), config, tensors.size(),
                          fmt::join(parts, ", ")));
}

Status check_tensors(const ModelConfig& config, std::span<const TensorInfo> tensors, std::string_view what) {
  std::vector<TensorSpec> specs = tensor_specs(config);
  const auto is_head = [](const TensorInfo& tensor) { return tensor.name == kHead; };
  if (config.tie_word_embeddings && std::any_of(tensors.begin(), tensors.end(), is_head)) {
    specs.push_back({std::string(kHead), specs.front().shape, TensorSpec::Kind::kMatrix});
  }
  std::vector<TensorInfo> loaded;
  std::ranges::copy_if(tensors, std::back_inserter(loaded),
                       [](const TensorInfo& tensor) { return !is_rope_buffer(tensor.name); });
  return check_tensors(specs, loaded, what, "config.json");
}

Result<ModelFiles> ModelFiles::open(FileSystem& files, const std::filesystem::path& directory) {
  WC_ASSIGN(const std::string json, read_file(files, directory / "config.json", kConfigBytesMax));
  Result<ModelConfig> config = parse_model_config(json);
  if (!config.has_value()) {
    Error error = std::move(config).error();
    error.detail = printable(directory.string()) + "/" + error.detail;
    return error;
  }
  return open(files, directory, *std::move(config));
}

Result<ModelFiles> ModelFiles::open(FileSystem& files, const std::filesystem::path& directory, ModelConfig config) {
  WC_ASSIGN(SnapshotSource snapshot, SnapshotSource::open(files, directory.string()));
  WC_TRY(check_tensors(config, snapshot.tensors(), directory.string()));
  return ModelFiles{std::move(config), std::move(snapshot)};
}

Status write_model_like(FileSystem& files, const SnapshotSource& source, const std::filesystem::path& directory,
                        const TensorBytes& bytes_of) {
  NewDirectory target(files, directory);
  WC_TRY(target.create());
  const FileTable& table = source.file_table();
  for (std::size_t i = 0; i < table.files().size(); ++i) {
    WC_TRY(write_new_file(files, target.temporary() / table.files()[i].name,
                          [&](FileWriter& out) { return copy_file(source, i, bytes_of, out); }));
  }
  WC_TRY(source.check_unchanged());
  return target.publish();
}

Status write_new_model(FileSystem& files, const std::filesystem::path& directory, std::span<const TensorInfo> tensors,
                       const TensorBytes& bytes_of, const std::map<std::string, std::string>& sidecars,
                       std::uint64_t shard_bytes_max, std::string_view stem) {
  NewDirectory target(files, directory);
  WC_TRY(target.create());
  const std::vector<std::vector<std::size_t>> shards = divide_into_shards(tensors, shard_bytes_max);
  nlohmann::json weight_map = nlohmann::json::object();
  std::uint64_t total_bytes = 0;
  for (std::size_t i = 0; i < shards.size(); ++i) {
    const std::string name = shards.size() == 1
                                 ? fmt::format("{}.safetensors", stem)
                                 : fmt::format("{}-{:05}-of-{:05}.safetensors", stem, i + 1, shards.size());
    WC_TRY(write_new_file(files, target.temporary() / name,
                          [&](FileWriter& out) { return write_shard(out, tensors, shards[i], bytes_of); }));
    for (const std::size_t member : shards[i]) {
      weight_map[tensors[member].name] = name;
      total_bytes += tensors[member].size_bytes;
    }
  }
  if (shards.size() > 1) {
    const nlohmann::json index{{"metadata", {{"total_size", total_bytes}}}, {"weight_map", weight_map}};
    const std::string name = fmt::format("{}.safetensors.index.json", stem);
    WC_TRY(write_text(files, target.temporary() / name, json_text(index, 2) + "\n"));
  }
  for (const auto& [name, text] : sidecars) {
    WC_TRY(check_file_name(name));
    WC_TRY(write_text(files, target.temporary() / name, text));
  }
  return target.publish();
}

}  // namespace weightcast
