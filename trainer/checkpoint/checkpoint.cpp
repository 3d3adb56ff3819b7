#include "trainer/checkpoint/checkpoint.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <functional>
#include <nlohmann/json.hpp>

#include "base/digest/checksum.h"
#include "base/json_text.h"
#include "base/text.h"
#include "base/units.h"
#include "patch/snapshot/adapter_names.h"
#include "patch/snapshot/safetensors.h"
#include "patch/snapshot/write_file.h"

namespace weightcast {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kPrefix = "checkpoint-";
constexpr std::string_view kAside = ".old";  // of a checkpoint that another of its step replaces
constexpr std::string_view kChecksums = "checksums.json";
constexpr std::string_view kOwnDirectory = "learner";  // what no other tool reads
constexpr std::string_view kBaseDirectory = "base";    // the model that an adapter is for, if the run made it
constexpr std::uint64_t kListBytesMax = std::uint64_t{1} << 20;

/// What other tools read: a model's files, or an adapter's. Names as Hugging Face has them.
constexpr std::array<std::string_view, 9> kReadByOthers{"model.safetensors",     "config.json",
                                                        "tokenizer.json",        "generation_config.json",
                                                        "tokenizer_config.json", "special_tokens_map.json",
                                                        "chat_template.jinja",   kAdapterFile,
                                                        kAdapterConfigFile};

/// Where a file lies below its checkpoint. Others take every *.safetensors in the directory that they are given for the
/// model's: vLLM does. So those of the learner lie below, as does the model beneath an adapter.
std::string place_of(std::string_view name, bool has_own_base) {
  if (std::ranges::find(kReadByOthers, name) == kReadByOthers.end()) return fmt::format("{}/{}", kOwnDirectory, name);
  if (has_own_base && !name.starts_with("adapter_")) return fmt::format("{}/{}", kBaseDirectory, name);
  return std::string(name);
}

/// Whether a name in the list of checksums is one that place_of() makes, or of a release that made no directories.
bool is_place(std::string_view place) {
  const std::size_t slash = place.find('/');
  if (slash == std::string_view::npos) return !place.empty() && place != "." && place != "..";
  const std::string_view directory = place.substr(0, slash), name = place.substr(slash + 1);
  return (directory == kOwnDirectory || directory == kBaseDirectory) && !name.empty() && name != "." && name != ".." &&
         name.find('/') == std::string_view::npos;
}

std::string name_of(std::uint64_t step) { return fmt::format("{}{:08}", kPrefix, step); }

std::optional<std::uint64_t> step_of(std::string_view name) {
  if (!name.starts_with(kPrefix)) return std::nullopt;
  return parse_number<std::uint64_t>(name.substr(kPrefix.size()));
}

/// Whether a kill has left it: a directory that was to become a checkpoint, or one that another was to replace.
bool is_half_made(std::string_view name) { return name.starts_with(kPrefix) && !step_of(name); }

/// The steps that have a checkpoint, ascending.
Result<std::vector<std::uint64_t>> steps_in(FileSystem& files, const fs::path& directory) {
  std::vector<std::uint64_t> steps;
  if (!exists(files, directory)) return steps;
  WC_ASSIGN(const std::vector<std::string> names, files.list(directory));
  for (const std::string& name : names) {
    if (const auto step = step_of(name)) steps.push_back(*step);
  }
  std::sort(steps.begin(), steps.end());
  return steps;
}

/// Undoes what a kill has left half-done: a checkpoint without its successor takes its name again.
Status clear_half_made(FileSystem& files, const fs::path& directory) {
  if (!exists(files, directory)) return {};
  WC_ASSIGN(const std::vector<std::string> names, files.list(directory));
  for (const std::string& name : names) {
    if (!is_half_made(name)) continue;
    const std::string original = name.substr(0, name.size() - std::min(name.size(), kAside.size()));
    if (name.ends_with(kAside) && step_of(original) && !exists(files, directory / original)) {
      WC_TRY(files.rename(directory / name, directory / original));
      WC_TRY(sync_directory(files, directory));
    } else {
      WC_TRY(remove_all(files, directory / name));
    }
  }
  return {};
}

/// Writes a file, and enters its checksum.
class Writer {
 public:
  Writer(FileSystem& files, fs::path directory) : files_(files), directory_(std::move(directory)) {}

  /// The directories are synced by sync().
  Status make_directory(std::string_view name) {
    directories_.emplace_back(directory_ / name);
    return files_.make_directory(directories_.back());
  }
  Status sync() {
    for (const fs::path& directory : directories_) WC_TRY(sync_directory(files_, directory));
    return {};
  }

