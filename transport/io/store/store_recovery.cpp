#include "transport/io/store/store_recovery.h"

#include <algorithm>
#include <functional>
#include <map>
#include <optional>
#include <set>
#include <string>

#include "transport/io/log.h"
#include "transport/io/store/files/readable.h"
#include "transport/io/store/files/recovery_checks.h"
#include "transport/io/store/kept_version.h"
#include "transport/io/store/store_work.h"

namespace weightcast {
namespace {

namespace fs = std::filesystem;

/// One pass over what a store's directory holds of one run.
class Recovery {
 public:
  Recovery(const StoreLayout& layout, unsigned threads) : layout_(layout), threads_(threads) {}

  Result<RecoveredStore> run() {
    WC_TRY(read_records());
    WC_TRY(look_at_complete());
    if (layout_.in_memory()) WC_TRY(look_at_kept());
    WC_TRY(look_at_patches());
    WC_TRY(look_at_incoming());
    for (const auto& [payload, _] : records_) {
      log_info("store: {} has no files; removed", layout_.record(payload).native());
      WC_TRY(remove_if_there(layout_.files(), layout_.record(payload)));
    }
    found_.current = found_.complete.empty() ? kNoVersion : found_.complete.back().record.manifest.version;
    return std::move(found_);
  }

 private:
  /// The payloads of this run that a folder has entries of this kind for; what is of no run is moved aside.
  Result<std::set<PayloadId>> payloads_in(const fs::path& folder, FileInfo::Kind kind) {
    std::set<PayloadId> payloads;
    WC_ASSIGN(const std::vector<std::string> names, layout_.files().list(folder));
    for (const std::string& name : names) {
      const auto named = StoreLayout::named(name);
      if (named && named->run != layout_.run()) continue;
      const Result<FileInfo> info = layout_.files().info(folder / name);
      if (!info.has_value() && info.error().code != Errc::kNotFound) return cannot_look_at(folder / name, info.error());
      if (named && info.has_value() && info->kind == kind) {
        payloads.insert(named->payload);
      } else {
        static_cast<void>(layout_.move_aside(folder / name));  // else it is in nobody's way
      }
    }
    return payloads;
  }

  Status read_records() {
    WC_ASSIGN(const std::vector<std::string> names, layout_.files().list(layout_.records()));
    for (const std::string& name : names) {
      const fs::path path = layout_.records() / name;
      if (path.extension() != ".tmp" || !layout_.payload_of(path.stem().native())) continue;
      WC_TRY(remove_if_there(layout_.files(), path));
    }
    WC_ASSIGN(const std::set<PayloadId> payloads, payloads_in(layout_.records(), FileInfo::Kind::kFile));
    for (const PayloadId payload : payloads) {
      const fs::path path = layout_.record(payload);
      Result<VersionRecord> record = read_record(layout_.files(), path);
      // A version's record has the manifest of the payload that brought it, which may be a patch.
      if (record.has_value() && (record->manifest.id() == payload ||
                                 (!payload.is_encoded() && record->manifest.version == payload.version))) {
        WC_TRY(cut_torn_entry(layout_.files(), path, *record));
        records_.emplace(payload, std::move(*record));
        continue;
      }
      if (!record.has_value() && !is_proven_wrong(record.error())) return cannot_look_at(path, record.error());
      log_warning("store: {} is damaged; removed ({})", path.native(),
                  record.has_value() ? "it is that of another version" : record.error().detail);
      WC_TRY(remove_if_there(layout_.files(), path));
    }
    return {};
  }

