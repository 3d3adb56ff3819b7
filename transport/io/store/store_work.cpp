#include "transport/io/store/store_work.h"

#include <fmt/format.h>

#include <chrono>
#include <optional>
#include <ranges>
#include <utility>

#include "base/time.h"
#include "base/units.h"
#include "patch/snapshot/snapshot_digest.h"
#include "transport/io/store/files/readable.h"
#include "transport/io/store/files/snapshot_check.h"

namespace weightcast {
namespace {

/// The files of the spare version under a new name, if it is there and nobody else has them.
Result<FilesRef> take_spare(const StoreLayout& layout, PayloadId payload, const FileTable& files, Spare& spare) {
  spare.taken = true;
  const std::lock_guard lock(spare.mutex);
  if (!spare.files) return fail(Errc::kNotFound, Op::kOpen, "none");
  Result<FilesRef> taken =
      VersionFiles::reuse(layout.files(), spare.path, layout.incoming(payload), files, *spare.files);
  const FilesRef held = std::exchange(spare.files, nullptr);
  // Their directory, empty now, goes with the next spare: to remove it can take as long as the file system's journal is
  // being written, and a payload waits here.
  if (taken.has_value()) {
    (*taken)->note_old_version(held->old_version());
    return taken;
  }
  static_cast<void>(layout.throw_away(layout.incoming(payload)));
  layout.drop_spare();
  layout.empty_trash();
  return taken;
}

Status move_patch(const StoreLayout& layout, PayloadId patch) {
  if (const Result<FileInfo> arrived = layout.files().info(layout.incoming(patch)); !arrived.has_value()) {
    if (arrived.error().code != Errc::kNotFound) return arrived.error();
    // A try that failed after this step has moved it already.
    WC_TRY(layout.files().info(layout.patch(patch)));
    return {};
  }
  // One is there if the version was here before, and was lost.
  WC_TRY(layout.throw_away(layout.patch(patch)));
  return layout.files().rename(layout.incoming(patch), layout.patch(patch));
}

/// What fails is as it was before, or can be done again all the same.
Result<double> install_with(const StoreLayout& layout, Version version, std::optional<PayloadId> patch) {
  // A failed try that could not be undone has left one there: of these files, or of others that were given up.
  WC_ASSIGN(const bool is_arriving, is_there(layout.files(), layout.incoming(version)));
  WC_ASSIGN(const bool is_in_place, is_there(layout.files(), layout.complete(version)));
  if (is_arriving || !is_in_place) {
    WC_TRY(layout.throw_away(layout.complete(version)));
    WC_TRY(layout.files().rename(layout.incoming(version), layout.complete(version)));
  }
  const auto complete = [&]() -> Result<double> {
    if (patch) WC_TRY(move_patch(layout, *patch));
    WC_ASSIGN(const StoreLayout::Current current, layout.read_current());
    if (current.version >= version) return 0;
    const auto began_at = std::chrono::steady_clock::now();
    WC_TRY(layout.switch_current(version));
    return to_seconds(std::chrono::steady_clock::now() - began_at);
  };
  const Result<double> completed = complete();
  if (completed.has_value()) return completed;
  WC_TRY(layout.files().rename(layout.complete(version), layout.incoming(version)));
  return completed;
}

Status lead_current_to(const StoreLayout& layout, StoreLayout::Named next) {
  const Version to = next.payload.version;
  return to == kNoVersion ? remove_if_there(layout.files(), layout.current())
                          : layout.of_run(next.run).switch_current(to);
}

}  // namespace

Result<FilesRef> make_files(const StoreLayout& layout, PayloadId payload, const std::vector<SnapshotFile>& table,
                            const SpareRef& spare, VersionFiles::Size size) {
  WC_ASSIGN(FileTable files, FileTable::make(table));
  // What could not be deleted before.
  WC_TRY(layout.throw_away(layout.incoming(payload)));
  if (!payload.is_encoded() && spare) {
    if (Result<FilesRef> taken = take_spare(layout, payload, files, *spare); taken.has_value()) return taken;
  }
  const std::uint64_t needed_bytes = files.size_bytes();
  Result<FilesRef> made = VersionFiles::create(layout.files(), layout.incoming(payload), files, size);
  if (!made.has_value() && made.error().code == Errc::kNoSpace) {
    layout.drop_spare();
    layout.empty_trash();
    made = VersionFiles::create(layout.files(), layout.incoming(payload), std::move(files), size);
  }
  if (!made.has_value() && made.error().code == Errc::kNoSpace) {
    const std::filesystem::path& where = payload.is_encoded() ? layout.directory() : layout.versions_root();
    const bool in_memory = layout.in_memory() && !payload.is_encoded();
    const std::uint64_t free_bytes = layout.files().free_bytes(where).value_or(0);
    return fail(Errc::kNoSpace, Op::kWrite,
                fmt::format("version {} needs {} in {}, of which {} are free{}", payload.version.value,
                            format_bytes(needed_bytes), where.native(), format_bytes(free_bytes),
                            free_bytes < needed_bytes
                                ? in_memory ? "; make room there, keep fewer versions, or start with --versions-in disk"
                                            : "; make room there, or keep fewer versions"
                                : ": a quota is full, the file system has no room for more files (df -i), or a limit "
                                  "of the size of files "
                                  "is below that (ulimit -f, LimitFSIZE=): delete some, or raise it"));
  }
  return made;
}

Result<FilesRef> make_incoming(const StoreLayout& layout, const VersionRecord& record, const SpareRef& spare) {
  const PayloadId payload = record.manifest.id();
  WC_ASSIGN(const FileTable table, payload_files(record.manifest));
  // How long an open patch becomes is not known.
  const auto size =
      payload.is_encoded() && record.manifest.open ? VersionFiles::Size::kEmpty : VersionFiles::Size::kFull;
  WC_ASSIGN(FilesRef files, make_files(layout, payload, table.files(), spare, size));
  const Status written = write_record(layout.files(), layout.record(payload), record);
  if (written.has_value()) return files;
  static_cast<void>(layout.throw_away(layout.incoming(payload)));
  layout.empty_trash();
  return written.error();
}

Result<FilesRef> make_target(const StoreLayout& layout, const Manifest& manifest, const SpareRef& spare) {
  WC_TRY(layout.throw_away(layout.incoming(manifest.version)));
  layout.empty_trash();
  return make_files(layout, manifest.version, manifest.files, spare);
}

Status seal(const StoreLayout& layout, const VersionRecord& record) {
  const PayloadId payload = record.manifest.id();
  if (payload.is_encoded()) {
    const std::filesystem::path path = layout.incoming(payload) / kPatchFileName;
    WC_ASSIGN(const std::unique_ptr<File> file, layout.files().open(path, {.write = true}));
    WC_TRY(file->truncate(record.manifest.payload_bytes));
  }
  return write_record(layout.files(), layout.record(payload), record);
}

Result<double> install(const StoreLayout& layout, Version version) {
  return install_with(layout, version, std::nullopt);
}

Result<double> install_patched(const StoreLayout& layout, const Manifest& manifest) {
  WC_TRY(write_record(layout.files(), layout.record(manifest.version), {manifest, ChunkDigests(manifest)}));
  return install_with(layout, manifest.version, manifest.id());
}

Status hide_base(const StoreLayout& layout, const Manifest& manifest, VersionFiles& base) {
  const std::filesystem::path visible = layout.complete(manifest.base_version),
                              hidden = layout.incoming(manifest.version);
  // While a full disk costs nothing.
  WC_TRY(write_record(layout.files(), layout.record(manifest.version), {manifest, ChunkDigests(manifest)}));
  // What there is of the version as another payload was given up, and may not have found room in the trash.
  WC_TRY(layout.throw_away(hidden));
  const Status moved = layout.files().rename(visible, hidden);
  // It came with an image's layer: only the whole version helps.
  if (!moved.has_value() && moved.error().code == Errc::kUnsupported) {
    return fail(Errc::kWrongBase, Op::kInstall, moved.error().detail);
  }
  WC_TRY(moved);
  // Only now: from here on nobody can open them by a name that he knows.
  const Status unused = base.check_unused(layout.files(), hidden);
  if (unused.has_value()) return unused;
  const Status back = layout.files().rename(hidden, visible);
  if (back.has_value()) static_cast<void>(remove_if_there(layout.files(), layout.record(manifest.version)));
  return back.has_value() ? unused : fail(Errc::kCorrupt, Op::kInstall, back.error().detail);
}

Result<double> install_in_place(const StoreLayout& layout, const Manifest& manifest) {
  WC_ASSIGN(const double switch_s, install_with(layout, manifest.version, manifest.id()));
  // Without files it is nothing to a start.
  static_cast<void>(remove_if_there(layout.files(), layout.record(manifest.base_version)));
  return switch_s;
}

Status drop_base(const StoreLayout& layout, const Manifest& manifest, StoreLayout::Named next) {
  const Status unmarked = drop_mark(layout, manifest.base_version);
  WC_ASSIGN(const FileTable table, FileTable::make(manifest.files));
  WC_TRY(remove_if_there(layout.files(), layout.record(manifest.version)));
  WC_TRY(layout.throw_away(layout.incoming(manifest.version), table));
  WC_TRY(uninstall(layout, manifest.base_version, next, table));
  return unmarked;
}

Status uninstall(const StoreLayout& layout, Version version, StoreLayout::Named next, const FileTable& table) {
  WC_ASSIGN(const StoreLayout::Current current, layout.read_current());
  if (current.version == version) WC_TRY(lead_current_to(layout, next));
  WC_TRY(layout.throw_away(layout.complete(version), table));
  layout.empty_trash();
  if (!layout.in_memory()) return {};
  const StoreLayout disk = layout.on_disk();
  WC_ASSIGN(const bool is_kept, is_there(layout.files(), disk.complete(version)));
  if (!is_kept) return {};
  WC_TRY(disk.throw_away(disk.complete(version), table));
  disk.empty_trash();
  return {};
}

Status drop_mark(const StoreLayout& layout, Version version) {
  WC_TRY(remove_if_there(layout.files(), layout.record(version)));
  WC_TRY(sync_records(layout));
  if (!layout.in_memory()) return {};
  const StoreLayout disk = layout.on_disk();
  WC_ASSIGN(const bool is_kept, is_there(layout.files(), disk.record(version)));
  if (!is_kept) return {};
  WC_TRY(remove_if_there(layout.files(), disk.record(version)));
  return sync_records(disk);
}

Result<FilesRef> keep_patch(const StoreLayout& layout, const VersionRecord& record) {
  const PayloadId patch = record.manifest.id();
  WC_TRY(write_record(layout.files(), layout.record(patch), record));
  WC_ASSIGN(FileTable table, payload_files(record.manifest));
  WC_ASSIGN(FilesRef files, VersionFiles::open(layout.files(), layout.incoming(patch), std::move(table)));
  WC_TRY(layout.files().rename(layout.incoming(patch), layout.patch(patch)));
  return files;
}

void bring_up_to_date(const StoreLayout& layout, Spare& spare, const std::vector<StepRef>& steps) {
  const std::lock_guard lock(spare.mutex);
  if (!spare.files || spare.taken || steps.empty() || spare.files->old_version() != steps.front()->from) return;
  const StepChanges& last = *steps.back();
  // Away from a directory that somebody may have open. If a file is in use, whoever takes them looks again.
  const std::filesystem::path path = spare.path.native() + "-next";
  Result<FilesRef> moved = VersionFiles::reuse(layout.files(), spare.path, path, spare.files->table(), *spare.files);
  if (!moved.has_value()) {
    spare.files = nullptr;
    return;
  }
  (*moved)->note_old_version(spare.files->old_version());
  spare.files = std::move(*moved);
  for (const std::string& below : std::views::reverse(spare.files->table().directories())) {
    static_cast<void>(layout.files().remove_directory(spare.path / below));
  }
  static_cast<void>(layout.files().remove_directory(std::exchange(spare.path, path)));
  const std::unique_ptr<SpareUpdate> update = SpareUpdate::open(*spare.files, last.to, last.plan, steps);
  if (!update) return;
  for (const SegmentRange& range : last.plan) {
    if (spare.taken) return;  // whoever takes them does it all once more, to the same end
    if (!update->write(range).value_or(false)) return;
  }
  spare.files->note_old_version(last.to);
}

Status retire(const StoreLayout& layout, Version version, const FileTable& table) {
  WC_TRY(layout.make_spare(layout.complete(version), table));
  return remove_if_there(layout.files(), layout.record(version));
}

Status sync_records(const StoreLayout& layout) { return sync_directory(layout.files(), layout.records()); }

Status remove_recorded(const StoreLayout& layout, const std::filesystem::path& path, PayloadId payload,
                       const std::optional<FileTable>& table) {
  WC_TRY(layout.throw_away(path, table));
  return remove_if_there(layout.files(), layout.record(payload));
}

Status write_again(const StoreLayout& layout, const VersionRecord& record, VersionFiles& files,
                   const std::atomic<bool>& wanted) {
  SnapshotDigest digest(files.table());
  const std::uint64_t bytes = files.table().size_bytes();
  for (std::uint64_t offset = 0; offset < bytes; offset += kWriteBytes) {
    if (!wanted) return fail(Errc::kBusy, Op::kSync, "the node stops");
    WC_TRY(copy_range(files, files, offset, std::min(offset + kWriteBytes, bytes), digest));
  }
  if (digest.root() != record.manifest.snapshot_digest) {
    return fail(Errc::kCorrupt, Op::kVerify, "its files do not match the snapshot's digest any more");
  }
  return rewrite_record(layout.files(), layout.record(record.manifest.version), record);
}

Status give_up_version(const StoreLayout& layout, Version version, StoreLayout::Named next, const FileTable& table) {
  // Each on its own: what the disk refuses must not keep the rest from being done.
  const Status unmarked = drop_mark(layout, version);
  WC_TRY(uninstall(layout, version, next, table));
  return unmarked;
}

Status sync_names_and_mark(const StoreLayout& layout, Version version, const VersionFiles& files) {
  WC_TRY(files.sync_names());
  for (const auto& directory : {layout.versions(), layout.incoming(), layout.records(), layout.directory()}) {
    WC_TRY(sync_directory(layout.files(), directory));
  }
  return append_durable_mark(layout.files(), layout.record(version));
}

}  // namespace weightcast
