#include "transport/io/store/in_place.h"

#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <utility>
#include <vector>

#include "base/parallel.h"
#include "base/units.h"
#include "patch/apply/undo.h"
#include "transport/io/log.h"
#include "transport/io/store/files/patched_snapshot.h"
#include "transport/io/store/files/read_patch.h"
#include "transport/io/store/files/readable.h"
#include "transport/io/store/files/recovery_checks.h"
#include "transport/io/store/files/snapshot_check.h"
#include "transport/io/store/store_work.h"

namespace weightcast {
namespace {

namespace fs = std::filesystem;

// A thread takes as long to start as a few windows to write.
constexpr std::uint64_t kParallelBytesMin = 2 * kMiB;

unsigned threads_of(const InPlaceWork& work) {
  return work.files->table().size_bytes() >= kParallelBytesMin ? work.threads : 1;
}

/// What stands in the cells that will change goes to the journal; nothing is written.
class JournalStreams final : public ApplyStreams {
 public:
  JournalStreams(VersionFiles& files, UndoJournal& journal) : files_(files), journal_(journal) {}

  Status read_base(std::uint64_t offset, MutableBytes cells) override {
    return weightcast::read_base(files_, offset, cells);
  }
  Status write_result(std::uint64_t, Bytes) override { return {}; }
  Result<std::optional<MutableBytes>> edit_result(const SegmentRange&, std::uint64_t offset, std::size_t size,
                                                  std::vector<std::byte>& scratch) override {
    WC_ASSIGN(const MutableBytes cells, edit_stream(files_, offset, size, scratch, FileEditor::Use::kRead));
    return std::optional(cells);
  }
  Status note_changes(std::uint64_t offset, unsigned cell_bytes, std::span<const std::uint32_t> cells,
                      Bytes old_values) override {
    return journal_.record(offset, cell_bytes, cells, old_values);
  }