  /// The files under `path`, of a snapshot or of a payload, or the reason why they are not what their record says.
  Result<RecoveredVersion> open_recorded(PayloadId payload, const fs::path& path) {
    const auto record = records_.find(payload);
    if (record == records_.end()) return fail(Errc::kCorrupt, Op::kOpen, "it has no record");
    const Manifest& manifest = record->second.manifest;
    if (manifest.open) return fail(Errc::kCorrupt, Op::kOpen, "it was still being made");
    WC_ASSIGN(FileTable table, files_of(payload, manifest));
    WC_ASSIGN(FilesRef files, VersionFiles::open(layout_.files(), path, std::move(table)));
    WC_ASSIGN(const std::vector<std::string> foreign, foreign_names(layout_.files(), path, files->table()));
    for (const std::string& name : foreign) {
      log_warning("store: {} is not of {} and stays there; it moves to {} when that is deleted", (path / name).native(),
                  to_string(payload), layout_.aside().native());
    }
    return RecoveredVersion{record->second, std::move(files), ChunkSet()};
  }

  static Result<FileTable> files_of(PayloadId payload, const Manifest& manifest) {
    return payload.is_encoded() ? payload_files(manifest) : FileTable::make(manifest.files);
  }

  Status throw_away(PayloadId payload, const fs::path& path, std::string_view reason) {
    log_warning("store: {} thrown away: {}", path.native(), reason);
    std::optional<FileTable> table;
    if (const auto record = records_.find(payload); record != records_.end()) {
      if (Result<FileTable> made = files_of(payload, record->second.manifest); made.has_value()) table = *made;
      records_.erase(record);
    }
    WC_TRY(layout_.throw_away(path, table));
    return remove_if_there(layout_.files(), layout_.record(payload));
  }

  /// After `error`, which came up when what is at `path` was looked at.
  Status throw_away_if_wrong(PayloadId payload, const fs::path& path, const Error& error) {
    if (!is_proven_wrong(error)) return cannot_look_at(path, error);
    return throw_away(payload, path, error.detail);
  }

  Status look_at_complete() {
    WC_ASSIGN(const std::set<PayloadId> versions, payloads_in(layout_.versions(), FileInfo::Kind::kDirectory));
    for (const PayloadId version : versions) {
      if (version.is_encoded()) {
        static_cast<void>(layout_.move_aside(layout_.versions() / layout_.patch(version).filename()));
        continue;
      }
      const fs::path path = layout_.complete(version.version);
      Result<RecoveredVersion> found = open_recorded(version, path);
      if (!found.has_value()) {
        WC_TRY(throw_away_if_wrong(version, path, found.error()));
        continue;
      }
      VersionRecord& record = found->record;
      const bool was_synced = record.durable;
      const bool servable = record.manifest.id().is_encoded() || record.digests.complete();
      // The process before may have been told of a sync that failed. Where there is no room the version is made durable
      // once more when there is.
      bool is_written = record.durable;
      if (record.durable) {
        WC_ASSIGN(is_written, write_record_if_room(layout_.files(), layout_.record(version)));
      }
      // Whatever its record says: its bytes may have rotted, or been found wrong before a power cut undid its removal.
      auto leaves = matching_leaves(record.manifest, *found->files, threads_);
      if (!leaves.has_value()) return cannot_look_at(path, leaves.error());
      if (*leaves == nullptr || (!was_synced && !servable)) {
        WC_TRY(throw_away(version, path,
                          was_synced ? "it does not match its digest any more; check this host's memory and disk"
                                     : "it had not been synced, and does not match its digest"));
        continue;
      }
      found->leaves = std::move(*leaves);
      records_.erase(version);
      record.durable = is_written;
      found_.complete.push_back(std::move(*found));
    }
    return {};
  }

  /// What a power cut has left of versions in memory is copied there. What the disk has of one that is there already
  /// makes it durable.
  Status look_at_kept() {
    WC_ASSIGN(RecoveredKept kept, recover_kept(layout_, found_.complete, threads_));
    if (kept.restored) {
      records_.erase(kept.restored->record.manifest.version);
      found_.complete.push_back(std::move(*kept.restored));
    }
    found_.kept = kept.kept;
    found_.is_kept_durable = kept.is_durable;
    return {};
  }

