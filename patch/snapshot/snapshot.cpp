#include "patch/snapshot/snapshot.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <filesystem>
#include <map>
#include <nlohmann/json.hpp>
#include <set>
#include <unordered_map>
#include <utility>

#include "patch/snapshot/json_text.h"
#include "patch/snapshot/safetensors.h"

namespace weightcast {
namespace {

namespace fs = std::filesystem;

constexpr const char* kSingleName = "model.safetensors";
constexpr const char* kIndexName = "model.safetensors.index.json";
constexpr std::array<std::string_view, 4> kSidecarSuffixes{".json", ".jinja", ".model", ".txt"};

/// Tensor name to the shard that holds it.
using WeightMap = std::unordered_map<std::string, std::string>;

/// Receives an index's JSON as events, so that a tensor listed twice is seen.
class IndexReader final : public nlohmann::json_sax<nlohmann::json> {
 public:
  [[nodiscard]] WeightMap take() { return std::move(map_); }
  [[nodiscard]] bool has_map() const { return has_map_; }
  [[nodiscard]] const std::string& problem() const { return problem_; }

  bool null() override { return scalar(); }
  bool boolean(bool) override { return scalar(); }
  bool number_integer(number_integer_t) override { return scalar(); }
  bool number_unsigned(number_unsigned_t) override { return scalar(); }
  bool number_float(number_float_t, const string_t&) override { return scalar(); }
  bool binary(binary_t&) override { return scalar(); }

  bool string(string_t& shard) override {
    if (!in_map()) return scalar();
    const auto [entry, added] = map_.emplace(std::move(key_), std::move(shard));
    return added || refuse(fmt::format("tensor {} is listed twice", quoted_name(entry->first)));
  }
  bool key(string_t& text) override {
    if (depth_ == 1) section_ = text;
    if (in_map()) {
      if (text.size() > kTensorNameBytesMax) {
        return refuse(fmt::format("the name of tensor {} is {} bytes long, above the limit of {}", quoted_name(text),
                                  text.size(), kTensorNameBytesMax));
      }
      key_ = std::move(text);
    }
    return true;
  }
  bool start_object(std::size_t) override {
    if (in_map()) return scalar();
    ++depth_;
    if (in_map() && std::exchange(has_map_, true)) return refuse("weight_map is given twice");
    return true;
  }
  bool end_object() override {
    --depth_;
    return true;
  }
  bool start_array(std::size_t) override {
    if (depth_ == 0 || in_map()) return scalar();
    ++depth_;
    ++arrays_;
    return true;
  }
  bool end_array() override {
    --depth_;
    --arrays_;
    return true;
  }
  bool parse_error(std::size_t position, const std::string&, const nlohmann::detail::exception&) override {
    return refuse(fmt::format("it is not JSON: error at byte {}", position));
  }

 private:
  bool refuse(std::string problem) {
    problem_ = std::move(problem);
    return false;
  }
  [[nodiscard]] bool in_map() const { return depth_ == 2 && arrays_ == 0 && section_ == "weight_map"; }
  bool scalar() {
    if (depth_ == 0) return refuse("it is not an object");
    return !in_map() || refuse(fmt::format("the shard of tensor {} is not a string", quoted_name(key_)));
  }

