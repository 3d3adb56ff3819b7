#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <memory>
#include <thread>

#include "base/files/posix_file_system.h"
#include "base/json_of.h"
#include "base/json_text.h"
#include "base/text.h"
#include "base/units.h"
#include "patch/apply/patch_applier.h"
#include "patch/codec/codec.h"
#include "patch/snapshot/mapped_file.h"
#include "patch/snapshot/snapshot_digest.h"
#include "patch/snapshot/snapshot_stream.h"
#include "patch/snapshot/write_file.h"
#include "tools/command.h"
#include "tools/output_files.h"

namespace weightcast {
namespace {

struct PatchFlags {
  std::string base, other, output, model_id;
  std::uint64_t base_version = 0, version = 1;
  unsigned threads = std::max(1u, std::thread::hardware_concurrency());
  bool json = false;
};

// In the place of OLD: a whole snapshot is packed, and unpacked.
constexpr const char* kNothing = "none";
constexpr const char* kSingleFileName = "model.safetensors";

/// What a patch is made from: a snapshot, or nothing.
class OldSnapshot {
 public:
  static Result<OldSnapshot> open(FileSystem& file_system, const std::string& path) {
    OldSnapshot old;
    if (path == kNothing) return old;
    WC_ASSIGN(SnapshotSource source, SnapshotSource::open(file_system, path));
    old.source_ = std::make_unique<SnapshotSource>(std::move(source));
    old.stream_ = std::make_unique<SnapshotStream>(*old.source_);
    return old;
  }

  [[nodiscard]] SnapshotLayout layout() const { return source_ ? layout_of(*source_) : SnapshotLayout{}; }
  [[nodiscard]] const ByteSource& stream() const { return *stream_; }
  /// Zero of nothing.
  [[nodiscard]] Result<Checksum> digest(unsigned threads) const {
    return source_ ? snapshot_digest(*source_, threads) : Result<Checksum>(Checksum{});
  }
  [[nodiscard]] Status check_unchanged() const { return source_ ? source_->check_unchanged() : Status(); }
  [[nodiscard]] Version version(std::uint64_t said) const { return source_ ? Version{said} : kNoVersion; }

  /// The files that a patch leads to. A patch file tells a snapshot's bytes, not its files' names: those are the
  /// base's, or, for a result of one file, the one that a single file always has.
  [[nodiscard]] Result<FileTable> result_files(std::uint64_t result_bytes) const {
    if (!source_) return FileTable::make({{kSingleFileName, result_bytes}});
    const FileTable& base = source_->file_table();
    if (base.files().size() == 1) return FileTable::make({{base.files()[0].name, result_bytes}});
    if (base.size_bytes() == result_bytes) return base;
    return fail(
        Errc::kUnsupported, Op::kEncode,
        "the snapshots have several files of different total size, and a patch file does not hold file names; give "
        "both as one file");
  }

 private:
  OldSnapshot() : stream_(std::make_unique<MemorySource>(Bytes())) {}

