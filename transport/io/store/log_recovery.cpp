#include "transport/io/store/log_recovery.h"

#include <fmt/format.h>

#include <algorithm>
#include <optional>
#include <utility>
#include <vector>

#include "base/parallel.h"
#include "transport/io/log.h"
#include "transport/io/store/anchor.h"
#include "transport/io/store/files/read_patch.h"
#include "transport/io/store/files/readable.h"
#include "transport/io/store/files/recovery_checks.h"
#include "transport/io/store/files/snapshot_check.h"
#include "transport/io/store/files/version_files.h"

namespace weightcast {
namespace {

namespace fs = std::filesystem;

using Records = std::map<PayloadId, VersionRecord>;

/// `files` hold the patch's base, and its result afterwards. Nobody reads them yet, and after a crash all begins anew.
Status apply_in_place(VersionFiles& files, VersionFiles& patch, const Manifest& manifest, const Checksum& base_digest,
                      unsigned threads) {
  InPlaceStreams streams(files);
  std::optional<PatchApplier> applier;
  const auto start = [&](std::vector<SegmentRange> plan) -> Status {
    applier.emplace(std::move(plan), files.table(), streams, ApplyOptions{.window_bytes = kWriteBytes});
    return {};
  };
  const auto apply = [&](const Segment& segment) { return applier->apply(segment); };
  const Result<PatchEnd> end = read_patch(patch, manifest, base_digest, files.table(), threads, start, apply);
  // The base is what its digest says, so what does not fit it is the patch: a base in memory had rotted when it was
  // made.
  if (!end.has_value() && end.error().code == Errc::kWrongBase) {
    return fail(Errc::kCorrupt, Op::kDecode, end.error().detail);
  }
  if (!end.has_value()) return end.error();
  WC_ASSIGN(const Checksum digest, applier->finish(*end));
  if (digest == manifest.snapshot_digest) return {};
  return fail(Errc::kCorrupt, Op::kVerify, "its result does not match the snapshot's digest");
}

/// An anchor, or a patch of the log.
struct Recorded {
  VersionRecord record;
  FilesRef files;
};

/// Errors: those of VersionFiles::open().
Result<Recorded> open_recorded(const StoreLayout& layout, const VersionRecord& record, const fs::path& path) {
  WC_ASSIGN(FileTable table, FileTable::make(record.manifest.files));
  WC_ASSIGN(FilesRef files, VersionFiles::open(layout.files(), path, std::move(table)));
  return Recorded{record, std::move(files)};
}

/// Errors: those of read_record(), too.
Result<Recorded> open_anchor(const StoreLayout& layout, Version version) {
  WC_ASSIGN(const VersionRecord record, read_record(layout.files(), layout.anchor_record(version)));
  if (record.manifest.version != version) return fail(Errc::kCorrupt, Op::kOpen, "its record is of another version");
  return open_recorded(layout, record, layout.anchor(version));
}

/// Nothing if none can be read. A power cut may have brought back a part of one that was deleted.
Result<std::optional<Recorded>> open_newest_anchor(const StoreLayout& layout) {
  WC_ASSIGN(const std::vector<Version> anchors, anchors_in(layout));
  for (const Version version : anchors) {
    Result<Recorded> opened = open_anchor(layout, version);
    if (opened.has_value()) return std::optional<Recorded>(std::move(*opened));
    if (!is_proven_wrong(opened.error())) return cannot_look_at(layout.anchor(version), opened.error());
    log_warning("store: {} is no anchor: {}", layout.anchor(version).native(), opened.error().detail);
  }
  return std::optional<Recorded>();
}

class LogRestore {
 public:
  LogRestore(const StoreLayout& layout, const Records& records, unsigned threads)
      : layout_(layout), records_(records), threads_(threads) {}