  WeightMap map_;
  std::string section_;
  std::string key_;
  std::size_t depth_ = 0;
  std::size_t arrays_ = 0;
  bool has_map_ = false;
  std::string problem_;
};

Result<std::string> read_all(const MappedFile& file) {
  std::string text(file.size_bytes(), '\0');
  WC_TRY(file.read_at(0, std::as_writable_bytes(std::span(text))));
  return text;
}

Error refuse_index(const MappedFile& index, Errc code, std::string_view problem) {
  return fail(code, Op::kOpen, fmt::format("{}: {}; write the index and its shards again", index.path(), problem));
}

Result<WeightMap> read_index(const MappedFile& index) {
  if (index.size_bytes() > kSidecarBytesMax) {
    return refuse_index(index, Errc::kTooLarge,
                        fmt::format("{} bytes exceed the limit of {}", index.size_bytes(), kSidecarBytesMax));
  }
  WC_ASSIGN(const std::string text, read_all(index));
  if (const auto at = find_nul(text)) {
    return refuse_index(index, Errc::kCorrupt, fmt::format("it is not JSON: byte {} is a NUL", *at));
  }
  IndexReader reader;
  if (!nlohmann::json::sax_parse(text, &reader)) return refuse_index(index, Errc::kCorrupt, reader.problem());
  if (!reader.has_map()) return refuse_index(index, Errc::kCorrupt, "it has no weight_map");
  return reader.take();
}

/// Reads the header by read_at(): what is not ours may shrink under a mapping.
Result<std::vector<TensorInfo>> read_tensors(const MappedFile& file) {
  std::vector<std::byte> prefix(std::min<std::uint64_t>(file.size_bytes(), 8));
  WC_TRY(file.read_at(0, prefix));
  WC_ASSIGN(const std::uint64_t header_bytes, safetensors_data_offset(prefix, file.size_bytes(), file.path()));
  prefix.resize(header_bytes);
  WC_TRY(file.read_at(0, prefix));
  WC_ASSIGN(SafetensorsHeader header, parse_safetensors_header(prefix, file.size_bytes(), file.path()));
  return std::move(header.tensors);
}

bool is_sidecar(const std::string& name) {
  if (name.starts_with('.') || name == kIndexName) return false;
  return std::any_of(kSidecarSuffixes.begin(), kSidecarSuffixes.end(),
                     [&](std::string_view suffix) { return name.ends_with(suffix); });
}

/// Names of the sidecars in `directory`, ordered.
Result<std::vector<std::string>> list_sidecars(const std::string& directory) {
  std::vector<std::string> names;
  std::error_code error;
  fs::directory_iterator entry(directory, error);
  for (; !error && entry != fs::directory_iterator(); entry.increment(error)) {
    std::string name = entry->path().filename().string();
    std::error_code gone;  // a link to nothing is not a regular file
    if (!is_sidecar(name) || !fs::is_regular_file(entry->path(), gone)) continue;
    const std::uintmax_t size_bytes = fs::file_size(entry->path(), gone);
    if (!gone && size_bytes > kSidecarBytesMax) {
      return fail(
          Errc::kInvalidArgument, Op::kOpen,
          fmt::format("{}/{}: {} bytes exceed the limit of {} for files that accompany the weights; move it away",
                      directory, name, size_bytes, kSidecarBytesMax));
    }
    names.push_back(std::move(name));
  }
  if (error) return fail_errno(error.value(), Op::kRead, directory);
  std::sort(names.begin(), names.end());
  return names;
}

/// Checks that index and shards name the same tensors in the same places.
Status check_agreement(const MappedFile& index, const WeightMap& weight_map, const std::vector<std::string>& shards,
                       const std::vector<std::vector<TensorInfo>>& tensors) {
  std::size_t found = 0;
  for (std::size_t i = 0; i < shards.size(); ++i) {
    for (const TensorInfo& tensor : tensors[i]) {
      const auto entry = weight_map.find(tensor.name);
      if (entry == weight_map.end()) {
        return refuse_index(
            index, Errc::kCorrupt,
            fmt::format("tensor {} of shard {} is not listed", quoted_name(tensor.name), quoted_name(shards[i])));
      }
      if (entry->second != shards[i]) {
        return refuse_index(index, Errc::kCorrupt,
                            fmt::format("tensor {} is in shard {}, but listed in {}", quoted_name(tensor.name),
                                        quoted_name(shards[i]), quoted_name(entry->second)));
      }
      ++found;
    }
  }
  if (found == weight_map.size()) return {};
  // Names are unique within a shard and each is in the shard that is listed, so some listed tensor is in none.
  std::set<std::string_view> present;
  for (const auto& shard : tensors) {
    for (const TensorInfo& tensor : shard) present.insert(tensor.name);
  }
  std::map<std::string_view, std::string_view> absent;
  for (const auto& [tensor, shard] : weight_map) {
    if (!present.contains(tensor)) absent.emplace(tensor, shard);
  }
  WC_CHECK(!absent.empty());
  return refuse_index(index, Errc::kCorrupt,
                      fmt::format("tensor {} is listed in shard {}, which does not hold it",
                                  quoted_name(absent.begin()->first), quoted_name(absent.begin()->second)));
}

}  // namespace

Result<SnapshotSource> SnapshotSource::open(const std::string& path) {
  std::vector<SnapshotFile> table;
  std::vector<MappedFile> files;
  std::vector<std::vector<TensorInfo>> tensors;
  const auto add = [&](std::string name, MappedFile file) {
    table.push_back({std::move(name), file.size_bytes()});
    files.push_back(std::move(file));
  };
  const auto add_weights = [&](std::string name, const std::string& from) -> Status {
    WC_ASSIGN(MappedFile file, MappedFile::open(from));
    WC_ASSIGN(std::vector<TensorInfo> found, read_tensors(file));
    tensors.push_back(std::move(found));
    add(std::move(name), std::move(file));
    return {};
  };

  std::error_code error;
  const fs::file_status status = fs::status(path, error);
  if (error) return fail_errno(error.value(), Op::kOpen, path);
  if (!fs::is_directory(status)) {
    WC_TRY(add_weights(kSingleName, path));
  } else {
    const std::string base = path.ends_with('/') ? path : path + '/';
    const bool has_single = fs::exists(base + kSingleName, error);
    const bool has_index = fs::exists(base + kIndexName, error);
    if (has_single && has_index) {
      return fail(
          Errc::kInvalidArgument, Op::kOpen,
          fmt::format("{}: holds both {} and {}; remove the one that is out of date", path, kSingleName, kIndexName));
    }
    if (!has_single && !has_index) {
      return fail(Errc::kNotFound, Op::kOpen,
                  fmt::format("{}: holds neither {} nor {}; name a directory with one of them, or a safetensors file",
                              path, kSingleName, kIndexName));
    }
    if (has_single) {
      WC_TRY(add_weights(kSingleName, base + kSingleName));
    } else {
      WC_ASSIGN(MappedFile index, MappedFile::open(base + kIndexName));
      WC_ASSIGN(const WeightMap weight_map, read_index(index));
      std::set<std::string> distinct;
      for (const auto& [tensor, shard] : weight_map) distinct.insert(shard);
      const std::vector<std::string> shards(distinct.begin(), distinct.end());
      for (const std::string& shard : shards) {
        if (const Status safe = check_file_name(shard); !safe.has_value()) {
          return refuse_index(index, Errc::kInvalidArgument, safe.error().detail);
        }
        if (!shard.ends_with(".safetensors")) {
          return refuse_index(index, Errc::kInvalidArgument,
                              fmt::format("shard {} is not a .safetensors file", quoted_name(shard)));
        }
        WC_TRY(add_weights(shard, base + shard));
      }
      WC_TRY(check_agreement(index, weight_map, shards, tensors));
      add(kIndexName, std::move(index));
    }
    WC_ASSIGN(const std::vector<std::string> sidecars, list_sidecars(path));
    for (const std::string& name : sidecars) {
      WC_ASSIGN(MappedFile sidecar, MappedFile::open(base + name));
      add(name, std::move(sidecar));
    }
  }

  WC_ASSIGN(FileTable checked, FileTable::make(std::move(table)));
  SnapshotSource source(std::move(checked));
  source.files_ = std::move(files);
  for (std::size_t i = 0; i < tensors.size(); ++i) {
    for (TensorInfo& tensor : tensors[i]) {
      tensor.offset_bytes += source.table_.offset_bytes(i);
      source.tensors_.push_back(std::move(tensor));
    }
  }
  return source;
}

Status SnapshotSource::read_at(std::uint64_t offset_bytes, MutableBytes out) const {
  for (const FilePiece& piece : table_.pieces(offset_bytes, out.size())) {
    WC_TRY(files_[piece.file].read_at(piece.offset_bytes, out.first(piece.size_bytes)));
    out = out.subspan(piece.size_bytes);
  }
  return {};
}

Bytes SnapshotSource::mapping(const TensorInfo& tensor) const {
  const std::vector<FilePiece> pieces = table_.pieces(tensor.offset_bytes, tensor.size_bytes);
  if (pieces.empty()) return {};
  WC_CHECK(pieces.size() == 1);
  return mapping(pieces[0].file).subspan(pieces[0].offset_bytes, pieces[0].size_bytes);
}

Status SnapshotSource::check_unchanged() const {
  for (const MappedFile& file : files_) WC_TRY(file.check_unchanged());
  return {};
}

}  // namespace weightcast