  std::unique_ptr<SnapshotSource> source_;  // null: nothing
  std::unique_ptr<ByteSource> stream_;
};

Status make(const PatchFlags& flags) {
  PosixFileSystem file_system;
  WC_ASSIGN(const OldSnapshot base, OldSnapshot::open(file_system, flags.base));
  WC_ASSIGN(const SnapshotSource result, SnapshotSource::open(file_system, flags.other));
  WC_ASSIGN(const FileTable files, base.result_files(result.size_bytes()));
  if (flags.base == kNothing && result.file_table().files().size() > 1) {
    return fail(Errc::kUnsupported, Op::kEncode,
                fmt::format("{}: it has {} files, and a packed one does not hold their names; give one file",
                            flags.other, result.file_table().files().size()));
  }
  if (files.files() != result.file_table().files()) {
    return fail(Errc::kUnsupported, Op::kEncode,
                fmt::format("{} and {} consist of different files; give both as one file, or with the same shards",
                            flags.base, flags.other));
  }
  PatchIdentity identity{flags.model_id, base.version(flags.base_version), Version{flags.version}, {}, {}};
  WC_ASSIGN(identity.base_digest, base.digest(flags.threads));
  WC_ASSIGN(identity.result_digest, snapshot_digest(result, flags.threads));
  WC_ASSIGN(const PatchHead head, make_head(identity, base.layout(), layout_of(result)));

  EncodeOptions options;
  options.threads = flags.threads;
  PatchSummary summary;
  const auto write = [&](FileWriter& out) -> Status {
    WC_ASSIGN(summary, encode_patch(head, base.stream(), SnapshotStream(result), options,
                                    [&](Bytes bytes) { return out.write(bytes); }));
    WC_TRY(base.check_unchanged());
    return result.check_unchanged();
  };
  WC_TRY(write_new_file(file_system, flags.output, write));
  const double bits = summary.changed_cells > 0 ? 8.0 * double(summary.patch_bytes) / double(summary.changed_cells) : 0;
  fmt::print("{}: {} of {} cells changed, {} ({:.2f} bits per changed cell), {:.1f} times smaller than the snapshot\n",
             flags.output, summary.changed_cells, summary.cells, format_bytes(summary.patch_bytes), bits,
             double(result.size_bytes()) / double(std::max<std::uint64_t>(1, summary.patch_bytes)));
  return {};
}

/// Feeds a patch file to `handle`, segment by segment. What is wrong with the file names it.
template <typename Handle>
Result<PatchEnd> read_patch(const std::string& path, const MappedFile& file, PatchReader& reader, Handle handle) {
  for (Bytes patch = file.bytes(); !patch.empty();) {
    const Result<std::size_t> taken = reader.handle_bytes(patch);
    if (!taken.has_value()) return about(path, taken.error());
    patch = patch.subspan(*taken);
    if (const auto segment = reader.poll_segment()) {
      WC_TRY(handle(*reader.head(), *segment));
    }
  }
  if (reader.end() == nullptr) return fail(Errc::kCorrupt, Op::kDecode, path + ": cut short; fetch it again");
  return *reader.end();
}

/// From a snapshot in files to one that is being made.
class FileStreams final : public ApplyStreams {
 public:
  FileStreams(const ByteSource& base, OutputSnapshot& out) : base_(base), out_(out) {}

  Status read_base(std::uint64_t offset, MutableBytes cells) override {
    WC_ASSIGN(const Bytes old, base_.view(offset, cells.size(), scratch_));
    std::ranges::copy(old, cells.begin());
    return {};
  }
  Status write_result(std::uint64_t offset, Bytes after) override { return out_.write(offset, after); }

 private:
  const ByteSource& base_;
  OutputSnapshot& out_;
  std::vector<std::byte> scratch_;
};

/// One patch being applied: from its head on there is something to apply it with.
struct Application {
  Application(FileSystem& file_system, const ByteSource& base, const FileTable& files, std::vector<SegmentRange> plan)
      : out(file_system, files), streams(base, out), applier(std::move(plan), files, streams) {}

