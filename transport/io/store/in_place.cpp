#include "transport/io/store/in_place.h"

#include <fmt/format.h>

#include <mutex>
#include <utility>
#include <vector>

#include "base/parallel.h"
#include "base/units.h"
#include "patch/apply/patch_applier.h"
#include "patch/apply/undo.h"
#include "transport/io/log.h"
#include "transport/io/store/patched_snapshot.h"
#include "transport/io/store/readable.h"
#include "transport/io/store/snapshot_check.h"
#include "transport/io/store/store_work.h"

namespace weightcast {
namespace {

namespace fs = std::filesystem;

constexpr std::size_t kReadBytes = 256 * kKiB;
// Small enough to stay in a core's cache from the read to the write.
constexpr std::uint32_t kWindowBytes = 256 * kKiB;
// A thread takes as long to start as a few windows to write.
constexpr std::uint64_t kParallelBytesMin = 2 * kMiB;

Status sync_files(VersionFiles& files) {
  for (std::size_t i = 0; i < files.table().files().size(); ++i) {
    WC_ASSIGN(const FileRef file, files.file(i));
    WC_TRY(file->sync_data());
  }
  return {};
}

Error unwanted() { return fail(Errc::kNotFound, Op::kDecode, "it is not wanted any more"); }

/// What reading the whole patch once tells.
struct FoundSegments {
  InPlaceChanges all;  ///< every segment, in the order of the plan, which is their order in the files
  PatchEnd end;
};

Result<InPlaceChanges> plan_of(const PatchHead& head, const InPlaceWork& work) {
  const Manifest& manifest = work.record.manifest;
  const std::uint64_t bytes = work.files->table().size_bytes();
  WC_TRY(check_head(
      head, {manifest.model_id, manifest.base_version, manifest.version, work.base_digest, manifest.snapshot_digest},
      bytes, bytes));
  std::vector<SegmentRange> plan = plan_segments(head);
  for (const SegmentRange& range : plan) {
    if (!range.has_base() || range.base_offset == range.result_offset) continue;
    // Nothing is wrong with it, but only the whole version helps.
    return fail(Errc::kWrongBase, Op::kDecode, "a patch that moves tensors cannot be applied in place");
  }
  const std::size_t segments = plan.size();
  return InPlaceChanges{std::move(plan), std::vector<SegmentPlace>(segments)};
}

Result<FoundSegments> find_segments(const InPlaceWork& work) {
  PatchReader reader;
  std::optional<InPlaceChanges> all;
  std::vector<std::byte> bytes;
  const std::uint64_t patch_bytes = work.record.manifest.payload_bytes;  // its file was made for the most it might be
  for (std::uint64_t at = 0; at < patch_bytes;) {
    bytes.resize(std::min<std::uint64_t>(patch_bytes - at, kReadBytes));
    WC_TRY(read_stream(*work.patch, at, bytes));
    for (Bytes left = bytes; !left.empty();) {
      WC_ASSIGN(const std::size_t taken, reader.handle_bytes(left));
      left = left.subspan(taken);
      at += taken;
      if (!all && reader.head() != nullptr) {
        WC_ASSIGN(all, plan_of(*reader.head(), work));
      }
      const std::optional<OwnedSegment> segment = reader.poll_segment();
      if (!segment) continue;
      const SegmentHeader& header = segment->header();
      SegmentPlace& place = all->places[header.range.index];
      place.size_bytes = kSegmentHeaderBytes + header.payload_bytes;
      place.offset_bytes = at - place.size_bytes;
    }
  }
  if (!all || reader.end() == nullptr) {
    return fail(Errc::kCorrupt, Op::kDecode, "the patch ends before it is complete");
  }
  return FoundSegments{std::move(*all), *reader.end()};
}

/// The old bytes go to the journal; nothing is written.
class NoteChanges final : public ApplyStreams {
 public:
  NoteChanges(const InPlaceWork& work, UndoJournal& journal) : work_(work), journal_(journal) {}

  Status read_base(std::uint64_t offset, MutableBytes cells) override {
    return weightcast::read_base(*work_.files, offset, cells);
  }
  Status write_result(std::uint64_t offset, Bytes before, Bytes after) override {
    if (!before.empty()) return journal_.record(offset, before, after);
    // New cells in the place of whatever stands there.
    overwritten_.resize(after.size());
    WC_TRY(read_base(offset, overwritten_));
    return journal_.record(offset, overwritten_, after);
  }

 private:
  const InPlaceWork& work_;
  UndoJournal& journal_;
  std::vector<std::byte> overwritten_;
};

/// The new bytes go where the old ones are.
class WriteChanges final : public ApplyStreams {
 public:
  explicit WriteChanges(const InPlaceWork& work) : work_(work) {}