  /// Why nobody can use a patch, although it may be whole. Those to versions before the newest are links of a chain,
  /// and outlive what they lead to. But the number of a version that was lost may come back with other bytes.
  [[nodiscard]] std::optional<std::string> why_useless(const Manifest& patch) const {
    if (found_.complete.empty() || found_.complete.back().record.manifest.version < patch.version) {
      return "the version that it leads to is not here";
    }
    for (const RecoveredVersion& version : found_.complete) {
      const Manifest& there = version.record.manifest;
      if (there.version == patch.version && there.snapshot_digest != patch.snapshot_digest) {
        return "it leads to another version of this number";
      }
    }
    return std::nullopt;
  }

  Status look_at_patches() {
    WC_ASSIGN(const std::set<PayloadId> patches, payloads_in(layout_.patches(), FileInfo::Kind::kDirectory));
    for (const PayloadId patch : patches) {
      const fs::path path = layout_.patch(patch);
      if (patch.is_packed()) {
        // To look at it would cost a start as much as to look at the version.
        WC_TRY(layout_.throw_away(path));
        continue;
      }
      Result<RecoveredVersion> found = open_recorded(patch, path);
      if (!found.has_value()) {
        WC_TRY(throw_away_if_wrong(patch, path, found.error()));
        continue;
      }
      if (const std::optional<std::string> reason = why_useless(found->record.manifest)) {
        WC_TRY(throw_away(patch, path, *reason));
        continue;
      }
      // Small, and never synced: looked at each time.
      const Result<ChunkSet> held = verify_chunks(found->record, *found->files, threads_);
      if (!held.has_value()) return cannot_look_at(path, held.error());
      if (!held->complete()) {
        WC_TRY(throw_away(patch, path, "it does not match its digests"));
        continue;
      }
      records_.erase(patch);
      found_.patches.push_back(std::move(*found));
    }
    return {};
  }

  Status look_at_incoming() {
    WC_ASSIGN(const std::set<PayloadId> payloads, payloads_in(layout_.incoming(), FileInfo::Kind::kDirectory));
    for (const PayloadId payload : payloads) {
      const fs::path path = layout_.incoming(payload);
      const bool complete = std::any_of(found_.complete.begin(), found_.complete.end(), [&](const auto& found) {
        return found.record.manifest.version == payload.version;
      });
      if (complete) {
        log_info("store: {} thrown away: the version is complete", path.native());
        WC_TRY(layout_.throw_away(path));
        continue;
      }
      Result<RecoveredVersion> found = open_recorded(payload, path);
      if (!found.has_value()) {
        WC_TRY(throw_away_if_wrong(payload, path, found.error()));
        continue;
      }
      if (payload.is_full() && found->record.manifest.id().is_encoded()) {
        WC_TRY(throw_away(payload, path, "a patch was being applied to it"));
        continue;
      }
      const bool has_base = !payload.is_patch() || std::ranges::any_of(found_.complete, [&](const auto& each) {
        return each.record.manifest.version == payload.base;
      });
      if (!has_base) {
        WC_TRY(throw_away(payload, path, "the version that it leads on from is not here"));
        continue;
      }
      Result<ChunkSet> held = verify_chunks(found->record, *found->files, threads_);
      if (!held.has_value()) return cannot_look_at(path, held.error());
      found->held = std::move(*held);
      log_info("store: version {} is partly here: {} of {} chunks", payload.version.value, found->held.count(),
               found->held.size());
      records_.erase(payload);
      found_.partial.push_back(std::move(*found));
    }
    return {};
  }

