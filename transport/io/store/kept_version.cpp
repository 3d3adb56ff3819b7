#include "transport/io/store/kept_version.h"

#include <algorithm>
#include <functional>
#include <ranges>
#include <string>
#include <utility>

#include "base/parallel.h"
#include "transport/io/log.h"
#include "transport/io/store/files/readable.h"
#include "transport/io/store/files/recovery_checks.h"
#include "transport/io/store/files/snapshot_check.h"

namespace weightcast {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kRecordSuffix = ".record";

/// The record last: a version without one does not count, nor does a record without a version.
Status drop(const StoreLayout& disk, Version version) {
  WC_TRY(disk.throw_away(disk.complete(version)));
  return remove_if_there(disk.files(), disk.record(version));
}

/// The versions of the layout's run in a folder, newest first.
Result<std::vector<Version>> versions_in(const StoreLayout& layout, const fs::path& folder) {
  WC_ASSIGN(const std::vector<std::string> names, names_in(layout.files(), folder));
  std::vector<Version> found;
  for (const std::string& name : names) {
    const auto payload = layout.payload_of(name);
    if (payload && payload->is_full()) found.push_back(payload->version);
  }
  std::ranges::sort(found, std::greater<>());
  return found;
}

/// A version on the disk, as its record says. Errors: kCorrupt, kNotFound, kIo.
Result<RecoveredVersion> open_kept(const StoreLayout& disk, Version version) {
  WC_ASSIGN(VersionRecord record, read_record(disk.files(), disk.record(version)));
  if (record.manifest.version != version) return fail(Errc::kCorrupt, Op::kOpen, "its record is of another version");
  WC_ASSIGN(FileTable table, FileTable::make(record.manifest.files));
  WC_ASSIGN(FilesRef files, VersionFiles::open(disk.files(), disk.complete(version), std::move(table)));
  return RecoveredVersion{std::move(record), std::move(files), ChunkSet()};
}

/// Copies `kept` to where versions lie. Errors: kCorrupt (it is not what its record says), kNoSpace, kIo.
Result<RecoveredVersion> restore(const StoreLayout& layout, const RecoveredVersion& kept, unsigned threads) {
  const Manifest& manifest = kept.record.manifest;
  const Version version = manifest.version;
  WC_TRY(layout.throw_away(layout.incoming(version)));
  layout.empty_trash();
  WC_ASSIGN(const FilesRef target, VersionFiles::create(layout.files(), layout.incoming(version), kept.files->table()));
  SnapshotDigest digest(target->table());
  WC_TRY(for_each_until_error(digest.leaf_count(), threads, [&](std::size_t leaf) {
    const std::uint64_t begin = digest.leaf_offset_bytes(leaf);
    return copy_range(*kept.files, *target, begin, begin + digest.leaf_size_bytes(leaf), digest);
  }));
  if (digest.root() != manifest.snapshot_digest) {
    return fail(Errc::kCorrupt, Op::kVerify, "it does not match its digest; check this host's disk");
  }
  VersionRecord record = kept.record;
  record.durable = false;
  record.torn_at.reset();
  WC_TRY(make_missing_digests(record, *target, threads));
  WC_TRY(write_record(layout.files(), layout.record(version), record));
  WC_TRY(layout.throw_away(layout.complete(version)));
  WC_TRY(layout.files().rename(layout.incoming(version), layout.complete(version)));
  RecoveredVersion restored{std::move(record), target, ChunkSet()};
  restored.leaves = std::make_shared<const LeafSums>(digest.leaves());
  return restored;
}

}  // namespace

KeptCopy::KeptCopy(StoreLayout disk, VersionRecord record, FilesRef source, FilesRef target)
    : disk_(std::move(disk)),
      record_(std::move(record)),
      source_(std::move(source)),
      target_(std::move(target)),
      digest_(target_->table()) {}