  OutputSnapshot out;
  FileStreams streams;
  PatchApplier applier;
};

Status apply(const PatchFlags& flags) {
  PosixFileSystem file_system;
  WC_ASSIGN(const OldSnapshot base, OldSnapshot::open(file_system, flags.base));
  WC_ASSIGN(const MappedFile patch, MappedFile::open(file_system, flags.other));
  std::optional<Application> application;

  const auto start = [&](const PatchHead& head) -> Status {
    PatchIdentity held = head.identity;
    WC_ASSIGN(held.base_digest, base.digest(flags.threads));
    WC_TRY(check_head(head, held, base.stream().size_bytes(), head.result_bytes));
    WC_ASSIGN(const FileTable files, base.result_files(head.result_bytes));
    application.emplace(file_system, base.stream(), files, plan_segments(head));
    return application->out.open(flags.output);
  };
  PatchReader reader;
  WC_ASSIGN(const PatchEnd end,
            read_patch(flags.other, patch, reader, [&](const PatchHead& head, const OwnedSegment& segment) -> Status {
              if (!application) WC_TRY(start(head));
              return application->applier.apply(segment.view());
            }));
  const PatchHead& head = *reader.head();
  if (!application) WC_TRY(start(head));
  WC_ASSIGN(const Checksum digest, application->applier.finish(end));
  if (digest != head.identity.result_digest) {
    return fail(Errc::kCorrupt, Op::kVerify, fmt::format("{}: not the snapshot that the patch leads to", flags.output));
  }
  WC_TRY(base.check_unchanged());
  WC_TRY(application->out.finish());
  fmt::print("{}: {}, digest {}\n", flags.output, format_bytes(head.result_bytes), digest.hex());
  return {};
}

/// What a patch says about one tensor; segments that several tensors share are told by bytes covered.
struct TensorFigures {
  double cells = 0, changed = 0, bytes = 0;
  std::map<std::string, double> cells_by_mode;