  Status write(const std::string& name, const std::function<Status(FileWriter&, ChecksumStream&)>& body) {
    ChecksumStream checksum;
    WC_TRY(write_new_file(files_, directory_ / name, [&](FileWriter& out) { return body(out, checksum); }));
    checksums_[name] = checksum.digest().hex();
    return {};
  }
  Status write_text(const std::string& name, std::string_view text) {
    return write(name, [&](FileWriter& out, ChecksumStream& checksum) {
      checksum.update(std::as_bytes(std::span(text)));
      return out.write(std::as_bytes(std::span(text)));
    });
  }
  Status write_tensors(const std::string& name, const std::vector<StoredTensor>& tensors) {
    std::vector<TensorInfo> infos;
    for (const StoredTensor& tensor : tensors) infos.push_back(tensor.info);
    WC_ASSIGN(const SafetensorsLayout layout, lay_out_safetensors(infos, {{"format", "pt"}}));
    return write(name, [&](FileWriter& out, ChecksumStream& checksum) -> Status {
      checksum.update(std::as_bytes(std::span(layout.header)));
      WC_TRY(out.write(std::as_bytes(std::span(layout.header))));
      for (const std::size_t i : layout.order) {
        checksum.update(tensors[i].bytes);
        WC_TRY(out.write(tensors[i].bytes));
      }
      return {};
    });
  }
  Status write_checksums() { return write_text(std::string(kChecksums), checksums_.dump(2) + "\n"); }

 private:
  FileSystem& files_;
  fs::path directory_;
  std::vector<fs::path> directories_;
  nlohmann::json checksums_ = nlohmann::json::object();
};

Error damaged(const fs::path& path, std::string_view why) {
  return fail(Errc::kCorrupt, Op::kRead, fmt::format("{}: {}", printable(path.string()), why));
}

Result<std::vector<StoredTensor>> parse_tensors(const std::string& file, const std::string& name) {
  WC_ASSIGN(const SafetensorsHeader header,
            parse_safetensors_header(std::as_bytes(std::span(file)), file.size(), name));
  std::vector<StoredTensor> tensors;
  for (const TensorInfo& info : header.tensors) {
    const auto bytes = std::as_bytes(std::span(file)).subspan(info.offset_bytes, info.size_bytes);
    tensors.push_back({info, {bytes.begin(), bytes.end()}});
  }
  return tensors;
}

struct ListedFile {
  std::string place;
  std::string checksum;
  std::uint64_t size_bytes = 0;
};

/// The files that the list names. Together they fit into memory, where a checkpoint is read as a whole: a file that is
/// nothing but a hole may claim any length.
Result<std::vector<ListedFile>> listed_files(FileSystem& files, const fs::path& directory,
                                             const nlohmann::json& checksums) {
  std::vector<ListedFile> listed;
  const auto memory_bytes =
      static_cast<std::uint64_t>(::sysconf(_SC_PHYS_PAGES)) * static_cast<std::uint64_t>(::sysconf(_SC_PAGESIZE));
  std::uint64_t left_bytes = memory_bytes;
  for (const auto& [place, expected] : checksums.items()) {
    if (!expected.is_string() || !is_place(place)) return damaged(directory / kChecksums, "no list of checksums");
    WC_ASSIGN(const FileInfo info, files.info(directory / place));
    if (info.size_bytes > left_bytes) {
      return fail(Errc::kTooLarge, Op::kRead,
                  fmt::format("{}: {}, and those before it, take more than this machine's memory of {}",
                              printable(directory.string()), printable(place), format_bytes(memory_bytes)));
    }
    left_bytes -= info.size_bytes;
    listed.push_back({place, expected.get<std::string>(), info.size_bytes});
  }
  return listed;
}

Result<Checkpoint> read_checkpoint(FileSystem& files, const fs::path& directory, std::uint64_t step) {
  WC_ASSIGN(const std::string text, read_file(files, directory / kChecksums, kListBytesMax));
  const auto checksums = parse_json(text);
  if (!checksums.is_object()) return damaged(directory / kChecksums, "no JSON object");
  WC_ASSIGN(const std::vector<ListedFile> listed, listed_files(files, directory, checksums));
  Checkpoint checkpoint;
  checkpoint.step = step;
  for (const auto& [place, checksum, size_bytes] : listed) {
    WC_ASSIGN(std::string file, read_file(files, directory / place, size_bytes));
    if (checksum_of(std::as_bytes(std::span(file))).hex() != checksum) {
      return damaged(directory / place, "its bytes are not those that were written");
    }
    const std::string name = fs::path(place).filename();
    if (name.ends_with(".safetensors")) {
      WC_ASSIGN(checkpoint.tensors[name], parse_tensors(file, name));
    } else {
      checkpoint.texts[name] = std::move(file);
    }
  }
  return checkpoint;
}

/// The checkpoint at `path` gives its name to the whole and synced one at `made`.
Status replace_with(FileSystem& files, const fs::path& path, const fs::path& made) {
  const fs::path aside = path.string() + std::string(kAside);
  WC_TRY(files.rename(path, aside));
  // At each moment the disk has one of them under a name that clear_half_made() knows.
  WC_TRY(sync_directory(files, path.parent_path()));
  WC_TRY(files.rename(made, path));
  WC_TRY(sync_directory(files, path.parent_path()));
  return remove_all(files, aside);
}

}  // namespace