  Result<RestoredLog> run(Version newest_here) {
    RestoredLog restored;
    WC_ASSIGN(anchor_, open_newest_anchor(layout_));
    if (!anchor_) return restored;
    restored.anchor = anchor_->record.manifest.version;
    restored.files = anchor_->record.manifest.files;
    // A process that ended before it had synced their names may have left it: older ones go now, and a power cut must
    // find this one.
    WC_TRY(sync_directory(layout_.files(), layout_.anchors()));
    // After a kill memory has it all, and nothing is read for it.
    if (newest_possible(restored.anchor) <= newest_here) return restored;
    WC_TRY(find_links());
    // What a patch turns out not to lead to, those before it do.
    for (;; links_.pop_back()) {
      const Version newest = links_.empty() ? restored.anchor : links_.back().record.manifest.version;
      if (newest <= newest_here) return restored;
      const Status made = make(newest);
      if (made.has_value()) {
        restored.version = newest;
        log_info("store: version {} is made anew, of anchor {} and {} patches", newest.value, restored.anchor.value,
                 links_.size());
        return restored;
      }
      WC_TRY(layout_.throw_away(layout_.incoming(newest)));
      layout_.empty_trash();
      if (!is_proven_wrong(made.error())) return cannot_look_at(layout_.incoming(newest), made.error());
      log_error("store: version {}, which was durable, is lost: {}; going back to the one before it", newest.value,
                made.error().detail);
      if (links_.empty()) return RestoredLog{};
    }
  }

 private:
  /// The greatest version that a log from that anchor on can lead to, whole or not.
  [[nodiscard]] Version newest_possible(Version anchor) const {
    for (const auto& [payload, _] : records_) anchor = std::max(anchor, payload.is_patch() ? payload.version : anchor);
    return anchor;
  }

  /// The way from the anchor to the newest version that whole patches lead to.
  Status find_links() {
    const Version anchor = anchor_->record.manifest.version;
    std::vector<const VersionRecord*> patches;
    for (const auto& [payload, record] : records_) {
      const bool fits = payload.is_patch() && payload.base >= anchor && !record.manifest.open && !record.outdated &&
                        record.manifest.files == anchor_->record.manifest.files;
      if (fits) patches.push_back(&record);
    }
    std::ranges::stable_sort(patches, {}, [](const VersionRecord* record) { return record->manifest.version; });
    std::map<Version, Recorded> ways;  // by where they lead
    for (const VersionRecord* record : patches) {
      const Manifest& manifest = record->manifest;
      const bool goes_on = manifest.base_version == anchor || ways.contains(manifest.base_version);
      if (!goes_on || ways.contains(manifest.version)) continue;
      WC_ASSIGN(std::optional<Recorded> link, open_link(*record));
      if (link) ways.emplace(manifest.version, std::move(*link));
    }
    if (ways.empty()) return {};
    for (Version at = ways.rbegin()->first; at != anchor; at = links_.back().record.manifest.base_version) {
      links_.push_back(std::move(ways.at(at)));
    }
    std::ranges::reverse(links_);
    return {};
  }

  /// Nothing if the patch is not whole.
  Result<std::optional<Recorded>> open_link(const VersionRecord& record) {
    const fs::path path = layout_.patch(record.manifest.id());
    WC_ASSIGN(FileTable table, payload_files(record.manifest));
    Result<FilesRef> files = VersionFiles::open(layout_.files(), path, std::move(table));
    if (!files.has_value()) {
      if (is_proven_wrong(files.error())) return std::optional<Recorded>();
      return cannot_look_at(path, files.error());
    }
    const Result<ChunkSet> held = verify_chunks(record, **files, threads_);
    if (!held.has_value()) return cannot_look_at(path, held.error());
    if (!held->complete()) return std::optional<Recorded>();
    return std::optional<Recorded>(Recorded{record, std::move(*files)});
  }

