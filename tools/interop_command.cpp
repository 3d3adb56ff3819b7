#include <fmt/format.h>

#include "base/files/posix_file_system.h"
#include "base/units.h"
#include "patch/interop/hf_sparse.h"
#include "patch/interop/slime_delta.h"
#include "patch/snapshot/snapshot_stream.h"
#include "tools/command.h"
#include "tools/output_files.h"

namespace weightcast {
namespace {

constexpr const char* kSlime = "slime";
constexpr const char* kHfSparse = "hf-sparse";

struct InteropFlags {
  std::string base, other, output, format;
  std::string encoding = "xor";
  std::uint64_t base_version = 0, version = 1;
};

/// Whether both snapshots agree in all that is no tensor. Errors: those of the sources.
Result<bool> same_besides_tensors(const SnapshotSource& base, const SnapshotSource& result) {
  constexpr std::uint64_t kPieceBytes = 1u << 20;
  if (base.file_table().files() != result.file_table().files() || base.tensors() != result.tensors()) return false;
  std::vector<std::byte> before, after;
  std::uint64_t done = 0;
  const auto same_until = [&](std::uint64_t end) -> Result<bool> {
    for (; done < end; done += before.size()) {
      before.resize(static_cast<std::size_t>(std::min(end - done, kPieceBytes)));
      after.resize(before.size());
      WC_TRY(base.read_at(done, before));
      WC_TRY(result.read_at(done, after));
      if (before != after) return false;
    }
    return true;
  };
  for (const TensorInfo& tensor : base.tensors()) {
    WC_ASSIGN(const bool same, same_until(tensor.offset_bytes));
    if (!same) return false;
    done = tensor.offset_bytes + tensor.size_bytes;
  }
  return same_until(base.size_bytes());
}

Status export_version(const InteropFlags& flags) {
  PosixFileSystem file_system;
  WC_ASSIGN(const SnapshotSource base, SnapshotSource::open(file_system, flags.base));
  WC_ASSIGN(const SnapshotSource result, SnapshotSource::open(file_system, flags.other));
  const SnapshotStream base_stream(base), result_stream(result);
  std::string path = flags.output;
  std::size_t changed_tensors = 0;
  std::uint64_t bytes = 0;
  if (flags.format == kSlime) {
    const SlimeEncoding encoding = flags.encoding == "xor" ? SlimeEncoding::kXor : SlimeEncoding::kOverwrite;
    const SlimeIndex index{Version{flags.version}, Version{flags.base_version}, encoding};
    WC_ASSIGN(const SlimeSummary made, export_slime_delta(file_system, layout_of(base), base_stream, layout_of(result),
                                                          result_stream, index, flags.output));
    path = made.path;
    changed_tensors = made.changed_tensors;
    bytes = made.bytes;
  } else {
    WC_ASSIGN(const HfSparseInfo made, export_hf_sparse(file_system, layout_of(base), base_stream, layout_of(result),
                                                        result_stream, Version{flags.version}, flags.output));
    changed_tensors = made.changed_tensors;
    bytes = made.bytes;
  }
  WC_TRY(base.check_unchanged());
  WC_TRY(result.check_unchanged());
  fmt::print("{}: {} of {} tensors changed, {}\n", path, changed_tensors, result.tensors().size(), format_bytes(bytes));
  WC_ASSIGN(const bool same, same_besides_tensors(base, result));
  if (!same) {
    fmt::print(
        "note: {} and {} differ in more than their tensors (file headers, layout, other files); this format "
        "carries tensors only\n",
        flags.base, flags.other);
  }
  return {};
}

Status import_version(const InteropFlags& flags) {
  PosixFileSystem file_system;
  WC_ASSIGN(const SnapshotSource base, SnapshotSource::open(file_system, flags.base));
  const SnapshotStream base_stream(base);
  OutputSnapshot out(file_system, base.file_table());
  WC_TRY(out.open(flags.output));
  std::string step;
  if (flags.format == kSlime) {
    WC_ASSIGN(const SlimeIndex index, import_slime_delta(file_system, flags.other, layout_of(base), base_stream, out));
    step = fmt::format("version {} from {}", index.version.value, index.base_version.value);
  } else {
    WC_ASSIGN(const HfSparseInfo info, import_hf_sparse(file_system, flags.other, layout_of(base), base_stream, out));
    step = fmt::format("version {}, {} elements changed", info.version.value, info.changed_elements);
  }
  WC_TRY(base.check_unchanged());
  WC_TRY(out.finish());
  fmt::print("{}: {}\n", flags.output, step);
  return {};
}

}  // namespace

void add_interop_commands(const Commands& patch) {
  const auto add = [&](const char* name, const char* help, Status (*body)(const InteropFlags&)) {
    const auto added = add_command<InteropFlags>(patch, name, help, body);
    added.app->add_option("--format", added.flags->format, "slime: a delta directory; hf-sparse: sparse safetensors")
        ->required()
        ->check(CLI::IsMember({kSlime, kHfSparse}));
    return added;
  };
  const auto [export_app, export_flags] =
      add("export", "Write the step from OLD to NEW for other tools", export_version);
  export_app->add_option("OLD", export_flags->base, "A snapshot: safetensors file or directory")->required();
  export_app->add_option("NEW", export_flags->other, "A snapshot with the same tensors")->required();
  export_app
      ->add_option("-o,--output", export_flags->output,
                   "slime: the folder that weight_v... is made in; hf-sparse: the file")
      ->required();
  export_app->add_option("--base-version", export_flags->base_version, "Number to record for OLD");
  export_app->add_option("--version", export_flags->version, "Number to record for NEW");
  export_app->add_option("--encoding", export_flags->encoding, "Of slime's deltas")
      ->capture_default_str()
      ->check(CLI::IsMember({"xor", "overwrite"}));

  const auto [import_app, import_flags] =
      add("import", "Make NEW from OLD and what another tool wrote", import_version);
  import_app->add_option("OLD", import_flags->base, "The snapshot that it was made from")->required();
  import_app->add_option("DELTA", import_flags->other, "slime: a weight_v... directory; hf-sparse: the file")
      ->required();
  import_app->add_option("-o,--output", import_flags->output, "NEW: a file, or a directory if OLD has several files")
      ->required();
}

}  // namespace weightcast