Result<std::shared_ptr<KeptCopy>> KeptCopy::begin(const StoreLayout& layout, VersionRecord record, FilesRef source) {
  StoreLayout disk = layout.on_disk();
  WC_TRY(disk.make_folders());
  const fs::path path = disk.incoming(record.manifest.version);
  WC_TRY(remove_all(disk.files(), path));
  WC_ASSIGN(auto target, VersionFiles::create(disk.files(), path, source->table()));
  record.durable = true;
  return std::shared_ptr<KeptCopy>(
      new KeptCopy(std::move(disk), std::move(record), std::move(source), std::move(target)));
}

Status KeptCopy::copy_piece() {
  const std::size_t end = std::min(next_leaf_ + kLeavesPerPiece, digest_.leaf_count());
  const std::uint64_t begin_bytes = digest_.leaf_offset_bytes(next_leaf_);
  const std::uint64_t bytes = std::min(digest_.leaf_offset_bytes(end), source_->table().size_bytes()) - begin_bytes;
  WC_TRY(copy_range(*source_, *target_, begin_bytes, begin_bytes + bytes, digest_));
  for (const FilePiece& piece : target_->table().pieces(begin_bytes, bytes)) {
    WC_ASSIGN(const FileRef file, target_->file(piece.file));
    WC_TRY(file->sync_data());
  }
  next_leaf_ = end;
  return {};
}

Status KeptCopy::finish() {
  WC_CHECK(complete());
  if (digest_.root() != record_.manifest.snapshot_digest) {
    return fail(Errc::kCorrupt, Op::kVerify, "its files in memory do not match the snapshot's digest any more");
  }
  // Files without a byte are in no piece.
  for (std::size_t i = 0; i < target_->table().files().size(); ++i) {
    if (target_->table().files()[i].size_bytes > 0) continue;
    WC_ASSIGN(const FileRef file, target_->file(i));
    WC_TRY(file->sync_data());
  }
  WC_TRY(target_->sync_names());
  const Version version = record_.manifest.version;
  FileSystem& files = disk_.files();
  WC_TRY(drop(disk_, version));
  WC_TRY(rewrite_record(files, disk_.record(version), record_));
  WC_TRY(sync_directory(files, disk_.records()));
  WC_TRY(files.rename(disk_.incoming(version), disk_.complete(version)));
  for (const fs::path& folder : {disk_.versions(), disk_.incoming(), disk_.directory()}) {
    WC_TRY(sync_directory(files, folder));
  }
  WC_ASSIGN(const std::vector<Version> versions, versions_in(disk_, disk_.versions()));
  for (const Version other : versions) {
    if (other != version) WC_TRY(drop(disk_, other));
  }
  disk_.empty_trash();
  return {};
}

void KeptCopy::discard() const {
  static_cast<void>(remove_all(disk_.files(), disk_.incoming(record_.manifest.version)));
}

Result<RecoveredKept> recover_kept(const StoreLayout& layout, const std::vector<RecoveredVersion>& complete,
                                   unsigned threads) {
  RecoveredKept found;
  const StoreLayout disk = layout.on_disk();
  WC_ASSIGN(const std::vector<Version> versions, versions_in(disk, disk.versions()));
  if (versions.empty()) return found;
  WC_TRY(disk.make_folders());
  Version newest = complete.empty() ? kNoVersion : complete.back().record.manifest.version;
  for (const Version version : versions) {
    const Result<RecoveredVersion> kept = open_kept(disk, version);
    Status usable = kept.has_value() ? Status() : Status(kept.error());
    if (usable.has_value() && version > newest) {
      Result<RecoveredVersion> restored = restore(layout, *kept, threads);
      if (restored.has_value()) {
        newest = version;
        found.restored = std::move(*restored);
      } else {
        WC_TRY(layout.throw_away(layout.incoming(version)));
        usable = restored.error();
      }
    }
    if (!usable.has_value() && !is_proven_wrong(usable.error())) {
      return cannot_look_at(disk.complete(version), usable.error());
    }
    if (!usable.has_value()) {
      log_warning("store: {} thrown away: {}", disk.complete(version).native(), usable.error().detail);
      WC_TRY(drop(disk, version));
      continue;
    }
    const auto in_memory =
        std::ranges::find(complete, version, [](const RecoveredVersion& each) { return each.record.manifest.version; });
    // Its number has come back with other bytes.
    const bool is_other = in_memory != complete.end() &&
                          in_memory->record.manifest.snapshot_digest != kept->record.manifest.snapshot_digest;
    if (is_other || !kept->record.durable) {
      WC_TRY(drop(disk, version));
      continue;
    }
    // A process that ended before it had synced their names may have left it: older ones go now, and a power cut must
    // find this one.
    found.kept = version;
    WC_ASSIGN(found.is_durable, write_record_if_room(disk.files(), disk.record(version)));
    if (!found.is_durable) break;
    for (const fs::path& folder : {disk.records(), disk.versions(), disk.incoming(), disk.directory()}) {
      WC_TRY(sync_directory(disk.files(), folder));
    }
    break;
  }
  return found;
}