  [[nodiscard]] std::string mode() const {
    std::string most;
    double cells_of_most = -1;
    for (const auto& [mode, count] : cells_by_mode) {
      if (count > cells_of_most) most = mode, cells_of_most = count;
    }
    return most;
  }
};

Status inspect(const PatchFlags& flags) {
  PosixFileSystem file_system;
  WC_ASSIGN(const MappedFile patch, MappedFile::open(file_system, flags.base));
  std::map<std::uint32_t, TensorFigures> figures;  // by tensor; kNoTensor for raw bytes
  std::uint64_t changed_cells = 0, cells = 0, segments = 0;
  std::size_t first_piece = 0;
  PatchReader reader;
  WC_TRY(read_patch(flags.base, patch, reader, [&](const PatchHead& head, const OwnedSegment& segment) -> Status {
    const SegmentHeader& h = segment.header();
    const double width = geometry_of(h.range.kind).bytes;
    const std::uint64_t begin = h.range.result_offset, end = begin + h.range.size_bytes;
    ++segments;
    changed_cells += h.changed_cells;
    cells += static_cast<std::uint64_t>(double(h.range.size_bytes) / width);
    while (first_piece > 0 && head.pieces[first_piece].result_offset > begin) --first_piece;
    while (head.pieces[first_piece].result_offset + head.pieces[first_piece].size_bytes <= begin) ++first_piece;
    for (std::size_t p = first_piece; p < head.pieces.size() && head.pieces[p].result_offset < end; ++p) {
      const PatchPiece& piece = head.pieces[p];
      const std::uint64_t from = std::max(begin, piece.result_offset);
      const std::uint64_t to = std::min(end, piece.result_offset + piece.size_bytes);
      const double share = double(to - from) / h.range.size_bytes;
      TensorFigures& f = figures[piece.tensor];
      f.cells += double(to - from) / width;
      f.changed += share * h.changed_cells;
      f.bytes += share * double(kSegmentHeaderBytes + h.payload_bytes);
      f.cells_by_mode[std::string(to_string(h.mode))] += double(to - from) / width;
    }
    return {};
  }));
  const PatchHead& head = *reader.head();
  const bool from_nothing = head.from_nothing();
  const auto bits = [](double bytes, double changed) { return changed > 0 ? 8 * bytes / changed : 0.0; };

  if (!flags.json) {
    fmt::print("version {} from {}, model '{}'\nbase {}, result {}\n", head.identity.version.value,
               from_nothing ? "nothing" : std::to_string(head.identity.base_version.value),
               printable(head.identity.model_id), head.identity.base_digest.hex(), head.identity.result_digest.hex());
    fmt::print("{} in {} segments: {} of {} cells changed, {:.2f} bits per changed cell\n\n",
               format_bytes(patch.size_bytes()), segments, changed_cells, cells,
               bits(double(patch.size_bytes()), double(changed_cells)));
    fmt::print("{:<48} {:<8} {:>14} {:>12} {:>9} {:<10} {:>8}\n", "tensor", "dtype", "cells", "changed", "density",
               "mode", "bits");
  }
  nlohmann::json tensors = nlohmann::json::array();
  for (const auto& [index, f] : figures) {
    const bool raw = index == kNoTensor;
    const std::string name = raw ? "(other bytes)" : head.tensors[index].name;
    const std::string dtype = raw ? "-" : head.tensors[index].dtype;
    const double density = f.cells > 0 ? f.changed / f.cells : 0;
    tensors.push_back(merged(WC_JSON_OF(name, dtype, f.cells, f.changed, density, f.mode(), f.bytes),
                             {{"bits_per_changed", bits(f.bytes, f.changed)}}));
    if (!flags.json) {
      fmt::print("{:<48} {:<8} {:>14.0f} {:>12.0f} {:>8.3f}% {:<10} {:>8.2f}\n", printable(name), printable(dtype),
                 f.cells, f.changed, 100 * density, f.mode(), bits(f.bytes, f.changed));
    }
  }
  if (flags.json) {
    const nlohmann::json out = {
        {"version", head.identity.version.value},
        {"base_version", from_nothing ? nlohmann::json() : nlohmann::json(head.identity.base_version.value)},
        {"model", head.identity.model_id},
        {"base_digest", head.identity.base_digest.hex()},
        {"result_digest", head.identity.result_digest.hex()},
        {"bytes", patch.size_bytes()},
        {"segments", segments},
        {"cells", cells},
        {"changed", changed_cells},
        {"bits_per_changed", bits(double(patch.size_bytes()), double(changed_cells))},
        {"removed", head.removed},
        {"tensors", tensors}};
    fmt::print("{}\n", json_text(out));
  }
  return {};
}

}  // namespace

void add_patch_command(const Commands& commands) {
  CLI::App* app = commands.app.add_subcommand("patch", "Make, apply and look into patches between snapshots");
  app->require_subcommand(1);
  const Commands below{*app, commands.selected};
  const auto add_threads = [](CLI::App* sub, PatchFlags& flags) {
    sub->add_option("--threads", flags.threads, "Threads; the result does not depend on it")->check(CLI::Range(1, 256));
  };

  const auto [make_app, make_flags] =
      add_command<PatchFlags>(below, "make", "Write the patch that leads from OLD to NEW, or NEW packed", make);
  make_app
      ->add_option("OLD", make_flags->base,
                   "A snapshot: safetensors file or directory; none: NEW, of one file, is packed")
      ->required();
  make_app->add_option("NEW", make_flags->other, "A snapshot")->required();
  make_app->add_option("-o,--output", make_flags->output, "The patch file")->required();
  make_app->add_option("--base-version", make_flags->base_version, "Number to record for OLD");
  make_app->add_option("--version", make_flags->version, "Number to record for NEW");
  make_app->add_option("--model", make_flags->model_id, "Model id to record");
  add_threads(make_app, *make_flags);

  const auto [apply_app, apply_flags] =
      add_command<PatchFlags>(below, "apply", "Make NEW from OLD and a patch, or unpack it, bit for bit", apply);
  apply_app->add_option("OLD", apply_flags->base, "The snapshot that the patch was made from; none: NEW was packed")
      ->required();
  apply_app->add_option("PATCH", apply_flags->other, "The patch file")->required();
  apply_app->add_option("-o,--output", apply_flags->output, "NEW: a file, or a directory if OLD is one")->required();
  add_threads(apply_app, *apply_flags);

  const auto [inspect_app, inspect_flags] =
      add_command<PatchFlags>(below, "inspect", "Say what a patch changes, tensor by tensor", inspect);
  inspect_app->add_option("PATCH", inspect_flags->base, "The patch file")->required();
  inspect_app->add_flag("--json", inspect_flags->json, "JSON instead of a table");

  add_interop_commands(below);
}

}  // namespace weightcast
