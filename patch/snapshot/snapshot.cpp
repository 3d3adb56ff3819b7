#include "patch/snapshot/snapshot.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <filesystem>
#include <iterator>
#include <map>
#include <mutex>
#include <nlohmann/json.hpp>
#include <set>
#include <unordered_map>
#include <utility>

#include "base/files/memory_file.h"
#include "patch/snapshot/adapter_names.h"
#include "patch/snapshot/json_text.h"
#include "patch/snapshot/mapped_file.h"
#include "patch/snapshot/safetensors.h"

namespace weightcast {
namespace {

namespace fs = std::filesystem;

constexpr const char* kSingleName = "model.safetensors";
constexpr const char* kIndexName = "model.safetensors.index.json";
constexpr std::string_view kWeightsSuffix = ".safetensors";
// Between the path of a tree's file and the name of a tensor in it. No path has two of these in a row.
constexpr const char* kTreeTensorMark = "//";
// Half of what a patch's head may name: files count, too.
constexpr std::size_t kTreeTensorsMax = std::size_t{1} << 18;

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

/// A file as it was found.
struct FoundFile {
  std::string path;
  FileInfo info;
  FileRef held = nullptr;              // one without a path
  std::vector<std::byte> header = {};  // its first bytes, as they were when they were checked
};

/// Both of one file, open while its header is read.
struct OpenedFile {
  FoundFile found;
  std::unique_ptr<File> file;