  Status make(Version version) {
    WC_TRY(layout_.throw_away(layout_.incoming(version)));
    layout_.empty_trash();
    WC_ASSIGN(const auto target,
              VersionFiles::create(layout_.files(), layout_.incoming(version), anchor_->files->table()));
    WC_TRY(copy(*target));
    Checksum digest = anchor_->record.manifest.snapshot_digest;
    for (const Recorded& link : links_) {
      WC_TRY(apply_in_place(*target, *link.files, link.record.manifest, digest, threads_));
      digest = link.record.manifest.snapshot_digest;
    }
    VersionRecord record = record_of(version, digest);
    WC_TRY(make_missing_digests(record, *target, threads_));
    WC_TRY(write_record(layout_.files(), layout_.record(version), record));
    WC_TRY(layout_.throw_away(layout_.complete(version)));
    return layout_.files().rename(layout_.incoming(version), layout_.complete(version));
  }

  /// What the store knew of that version, if it still does: an origin offers it whole by that.
  [[nodiscard]] VersionRecord record_of(Version version, const Checksum& digest) const {
    const auto known = records_.find(version);
    const bool is_it =
        known != records_.end() && !known->second.outdated && known->second.manifest.snapshot_digest == digest;
    VersionRecord record =
        is_it            ? known->second
        : links_.empty() ? anchor_->record
                         : VersionRecord{links_.back().record.manifest, ChunkDigests(links_.back().record.manifest)};
    // The process before may have ended before it had synced a patch: then the store does so, and marks the version.
    const bool is_logged = links_.empty() || (is_it && known->second.durable);
    record.durable = layout_.in_memory() && is_logged;
    record.torn_at.reset();
    return record;
  }

  Status copy(VersionFiles& target) {
    SnapshotDigest digest(target.table());
    WC_TRY(for_each_until_error(digest.leaf_count(), threads_, [&](std::size_t leaf) {
      const std::uint64_t begin = digest.leaf_offset_bytes(leaf);
      return copy_range(*anchor_->files, target, begin, begin + digest.leaf_size_bytes(leaf), digest);
    }));
    Manifest& anchor = anchor_->record.manifest;
    if (anchor_->record.outdated) return renew_record(anchor_->record, target, threads_);
    if (digest.root() == anchor.snapshot_digest) return {};
    return fail(Errc::kCorrupt, Op::kVerify, "its anchor does not match its digest");
  }

  const StoreLayout& layout_;
  const Records& records_;
  const unsigned threads_;
  std::optional<Recorded> anchor_;
  std::vector<Recorded> links_;
};

}  // namespace

Result<RestoredLog> restore_from_log(const StoreLayout& layout, const Records& records, Version newest_here,
                                     unsigned threads) {
  return LogRestore(layout, records, threads).run(newest_here);
}

Status adopt_versions_on_disk(const StoreLayout& layout, const Records& records, unsigned threads) {
  const StoreLayout disk = layout.on_disk();
  WC_ASSIGN(const std::vector<std::string> names, names_in(layout.files(), disk.versions()));
  std::vector<Version> versions;
  for (const std::string& name : names) {
    const auto payload = layout.payload_of(name);
    if (payload && payload->is_full()) versions.push_back(payload->version);
  }
  if (versions.empty()) return {};  // as at every start but the first in memory
  std::ranges::sort(versions, std::greater<>());
  WC_ASSIGN(const auto anchor, open_newest_anchor(layout));
  const Version newest_anchor = anchor ? anchor->record.manifest.version : kNoVersion;
  bool anchored = false;
  for (const Version version : versions) {
    const auto record = records.find(version);
    const bool durable = record != records.end() && record->second.durable;
    if (durable && version > newest_anchor && !anchored) {
      // A power cut may have brought back a part of one that was deleted.
      Result<Recorded> there = open_recorded(layout, record->second, disk.complete(version));
      if (!there.has_value() && !is_proven_wrong(there.error())) {
        return cannot_look_at(disk.complete(version), there.error());
      }
      if (there.has_value()) {
        if (there->record.outdated) WC_TRY(renew_record(there->record, *there->files, threads));
        WC_TRY(make_anchor_of(layout, version, there->record));
        log_info("store: version {} on the disk is what the log begins with; versions are in memory from now on",
                 version.value);
        anchored = true;
        continue;
      }
    }
    WC_TRY(disk.throw_away(disk.complete(version)));
  }
  return {};
}

}  // namespace weightcast