Status sweep_disk(const StoreLayout& layout, Version kept) {
  const StoreLayout disk = layout.on_disk();
  FileSystem& files = layout.files();
  for (const fs::path& folder : {disk.versions(), disk.records(), disk.patches(), disk.incoming()}) {
    WC_ASSIGN(const std::vector<std::string> names, names_in(files, folder));
    for (const std::string& name : names) {
      const auto named = StoreLayout::named(name.ends_with(".tmp") ? name.substr(0, name.size() - 4) : name);
      if (!named) continue;
      const bool is_record = folder == disk.records();
      const bool stays = is_record || folder == disk.versions();
      if (stays && kept != kNoVersion && disk.payload_of(name) == PayloadId(kept)) continue;
      if (!is_record) WC_TRY(disk.make_folders());
      WC_TRY(is_record ? remove_if_there(files, folder / name) : disk.throw_away(folder / name));
    }
  }
  WC_ASSIGN(const bool has_trash, is_there(files, disk.trash()));
  if (has_trash) disk.empty_trash();
  return {};
}

Status take_form_before(const StoreLayout& layout) {
  FileSystem& files = layout.files();
  const StoreLayout disk = layout.on_disk();
  const fs::path anchors = disk.directory() / "anchors";
  WC_ASSIGN(const bool had_log, is_there(files, anchors));
  if (had_log && layout.in_memory()) {
    WC_ASSIGN(const std::vector<Version> versions, versions_in(layout, layout.versions()));
    for (const Version version : versions) {
      WC_ASSIGN(const bool has_record, is_there(files, layout.record(version)));
      if (has_record) continue;
      Result<VersionRecord> record = read_record(files, disk.record(version));
      if (!record.has_value() && !is_proven_wrong(record.error())) {
        return cannot_look_at(disk.record(version), record.error());
      }
      if (!record.has_value()) continue;
      record->durable = false;
      WC_TRY(write_record(files, layout.record(version), *record));
    }
  }
  if (had_log) {
    WC_TRY(disk.make_folders());
    WC_ASSIGN(const std::vector<Version> versions, versions_in(disk, anchors));
    for (const Version version : versions) {
      const fs::path from = anchors / disk.complete(version).filename();
      const fs::path record = from.native() + std::string(kRecordSuffix);
      WC_ASSIGN(const bool has_record, is_there(files, record));
      if (has_record) WC_TRY(files.rename(record, disk.record(version)));
      // An earlier try may have moved its record alone.
      WC_ASSIGN(const bool is_whole, is_there(files, disk.record(version)));
      if (!is_whole) continue;
      WC_TRY(disk.throw_away(disk.complete(version)));
      WC_TRY(files.rename(from, disk.complete(version)));
    }
    WC_TRY(sync_directory(files, disk.records()));
    WC_TRY(sync_directory(files, disk.versions()));
  }
  for (const fs::path& left :
       {anchors, disk.directory() / "arriving", disk.directory() / "undo", layout.versions_root() / "undo"}) {
    WC_TRY(remove_all(files, left));
  }
  return {};
}

}  // namespace weightcast