  static Result<OpenedFile> open(FileSystem& files, const std::string& path) {
    WC_ASSIGN(std::unique_ptr<File> file, files.open(path, {}));
    WC_ASSIGN(const FileInfo info, file->info());
    return OpenedFile{{path, info}, std::move(file)};
  }
  [[nodiscard]] std::uint64_t size_bytes() const { return found.info.size_bytes; }
  [[nodiscard]] Status read_at(std::uint64_t offset_bytes, MutableBytes out) const {
    return read_source_file(*file, offset_bytes, out, found.path, size_bytes());
  }
};

Error refuse_index(const std::string& index, Errc code, std::string_view problem) {
  return fail(code, Op::kOpen, fmt::format("{}: {}; write the index and its shards again", index, problem));
}

Result<WeightMap> read_index(const OpenedFile& opened) {
  const std::string& index = opened.found.path;
  if (opened.size_bytes() > kSidecarBytesMax) {
    return refuse_index(index, Errc::kTooLarge,
                        fmt::format("{} bytes exceed the limit of {}", opened.size_bytes(), kSidecarBytesMax));
  }
  std::string text(opened.size_bytes(), '\0');
  WC_TRY(opened.read_at(0, std::as_writable_bytes(std::span(text))));
  if (const auto at = find_nul(text)) {
    return refuse_index(index, Errc::kCorrupt, fmt::format("it is not JSON: byte {} is a NUL", *at));
  }
  IndexReader reader;
  if (!nlohmann::json::sax_parse(text, &reader)) return refuse_index(index, Errc::kCorrupt, reader.problem());
  if (!reader.has_map()) return refuse_index(index, Errc::kCorrupt, "it has no weight_map");
  return reader.take();
}

/// Reads the header by read_at(): what is not ours may shrink under a mapping. Leaves the bytes in `prefix`.
Result<std::vector<TensorInfo>> read_tensors(File& file, const std::string& path, std::uint64_t size_bytes,
                                             std::vector<std::byte>& prefix) {
  prefix.resize(std::min<std::uint64_t>(size_bytes, 8));
  WC_TRY(read_source_file(file, 0, prefix, path, size_bytes));
  WC_ASSIGN(const std::uint64_t header_bytes, safetensors_data_offset(prefix, size_bytes, path));
  const std::size_t length_bytes = prefix.size();
  prefix.resize(header_bytes);
  WC_TRY(read_source_file(file, length_bytes, MutableBytes(prefix).subspan(length_bytes), path, size_bytes));
  WC_ASSIGN(SafetensorsHeader header, parse_safetensors_header(prefix, size_bytes, path));
  return std::move(header.tensors);
}

/// Whether a tree may tell of the tensors of its file `path`, beside `others`.
bool is_named_in_trees(std::string_view path, const std::vector<TensorInfo>& tensors, std::size_t others) {
  return others + tensors.size() <= kTreeTensorsMax && std::ranges::all_of(tensors, [&](const TensorInfo& tensor) {
           return path.size() + tensor.name.size() + 2 <= kTensorNameBytesMax;
         });
}

/// A file that cannot be asked about is not one that is missing.
Result<bool> is_there(FileSystem& files, const std::string& path) {
  const Result<FileInfo> info = files.info(path);
  if (info.has_value()) return true;
  if (info.error().code == Errc::kNotFound) return false;
  return info.error();
}

/// Files without which an engine cannot use the weights. Others, such as a trainer's log, may be left out.
bool is_needed(std::string_view name) {
  constexpr std::array<std::string_view, 10> kBeginnings{
      "config", "generation_config", "tokenizer",    "adapter_config",     "chat_template", "vocab",
      "merges", "special_tokens",    "added_tokens", "preprocessor_config"};
  return std::ranges::any_of(kBeginnings, [&](std::string_view beginning) { return name.starts_with(beginning); });
}

/// Names of the sidecars in `directory`, ordered. Those that are too large and nobody needs go to `left_out`.
Result<std::vector<std::string>> list_sidecars(FileSystem& files, const std::string& directory,
                                               std::vector<std::string>& left_out) {
  std::vector<std::string> names;
  WC_ASSIGN(std::vector<std::string> all, files.list(directory));
  for (std::string& name : all) {
    if (!is_sidecar_name(name)) continue;
    const Result<FileInfo> info = files.info(fs::path(directory) / name);
    if (!info.has_value() && info.error().code == Errc::kNotFound) continue;  // a link to nothing
    if (!info.has_value()) return info.error();
    if (!info->is_file()) continue;
    if (info->size_bytes > kSidecarBytesMax && !is_needed(name)) {
      left_out.push_back(std::move(name));
      continue;
    }
    if (info->size_bytes > kSidecarBytesMax) {
      return fail(
          Errc::kInvalidArgument, Op::kOpen,
          fmt::format("{}/{}: {} bytes exceed the limit of {} for files that accompany the weights; move it away",
                      directory, name, info->size_bytes, kSidecarBytesMax));
    }
    names.push_back(std::move(name));
  }
  return names;
}

/// Checks that index and shards name the same tensors in the same places.
Status check_agreement(const std::string& index, const WeightMap& weight_map, const std::vector<std::string>& shards,
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

/// What reads go to. Not moved: files are opened by it on several threads.
struct SnapshotSource::OpenedFiles {
  explicit OpenedFiles(FileSystem& from) : files(from), group(from.open_files()) {}

  Result<FileRef> get(std::size_t index) {
    if (found[index].held) return found[index].held;
    return group.get(index, [&]() -> Result<std::unique_ptr<File>> {
      const FoundFile& wanted = found[index];
      WC_ASSIGN(std::unique_ptr<File> file, files.open(wanted.path, {}));
      WC_ASSIGN(const FileInfo now, file->info());
      if (now.same_file(wanted.info)) return file;
      return check_same_file(wanted.info, now, wanted.path).error();
    });
  }

  FileSystem& files;
  std::vector<FoundFile> found;
  OpenFiles::Group group;
  std::mutex mutex;  // guards what follows
  std::vector<std::unique_ptr<Mapping>> mappings;
};

SnapshotSource::SnapshotSource(FileTable table, std::unique_ptr<OpenedFiles> opened)
    : table_(std::move(table)), opened_(std::move(opened)) {}
SnapshotSource::SnapshotSource(SnapshotSource&&) noexcept = default;
SnapshotSource& SnapshotSource::operator=(SnapshotSource&&) noexcept = default;
SnapshotSource::~SnapshotSource() = default;

Result<SnapshotSource> SnapshotSource::open(FileSystem& files, const std::string& path) {
  std::vector<SnapshotFile> table;
  std::vector<std::string> left_out;
  auto opened = std::make_unique<OpenedFiles>(files);
  std::vector<std::vector<TensorInfo>> tensors;
  const auto add = [&](std::string name, OpenedFile file) {
    table.push_back({std::move(name), file.size_bytes()});
    opened->found.push_back(std::move(file.found));
  };
  const auto add_weights = [&](std::string name, const std::string& from) -> Status {
    WC_ASSIGN(OpenedFile file, OpenedFile::open(files, from));
    std::vector<std::byte> prefix;
    WC_ASSIGN(std::vector<TensorInfo> found, read_tensors(*file.file, file.found.path, file.size_bytes(), prefix));
    tensors.push_back(std::move(found));
    add(std::move(name), std::move(file));
    return {};
  };

  WC_ASSIGN(const FileInfo info, files.info(path));
  if (!info.is_directory()) {
    WC_TRY(add_weights(kSingleName, path));
  } else {
    const std::string base = path.ends_with('/') ? path : path + '/';
    WC_ASSIGN(const bool has_single, is_there(files, base + kSingleName));
    WC_ASSIGN(const bool has_index, is_there(files, base + kIndexName));
    if (has_single && has_index) {
      return fail(
          Errc::kInvalidArgument, Op::kOpen,
          fmt::format("{}: holds both {} and {}; remove the one that is out of date", path, kSingleName, kIndexName));
    }
    // Beside a model's weights it is a file like others, and no part of the snapshot.
    bool has_adapter = false;
    if (!has_single && !has_index) {
      WC_ASSIGN(has_adapter, is_there(files, base + kAdapterFile));
    }
    if (!has_single && !has_index && !has_adapter) {
      return fail(
          Errc::kNotFound, Op::kOpen,
          fmt::format("{}: holds neither {} nor {}, nor {}; name a directory with one of them, or a safetensors file",
                      path, kSingleName, kIndexName, kAdapterFile));
    }
    if (has_single || has_adapter) {
      const char* name = has_single ? kSingleName : kAdapterFile;
      WC_TRY(add_weights(name, base + name));
    } else {
      WC_ASSIGN(OpenedFile index, OpenedFile::open(files, base + kIndexName));
      WC_ASSIGN(const WeightMap weight_map, read_index(index));
      std::set<std::string> distinct;
      for (const auto& [tensor, shard] : weight_map) distinct.insert(shard);
      const std::vector<std::string> shards(distinct.begin(), distinct.end());
      for (const std::string& shard : shards) {
        if (const Status safe = check_file_name(shard); !safe.has_value()) {
          return refuse_index(index.found.path, Errc::kInvalidArgument, safe.error().detail);
        }
        if (!shard.ends_with(kWeightsSuffix)) {
          return refuse_index(index.found.path, Errc::kInvalidArgument,
                              fmt::format("shard {} is not a .safetensors file", quoted_name(shard)));
        }
        WC_TRY(add_weights(shard, base + shard));
      }
      WC_TRY(check_agreement(index.found.path, weight_map, shards, tensors));
      add(kIndexName, std::move(index));
    }
    WC_ASSIGN(const std::vector<std::string> sidecars, list_sidecars(files, path, left_out));
    for (const std::string& name : sidecars) {
      WC_ASSIGN(OpenedFile sidecar, OpenedFile::open(files, base + name));
      add(name, std::move(sidecar));
    }
  }

  WC_ASSIGN(FileTable checked, FileTable::make(std::move(table)));
  SnapshotSource source(std::move(checked), std::move(opened));
  source.left_out_ = std::move(left_out);
  for (std::size_t i = 0; i < tensors.size(); ++i) {
    for (TensorInfo& tensor : tensors[i]) {
      tensor.offset_bytes += source.table_.offset_bytes(i);
      source.tensors_.push_back(std::move(tensor));
    }
  }
  return source;
}

Result<SnapshotSource> SnapshotSource::open_tree(FileSystem& files, const std::string& directory,
                                                 const std::vector<TreeFile>& tree) {
  std::vector<SnapshotFile> table;
  for (const TreeFile& file : tree) table.push_back(file.file);
  WC_ASSIGN(FileTable checked, FileTable::make(std::move(table)));
  WC_ASSIGN(const std::unique_ptr<Directory> opened_directory, files.open_directory(directory));
  SnapshotSource source(std::move(checked), std::make_unique<OpenedFiles>(files));
  source.is_tree_ = true;
  for (std::size_t i = 0; i < tree.size(); ++i) {
    const SnapshotFile& expected = tree[i].file;
    const std::string path = (fs::path(directory) / tree[i].path).native();
    WC_ASSIGN(const std::unique_ptr<File> file, opened_directory->open(tree[i].path, {.follow_links = false}));
    WC_ASSIGN(const FileInfo info, file->info());
    if (info.size_bytes != expected.size_bytes) {
      return fail(Errc::kCorrupt, Op::kOpen,
                  fmt::format("{}: it has {} bytes instead of {}; publish files that nothing writes to any more", path,
                              info.size_bytes, expected.size_bytes));
    }
    source.opened_->found.push_back({path, info});
    const std::uint64_t begin = source.table_.offset_bytes(i);
    std::vector<TensorInfo> tensors;
    std::uint64_t raw_bytes = expected.size_bytes;  // from its beginning on
    if (expected.name.ends_with(kWeightsSuffix)) {
      std::vector<std::byte> header;
      Result<std::vector<TensorInfo>> read = read_tensors(*file, path, expected.size_bytes, header);
      // What is no such file, or would make a patch's head too long, is carried as it is.
      if (read.has_value() && is_named_in_trees(expected.name, *read, source.tensors_.size())) {
        tensors = std::move(*read);
        raw_bytes = header.size();
      } else if (!read.has_value() && read.error().code == Errc::kIo) {
        return read.error();
      }
    }
    if (raw_bytes > 0) source.tensors_.push_back({expected.name, "U8", {raw_bytes}, begin, raw_bytes});
    for (TensorInfo& tensor : tensors) {
      tensor.name = expected.name + kTreeTensorMark + tensor.name;
      tensor.offset_bytes += begin;
      source.tensors_.push_back(std::move(tensor));
    }
  }
  return source;
}

Result<SnapshotSource> SnapshotSource::over(FileSystem& files, FileRef file, std::uint64_t size_bytes,
                                            std::string name) {
  auto opened = std::make_unique<OpenedFiles>(files);
  WC_ASSIGN(const FileInfo info, file->info());
  if (size_bytes > info.size_bytes) {
    return fail(Errc::kCorrupt, Op::kOpen,
                fmt::format("{}: it has {} bytes, not the {} that were said", name, info.size_bytes, size_bytes));
  }
  FoundFile found{std::move(name), info, std::move(file)};
  WC_ASSIGN(std::vector<TensorInfo> tensors, read_tensors(*found.held, found.path, size_bytes, found.header));
  WC_ASSIGN(FileTable table, FileTable::make({{kSingleName, size_bytes}}));
  opened->found.push_back(std::move(found));
  SnapshotSource source(std::move(table), std::move(opened));
  source.tensors_ = std::move(tensors);
  return source;
}

Status SnapshotSource::add_sidecars(const Sidecars& sidecars) {
  std::vector<SnapshotFile> table = table_.files();
  const bool is_adapter = sidecars.contains(kAdapterConfigFile) && !sidecars.contains("config.json");
  if (is_adapter && table.size() == 1 && table.front().name == kSingleName) table.front().name = kAdapterFile;
  std::vector<FoundFile> found;
  for (const auto& [name, file] : sidecars) {
    WC_ASSIGN(const FileInfo info, file->info());
    table.push_back({name, info.size_bytes});
    found.push_back({name, info, file});
  }
  WC_ASSIGN(table_, FileTable::make(std::move(table)));
  std::ranges::move(found, std::back_inserter(opened_->found));
  return {};
}

Result<Sidecars> SnapshotSource::read_sidecars() const {
  Sidecars sidecars;
  for (std::size_t i = 0; i < table_.files().size(); ++i) {
    const SnapshotFile& file = table_.files()[i];
    if (!is_sidecar_name(file.name)) continue;
    auto bytes = std::make_shared<MemoryFile>(file.size_bytes);
    WC_TRY(read_at(table_.offset_bytes(i), bytes->bytes()));
    sidecars.emplace(file.name, std::move(bytes));
  }
  return sidecars;
}

Status SnapshotSource::read_at(std::uint64_t offset_bytes, MutableBytes out) const {
  for (const FilePiece& piece : table_.pieces(offset_bytes, out.size())) {
    WC_ASSIGN(const FileRef file, opened_->get(piece.file));
    const FoundFile& found = opened_->found[piece.file];
    WC_TRY(read_source_file(*file, piece.offset_bytes, out.first(piece.size_bytes), found.path, found.info.size_bytes));
    if (piece.offset_bytes < found.header.size()) {
      const Bytes header = Bytes(found.header).subspan(piece.offset_bytes);
      std::copy_n(header.begin(), std::min<std::uint64_t>(header.size(), piece.size_bytes), out.begin());
    }
    out = out.subspan(piece.size_bytes);
  }
  return {};
}

Result<Bytes> SnapshotSource::mapping(std::size_t file) const {
  const std::lock_guard lock(opened_->mutex);
  opened_->mappings.resize(opened_->found.size());
  std::unique_ptr<Mapping>& mapping = opened_->mappings[file];
  if (!mapping) {
    WC_ASSIGN(const FileRef opened, opened_->get(file));
    const FoundFile& found = opened_->found[file];
    WC_ASSIGN(const FileInfo now, opened->info());
    // What the table says of its size has to hold of the mapping.
    WC_TRY(check_same_file(found.info, now, found.path));
    WC_ASSIGN(mapping, opened->map());
  }
  return mapping->bytes().first(table_.files()[file].size_bytes);
}

Status SnapshotSource::check_unchanged() const {
  for (std::size_t i = 0; i < opened_->found.size(); ++i) {
    WC_ASSIGN(const FileRef file, opened_->get(i));
    WC_ASSIGN(const FileInfo now, file->info());
    WC_TRY(check_same_file(opened_->found[i].info, now, opened_->found[i].path));
  }
  return {};
}

}  // namespace weightcast