 private:
  VersionFiles& files_;
  UndoJournal& journal_;
};

Result<InPlaceChanges> note_changes(const InPlaceWork& work, UndoJournal& journal, const std::atomic<bool>& wanted) {
  const Manifest& manifest = work.record.manifest;
  JournalStreams streams(*work.files, journal);
  std::vector<SegmentRange> plan;
  std::optional<PatchApplier> applier;
  const auto start = [&](std::vector<SegmentRange> planned) -> Status {
    plan = std::move(planned);
    const auto moves = [](const SegmentRange& range) {
      return range.has_base() && range.base_offset != range.result_offset;
    };
    // Nothing is wrong with it, but only the whole version helps.
    if (std::ranges::any_of(plan, moves)) {
      return fail(Errc::kWrongBase, Op::kDecode, "a patch that moves tensors cannot be applied in place");
    }
    applier.emplace(plan, work.files->table(), streams,
                    ApplyOptions{.window_bytes = kWriteBytes,
                                 .rehearses = true,
                                 .base_leaves = work.base_leaves,
                                 .list_bytes_max = kStepBytesMax});
    return {};
  };
  const auto apply = [&](const Segment& segment) -> Status {
    return wanted ? applier->apply(segment) : fail(Errc::kNotFound, Op::kDecode, "it is not wanted any more");
  };
  WC_ASSIGN(const PatchEnd end,
            read_patch(*work.patch, manifest, work.base_digest, work.files->table(), threads_of(work), start, apply));
  WC_ASSIGN(const Checksum digest, applier->finish(end));
  if (digest != manifest.snapshot_digest) {
    return fail(Errc::kCorrupt, Op::kVerify, "the patch leads to other bytes than its manifest says");
  }
  WC_TRY(journal.sync());
  const PatchIdentity identity{manifest.model_id, manifest.base_version, manifest.version, work.base_digest, digest};
  return InPlaceChanges{step_of(identity, std::move(plan), applier->take_changes()),
                        std::make_shared<const LeafSums>(applier->leaves())};
}

Status write_changes(const InPlaceWork& work, const StepRef& step) {
  const Manifest& manifest = work.record.manifest;
  const auto update = SpareUpdate::open(*work.files, manifest.version, step->plan, {step});
  std::atomic<bool> all_written = true;
  WC_TRY(for_each_until_error(step->plan.size(), threads_of(work), [&](std::size_t i) -> Status {
    WC_ASSIGN(const bool written, update->write(step->plan[i]));
    if (!written) all_written = false;
    return {};
  }));
  if (all_written) return {};
  // Where most cells change, or more than the lists may take: from the patch once more.
  InPlaceStreams streams(*work.files);
  std::optional<PatchApplier> applier;
  const auto start = [&](std::vector<SegmentRange> plan) -> Status {
    // What it leads to was hashed before.
    applier.emplace(std::move(plan), work.files->table(), streams,
                    ApplyOptions{.window_bytes = kWriteBytes, .hashes = false});
    return {};
  };
  const auto apply = [&](const Segment& segment) -> Status {
    return step->segments[segment.header.range.index] ? Status() : applier->apply(segment);
  };
  const auto end =
      read_patch(*work.patch, manifest, work.base_digest, work.files->table(), threads_of(work), start, apply);
  return end.has_value() ? Status() : end.error();
}

/// Steps 3 to 5.
Status change(const StoreLayout& layout, const InPlaceWork& work, const InPlaceChanges& changes, double& switch_s) {
  WC_TRY(write_changes(work, changes.step));
  WC_ASSIGN(switch_s, install_patched(layout, work.record.manifest));
  return {};
}

/// Step 2. Errors: kBusy, with everything where it was; kUnsupported, kIo.
Status hide(const StoreLayout& layout, const InPlaceWork& work) {
  const Manifest& manifest = work.record.manifest;
  const fs::path visible = layout.complete(manifest.base_version), hidden = layout.incoming(manifest.version);
  // What there is of the version as another payload was given up, and may not have found room in the trash.
  WC_ASSIGN(const bool left_over, is_there(layout.files(), hidden));
  if (left_over) WC_TRY(layout.throw_away(hidden));
  const Status moved = layout.files().rename(visible, hidden);
  // It came with an image's layer: only the whole version helps.
  if (!moved.has_value() && moved.error().code == Errc::kUnsupported) {
    return fail(Errc::kWrongBase, Op::kInstall, moved.error().detail);
  }
  WC_TRY(moved);
  // Only now: from here on nobody can open them by a name that he knows.
  const Status unused = work.files->check_unused(layout.files(), hidden);
  if (unused.has_value() || unused.error().code != Errc::kBusy) return unused;
  WC_TRY(layout.files().rename(hidden, visible));
  return unused;
}

/// Writes old bytes back, where the journal of `path` is about these files.
Status write_old(VersionFiles& base, std::uint64_t offset, Bytes old, const fs::path& path) {
  const std::uint64_t size_bytes = base.table().size_bytes();
  if (offset > size_bytes || old.size() > size_bytes - offset) {
    return fail(Errc::kCorrupt, Op::kParse, path.native() + ": the journal is about other files than are here");
  }
  return write_stream(base, offset, old);
}

/// Whatever step it ended at: the old version, under its own name. It gets that back when its bytes are on the disk and
/// are what they were: until then, and if they cannot be written, nobody finds the mixture.
Status revert(const StoreLayout& layout, PayloadId payload, const FileTable& table, const Checksum& base_digest,
              unsigned threads) {
  FileSystem& files = layout.files();
  const fs::path visible = layout.complete(payload.base), hidden = layout.incoming(payload.version);
  WC_ASSIGN(const bool is_visible, is_there(files, visible));
  WC_ASSIGN(const bool is_hidden, is_there(files, hidden));
  WC_ASSIGN(const bool is_installed, is_there(files, layout.complete(payload.version)));
  if (!is_visible && !is_hidden && is_installed) WC_TRY(files.rename(layout.complete(payload.version), hidden));
  // Before the journal goes: with it what has become of the version is known.
  WC_ASSIGN(const StoreLayout::Current current, layout.read_current());
  if (current.version == payload.version) WC_TRY(layout.switch_current(payload.base));
  WC_TRY(remove_if_there(files, layout.record(payload.version)));
  WC_ASSIGN(const FilesRef base, VersionFiles::open(files, is_visible ? visible : hidden, table));
  const auto finish = [&]() -> Status {
    WC_TRY(sync_files(*base));
    WC_ASSIGN(const SnapshotDigest digest, files_digest(*base, threads));
    // An earlier release's digest says nothing here.
    if (base_digest != Checksum{} && digest.root() != base_digest) {
      return fail(Errc::kCorrupt, Op::kVerify, "what its journal put back does not match its digest");
    }
    if (!is_visible) WC_TRY(files.rename(hidden, visible));
    WC_TRY(sync_directory(files, layout.versions()));
    return sync_directory(files, layout.incoming());
  };
  const fs::path journal = layout.undo(payload);
  const Result<std::size_t> recovered = recover(
      files, journal.native(), [&](std::uint64_t offset, Bytes old) { return write_old(*base, offset, old, journal); },
      finish);
  if (recovered.has_value()) return {};
  if (!is_proven_wrong(recovered.error())) return recovered.error();
  // A power cut may have torn the journal while it was made, before anything was overwritten. The digest tells.
  const Status whole = finish();
  if (!whole.has_value()) return is_proven_wrong(whole.error()) ? recovered.error() : whole.error();
  return abandon_in_place(layout, payload);
}

/// Whether versions/N is what was to be made; then it is made durable, on a disk. In memory the log decides what is.
/// Errors: those that leave it open, too.
Result<bool> is_made(const StoreLayout& layout, Version version, unsigned threads) {
  const auto no_if_wrong = [](const Error& error) -> Result<bool> {
    if (is_proven_wrong(error)) return false;
    return error;
  };
  const Result<VersionRecord> record = read_record(layout.files(), layout.record(version));
  if (!record.has_value()) return no_if_wrong(record.error());
  WC_ASSIGN(FileTable table, FileTable::make(record->manifest.files));
  const Result<FilesRef> files = VersionFiles::open(layout.files(), layout.complete(version), std::move(table));
  if (!files.has_value()) return no_if_wrong(files.error());
  if (record->durable) {
    WC_TRY(write_record_again(layout.files(), layout.record(version)));
    return true;
  }
  if (record->outdated) return false;  // it has a digest that says nothing here: back to the version before
  // It came whole, after a try to make it in place, and a power cut has torn its record: a mark there would not count.
  if (!record->manifest.id().is_encoded() && !record->digests.complete()) return false;
  if (layout.in_memory()) return snapshot_matches(record->manifest, **files, threads);
  const Status durable = make_durable_again(layout, *record, **files);
  if (!durable.has_value()) return no_if_wrong(durable.error());
  return true;
}

Status settle(const StoreLayout& layout, PayloadId payload, unsigned threads) {
  const Result<bool> made = is_made(layout, payload.version, threads);
  if (!made.has_value()) return cannot_look_at(layout.complete(payload.version), made.error());
  if (*made) return end_in_place(layout, payload.version);
  const Result<VersionRecord> base = read_record(layout.files(), layout.record(payload.base));
  const auto put_back = [&]() -> Status {
    if (!base.has_value()) return base.error();
    WC_ASSIGN(const FileTable table, FileTable::make(base->manifest.files));
    return revert(layout, payload, table, base->outdated ? Checksum{} : base->manifest.snapshot_digest, threads);
  };
  const Status done = put_back();
  if (done.has_value()) {
    log_info("store: version {} is as it was before version {} was made of it", payload.base.value,
             payload.version.value);
    return {};
  }
  if (!is_proven_wrong(done.error())) return cannot_look_at(layout.undo(payload), done.error());
  log_warning("store: version {} cannot be put back and is thrown away: {}", payload.base.value,
              done.error().message());
  std::optional<FileTable> table;
  if (base.has_value()) table = *FileTable::make(base->manifest.files);
  for (const fs::path& path :
       {layout.complete(payload.version), layout.incoming(payload.version), layout.complete(payload.base)}) {
    WC_TRY(layout.throw_away(path, table));
  }
  WC_TRY(remove_if_there(layout.files(), layout.record(payload.version)));
  WC_TRY(remove_if_there(layout.files(), layout.record(payload.base)));
  return remove_if_there(layout.files(), layout.undo(payload));
}

/// Whose journals are there: N-B of each version N that was made, or begun to be made, of B's files.
Result<std::vector<PayloadId>> journals(const StoreLayout& layout) {
  std::vector<PayloadId> found;
  WC_ASSIGN(const std::vector<std::string> names, names_in(layout.files(), layout.undo()));
  for (const std::string& name : names) {
    if (const auto payload = layout.payload_of(name)) found.push_back(*payload);
  }
  return found;
}

}  // namespace

Result<InPlaceChanges> prepare_in_place(const StoreLayout& layout, const InPlaceWork& work,
                                        const std::atomic<bool>& wanted) {
  const PayloadId payload = work.record.manifest.id();
  const fs::path path = layout.undo(payload);
  // That of an earlier try, which the disk would not let go: nothing of the version has been overwritten since.
  WC_TRY(abandon_in_place(layout, payload));
  Result<UndoJournal> journal = UndoJournal::create(layout.files(), path.native());
  if (!journal.has_value()) {
    WC_TRY(abandon_in_place(layout, payload));  // what a full disk leaves of it holds nothing
    return journal.error();
  }
  Result<InPlaceChanges> changes = note_changes(work, *journal, wanted);
  if (!changes.has_value()) WC_TRY(abandon_in_place(layout, payload));
  return changes;
}

Status abandon_in_place(const StoreLayout& layout, PayloadId payload) {
  return remove_if_there(layout.files(), layout.undo(payload));
}

InPlaceResult install_in_place(const StoreLayout& layout, const InPlaceWork& work, const InPlaceChanges& changes) {
  InPlaceResult result;
  const PayloadId payload = work.record.manifest.id();
  const auto hidden_at = std::chrono::steady_clock::now();
  result.status = hide(layout, work);
  if (!result.status.has_value() && result.status.error().code == Errc::kBusy) return result;
  if (result.status.has_value()) result.status = change(layout, work, changes, result.switch_s);
  result.hidden_s = to_seconds(std::chrono::steady_clock::now() - hidden_at);
  if (result.status.has_value()) return result;
  const Status reverted = revert(layout, payload, work.files->table(), work.base_digest, work.threads);
  result.base_lost = !reverted.has_value();
  if (result.base_lost) {
    result.status = fail(Errc::kWrongBase, Op::kDecode,
                         fmt::format("{}; and version {} cannot be put back: {}", result.status.error().detail,
                                     payload.base.value, reverted.error().detail));
  }
  return result;
}

Status end_in_place(const StoreLayout& layout, Version version) {
  WC_ASSIGN(const std::vector<PayloadId> found, journals(layout));
  for (const PayloadId payload : found) {
    if (payload.version != version) continue;
    WC_TRY(remove_if_there(layout.files(), layout.record(payload.base)));
    WC_TRY(remove_if_there(layout.files(), layout.undo(payload)));
  }
  return {};
}

Status settle_in_place(const StoreLayout& layout, unsigned threads) {
  WC_ASSIGN(const std::vector<PayloadId> found, journals(layout));
  for (const PayloadId payload : found) WC_TRY(settle(layout, payload, threads));
  return {};
}

}  // namespace weightcast