Status write_checkpoint(FileSystem& files, const fs::path& directory, const Checkpoint& checkpoint,
                        std::uint64_t kept) {
  WC_TRY(make_directories(files, directory));
  WC_TRY(clear_half_made(files, directory));
  const fs::path path = directory / name_of(checkpoint.step);
  // A run that went on from an older one comes to the same step again.
  const bool replaces = exists(files, path);
  const fs::path made = path.string() + (replaces ? ".new" : "");
  NewDirectory target(files, made);
  WC_TRY(target.create());
  Writer writer(files, target.temporary());
  const bool has_own_base =
      checkpoint.texts.contains(kAdapterConfigFile) && checkpoint.tensors.contains("model.safetensors");
  WC_TRY(writer.make_directory(kOwnDirectory));
  if (has_own_base) WC_TRY(writer.make_directory(kBaseDirectory));
  for (const auto& [name, tensors] : checkpoint.tensors) {
    WC_TRY(writer.write_tensors(place_of(name, has_own_base), tensors));
  }
  for (const auto& [name, text] : checkpoint.texts) WC_TRY(writer.write_text(place_of(name, has_own_base), text));
  WC_TRY(writer.write_checksums());
  WC_TRY(writer.sync());
  WC_TRY(target.publish());
  if (replaces) WC_TRY(replace_with(files, path, made));
  WC_ASSIGN(std::vector<std::uint64_t> steps, steps_in(files, directory));
  // Those of later steps were left out as damaged. They take no place of those that a run can go on from.
  std::erase_if(steps, [&](std::uint64_t step) { return step > checkpoint.step; });
  for (std::size_t i = 0; i + kept < steps.size(); ++i) WC_TRY(remove_all(files, directory / name_of(steps[i])));
  return {};
}

Result<std::optional<Checkpoint>> read_newest_checkpoint(FileSystem& files, const fs::path& directory,
                                                         std::vector<std::string>& warnings) {
  WC_TRY(clear_half_made(files, directory));
  WC_ASSIGN(const std::vector<std::uint64_t> steps, steps_in(files, directory));
  for (auto step = steps.rbegin(); step != steps.rend(); ++step) {
    Result<Checkpoint> checkpoint = read_checkpoint(files, directory / name_of(*step), *step);
    if (checkpoint.has_value()) return std::optional(std::move(*checkpoint));
    warnings.push_back(
        fmt::format("checkpoint of step {} is damaged and left out: {}", *step, checkpoint.error().message()));
  }
  if (steps.empty()) return std::optional<Checkpoint>();
  return damaged(directory, "all checkpoints are damaged; delete them to begin anew");
}

CheckpointWriter::~CheckpointWriter() {
  if (thread_.joinable()) thread_.join();
}

Status CheckpointWriter::begin(Checkpoint checkpoint) {
  Status earlier = finish();
  done_ = false;
  step_ = checkpoint.step;
  thread_ = std::thread([this, owned = std::move(checkpoint)] {
    try {
      outcome_ = write_checkpoint(files_, directory_, owned, kept_);
    } catch (const std::exception& exception) {  // no memory for a header, above all
      outcome_ =
          fail(Errc::kTooLarge, Op::kWrite, fmt::format("checkpoint of step {}: {}", owned.step, exception.what()));
    }
    done_ = true;
  });
  return earlier;
}

Status CheckpointWriter::finish() {
  if (!thread_.joinable()) return {};
  thread_.join();
  if (outcome_.has_value()) written_step_ = step_;
  return std::move(outcome_);
}

}  // namespace weightcast