  Status read_base(std::uint64_t offset, MutableBytes cells) override {
    return weightcast::read_base(*work_.files, offset, cells);
  }
  Status write_result(std::uint64_t offset, Bytes, Bytes after) override {
    return write_stream(*work_.files, offset, after);
  }

 private:
  const InPlaceWork& work_;
};

/// Applies the segment that stands at `place` in the patch's file, and says how it is told.
Result<SegmentMode> apply_at(const SegmentPlace& place, const InPlaceWork& work, PatchApplier& applier,
                             std::vector<std::byte>& frame) {
  frame.resize(place.size_bytes);
  WC_TRY(read_stream(*work.patch, place.offset_bytes, frame));
  WC_ASSIGN(const Segment segment, read_segment(frame));
  WC_TRY(applier.apply(segment));
  return segment.header.mode;
}

Result<InPlaceChanges> note_changes(const InPlaceWork& work, UndoJournal& journal, const std::atomic<bool>& wanted) {
  WC_ASSIGN(FoundSegments found, find_segments(work));
  InPlaceChanges changes{std::move(found.all.plan), {}};
  NoteChanges streams(work, journal);
  PatchApplier applier(changes.plan, work.files->table(), streams,
                       {.window_bytes = kWindowBytes, .keeps_before = true});
  std::vector<std::byte> frame;
  for (const SegmentPlace& place : found.all.places) {
    if (!wanted) return unwanted();
    if (place.size_bytes == 0) return fail(Errc::kCorrupt, Op::kDecode, "the patch ends before it is complete");
    WC_ASSIGN(const SegmentMode mode, apply_at(place, work, applier, frame));
    if (mode != SegmentMode::kUnchanged) changes.places.push_back(place);
  }
  WC_ASSIGN(const Checksum digest, applier.finish(found.end));
  if (digest != work.record.manifest.snapshot_digest) {
    return fail(Errc::kCorrupt, Op::kVerify, "the patch leads to other bytes than its manifest says");
  }
  WC_TRY(journal.sync());
  return changes;
}

Status write_changes(const InPlaceWork& work, const InPlaceChanges& changes, const std::atomic<bool>& wanted) {
  WriteChanges streams(work);
  // What they lead to was hashed before.
  PatchApplier applier(changes.plan, work.files->table(), streams, {.window_bytes = kWindowBytes, .hashes = false});
  std::mutex mutex;  // guards `status` and `idle`
  Status status;
  std::vector<std::vector<std::byte>> idle;
  for_each_index(changes.places.size(), work.files->table().size_bytes() >= kParallelBytesMin ? work.threads : 1,
                 [&](std::size_t i) {
                   std::vector<std::byte> frame;
                   {
                     const std::lock_guard lock(mutex);
                     if (status.has_value() && !wanted) status = unwanted();
                     if (!status.has_value()) return;
                     if (!idle.empty()) {
                       frame = std::move(idle.back());
                       idle.pop_back();
                     }
                   }
                   const Result<SegmentMode> written = apply_at(changes.places[i], work, applier, frame);
                   const std::lock_guard lock(mutex);
                   idle.push_back(std::move(frame));
                   if (!written.has_value()) status = written.error();
                 });
  return status;
}

/// Steps 3 to 5.
Status change(const StoreLayout& layout, const InPlaceWork& work, const InPlaceChanges& changes,
              const std::atomic<bool>& wanted, double& switch_s) {
  WC_TRY(write_changes(work, changes, wanted));
  return install_patched(layout, work.record.manifest, switch_s);
}

/// Step 2. Errors: kBusy, with everything where it was; kUnsupported, kIo.
Status hide(const StoreLayout& layout, const InPlaceWork& work) {
  const Manifest& manifest = work.record.manifest;
  const fs::path home = layout.complete(manifest.base_version), hidden = layout.incoming(manifest.version);
  // What there is of the version as another payload was given up, and may not have found room in the trash.
  WC_ASSIGN(const bool left_over, is_there(layout.files(), hidden));
  if (left_over) WC_TRY(layout.throw_away(hidden));
  WC_TRY(layout.files().rename(home, hidden));
  // Only now: from here on nobody can open them by a name that he knows.
  work.files->close_all();
  const Status unused = check_unused(layout.files(), hidden, work.files->table());
  if (unused.has_value() || unused.error().code != Errc::kBusy) return unused;
  WC_TRY(layout.files().rename(hidden, home));
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
  const fs::path home = layout.complete(payload.base), hidden = layout.incoming(payload.version);
  WC_ASSIGN(const bool is_home, is_there(files, home));
  WC_ASSIGN(const bool is_hidden, is_there(files, hidden));
  WC_ASSIGN(const bool is_installed, is_there(files, layout.complete(payload.version)));
  if (!is_home && !is_hidden && is_installed) WC_TRY(files.rename(layout.complete(payload.version), hidden));
  // Before the journal goes: with it what has become of the version is known.
  WC_ASSIGN(const StoreLayout::Current current, layout.read_current());
  if (current.version == payload.version) WC_TRY(layout.switch_current(payload.base));
  WC_TRY(remove_if_there(files, layout.record(payload.version)));
  WC_ASSIGN(const std::shared_ptr<VersionFiles> base, VersionFiles::open(files, is_home ? home : hidden, table));
  const auto finish = [&]() -> Status {
    WC_TRY(sync_files(*base));
    WC_ASSIGN(const SnapshotDigest digest, files_digest(*base, threads));
    // An earlier release's digest says nothing here.
    if (base_digest != Checksum{} && digest.root() != base_digest) {
      return fail(Errc::kCorrupt, Op::kVerify, "what its journal put back does not match its digest");
    }
    if (!is_home) WC_TRY(files.rename(hidden, home));
    WC_TRY(sync_directory(files, layout.versions()));
    return sync_directory(files, layout.incoming());
  };
  const fs::path journal = layout.undo(payload);
  const Result<Recovered> recovered = recover(
      files, journal.native(), [&](std::uint64_t offset, Bytes old) { return write_old(*base, offset, old, journal); },
      finish);
  if (recovered.has_value()) return {};
  if (!is_proven_wrong(recovered.error())) return recovered.error();
  // A power cut may have torn the journal while it was made, before anything was overwritten. The digest tells.
  const Status whole = finish();
  if (!whole.has_value()) return is_proven_wrong(whole.error()) ? recovered.error() : whole.error();
  return abandon_in_place(layout, payload);
}

/// Whether versions/N is what was to be made; then it is made durable. Errors: those that leave it open, too.
Result<bool> is_made(const StoreLayout& layout, Version version) {
  const auto no_if_wrong = [](const Error& error) -> Result<bool> {
    if (is_proven_wrong(error)) return false;
    return error;
  };
  const Result<VersionRecord> record = read_record(layout.files(), layout.record(version));
  if (!record.has_value()) return no_if_wrong(record.error());
  WC_ASSIGN(FileTable table, FileTable::make(record->manifest.files));
  const Result<std::shared_ptr<VersionFiles>> files =
      VersionFiles::open(layout.files(), layout.complete(version), std::move(table));
  if (!files.has_value()) return no_if_wrong(files.error());
  if (record->durable) {
    WC_TRY(sync_record(layout.files(), layout.record(version)));
    return true;
  }
  if (record->outdated) return false;  // it has a digest that says nothing here: back to the version before
  // A sync may have failed while the process lived: another one alone would say nothing.
  const std::atomic<bool> wanted = true;
  const Status written = write_again(layout, *record, **files, wanted);
  if (!written.has_value()) return no_if_wrong(written.error());
  WC_TRY(sync_files(**files));
  WC_TRY(sync_names_and_mark(layout, version, **files));
  return true;
}

Status settle(const StoreLayout& layout, PayloadId payload, unsigned threads) {
  const Result<bool> made = is_made(layout, payload.version);
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
  WC_ASSIGN(const std::vector<std::string> names, layout.files().list(layout.undo()));
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
  Result<UndoJournal> journal = UndoJournal::create(layout.files(), path.native(), path.filename().native());
  if (!journal.has_value()) {
    // What a full disk leaves of it holds nothing.
    if (journal.error().code != Errc::kAlreadyExists) WC_TRY(remove_if_there(layout.files(), path));
    return journal.error();
  }
  Result<InPlaceChanges> changes = note_changes(work, *journal, wanted);
  if (!changes.has_value()) WC_TRY(abandon_in_place(layout, payload));
  return changes;
}

Status abandon_in_place(const StoreLayout& layout, PayloadId payload) {
  return remove_if_there(layout.files(), layout.undo(payload));
}

InPlaceResult install_in_place(const StoreLayout& layout, const InPlaceWork& work, const InPlaceChanges& changes,
                               const std::atomic<bool>& wanted) {
  InPlaceResult result;
  const PayloadId payload = work.record.manifest.id();
  const auto hidden_at = std::chrono::steady_clock::now();
  result.status = hide(layout, work);
  if (!result.status.has_value() && result.status.error().code == Errc::kBusy) return result;
  if (result.status.has_value()) result.status = change(layout, work, changes, wanted, result.switch_s);
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

Result<Version> base_in_journal(const StoreLayout& layout, Version version) {
  WC_ASSIGN(const std::vector<PayloadId> found, journals(layout));
  for (const PayloadId payload : found) {
    if (payload.version == version) return payload.base;
  }
  return kNoVersion;
}

Status settle_in_place(const StoreLayout& layout, unsigned threads) {
  WC_ASSIGN(const std::vector<PayloadId> found, journals(layout));
  for (const PayloadId payload : found) WC_TRY(settle(layout, payload, threads));
  return {};
}

}  // namespace weightcast