  const StoreLayout& layout_;
  const unsigned threads_;
  std::map<PayloadId, VersionRecord> records_;  // those whose files were not met yet
  RecoveredStore found_;
};

/// Runs before the one of `layout` of which there may be versions, the last one first.
Result<std::set<std::uint32_t, std::greater<>>> earlier_runs(const StoreLayout& layout) {
  std::set<std::uint32_t, std::greater<>> runs;
  for (const StoreLayout& place : layout.places()) {
    WC_ASSIGN(const std::vector<std::string> names, names_in(layout.files(), place.versions()));
    for (const std::string& name : names) {
      const auto named = StoreLayout::named(name);
      if (named && named->run < layout.run()) runs.insert(named->run);
    }
  }
  return runs;
}

/// Throws away what is of other runs than that of `layout`, but for the earlier versions that were found complete.
Status discard_other_runs(const StoreLayout& layout, const RecoveredStore& found) {
  std::set<PayloadId> complete;
  for (const RecoveredVersion& version : found.earlier) complete.insert(version.record.manifest.version);
  for (const fs::path& folder : {layout.incoming(), layout.versions(), layout.patches(), layout.records()}) {
    WC_ASSIGN(const std::vector<std::string> names, layout.files().list(folder));
    for (const std::string& name : names) {
      const auto named = StoreLayout::named(name.ends_with(".tmp") ? name.substr(0, name.size() - 4) : name);
      if (!named || named->run == layout.run()) continue;
      const bool is_file = folder == layout.records();
      const bool whole = named->run == found.earlier_run && complete.contains(named->payload);
      if (whole && (folder == layout.versions() || folder == layout.records())) continue;
      WC_TRY(is_file ? remove_if_there(layout.files(), folder / name) : layout.throw_away(folder / name));
    }
  }
  return {};
}

/// Points `current` at the newest version of this run, or else of the one before.
Status settle_current(const StoreLayout& layout, const RecoveredStore& found) {
  WC_ASSIGN(const StoreLayout::Current current, layout.read_current());
  if (current.foreign) {
    WC_TRY(make_directories(layout.files(), layout.on_disk().aside()));
    WC_TRY(layout.on_disk().move_aside(layout.current()));
  }
  if (found.current == kNoVersion && found.earlier.empty()) return remove_if_there(layout.files(), layout.current());
  const bool ours = found.current != kNoVersion;
  const StoreLayout names = ours ? layout : layout.of_run(found.earlier_run);
  const Version version = ours ? found.current : found.earlier.back().record.manifest.version;
  if (current.run == names.run() && names.read_current().value_or(StoreLayout::Current{}).version == version) return {};
  log_info("store: current version is {} now{}", version.value, ours ? "" : ", of the run before");
  return names.switch_current(version);
}

}  // namespace

Result<RecoveredStore> recover_store(const StoreLayout& layout, bool keeps_on_disk, unsigned threads) {
  layout.drop_spare();
  layout.empty_trash();
  WC_TRY(remove_if_there(layout.files(), layout.directory() / "current.tmp"));
  WC_TRY(take_form_before(layout));
  WC_ASSIGN(RecoveredStore found, Recovery(layout, threads).run());
  const auto is_safe = [&](const RecoveredVersion& version) { return layout.in_memory() || version.record.durable; };
  if (std::ranges::none_of(found.complete, is_safe)) {
    WC_ASSIGN(const auto runs, earlier_runs(layout));
    for (const std::uint32_t run : runs) {
      const StoreLayout theirs = layout.of_run(run);
      WC_ASSIGN(RecoveredStore before, Recovery(theirs, threads).run());
      if (before.complete.empty()) continue;
      found.earlier = std::move(before.complete);
      found.earlier_run = run;
      break;
    }
  }
  WC_TRY(discard_other_runs(layout, found));
  if (layout.in_memory()) {
    if (!keeps_on_disk) found.kept = kNoVersion;
    WC_TRY(sweep_disk(layout, found.kept));
    if (!found.is_kept_durable) found.kept = kNoVersion;
  }
  WC_TRY(settle_current(layout, found));
  layout.empty_trash();
  return found;
}

}  // namespace weightcast
