#include "transport/io/store/store_recovery.h"

#include <algorithm>
#include <map>
#include <optional>
#include <set>
#include <string>

#include "base/parallel.h"
#include "transport/io/log.h"
#include "transport/io/store/in_place.h"
#include "transport/io/store/snapshot_check.h"

namespace weightcast {
namespace {

namespace fs = std::filesystem;

// Below this a second thread takes longer to start than it saves.
constexpr std::uint64_t kParallelBytesMin = 64 * kMiB;

/// Whether any byte of [offset, offset + length) of the stream was ever written. What is not known counts as written.
bool has_data(VersionFiles& files, std::uint64_t offset, std::uint64_t length) {
  for (const FilePiece& piece : files.table().pieces(offset, length)) {
    const Result<FileRef> file = files.file(piece.file);
    if (!file.has_value()) return true;
    const Result<std::optional<std::uint64_t>> data = (*file)->next_data(piece.offset_bytes);
    if (!data.has_value()) return true;
    // Else nothing but a hole, up to the piece's end at least.
    if (*data && **data < piece.offset_bytes + piece.size_bytes) return true;
  }
  return false;
}

ChunkSet verify_chunks(const VersionRecord& record, VersionFiles& files) {
  const Manifest& manifest = record.manifest;
  std::vector<char> matches(manifest.chunk_count(), 0);  // not vector<bool>: two threads write
  for_each_index(manifest.chunk_count(), manifest.payload_bytes >= kParallelBytesMin ? 2 : 1, [&](std::size_t i) {
    const ChunkIndex chunk{static_cast<std::uint32_t>(i)};
    if (!record.digests.knows(chunk)) return;
    if (!has_data(files, manifest.chunk_offset(chunk), manifest.chunk_size(chunk))) return;
    std::vector<std::byte> bytes(manifest.chunk_size(chunk));
    if (!read_stream(files, manifest.chunk_offset(chunk), bytes).has_value()) return;
    matches[i] = digest_of(bytes) == record.digests.chunks[i] ? 1 : 0;
  });
  ChunkSet held(manifest.chunk_count());
  for (std::uint32_t i = 0; i < manifest.chunk_count(); ++i) {
    if (matches[i] != 0) held.insert(ChunkIndex{i});
  }
  return held;
}

bool snapshot_matches(const Manifest& manifest, VersionFiles& files) {
  const Result<Digest> digest = files_digest(files);
  return digest.has_value() && *digest == manifest.snapshot_digest;
}

/// One pass over a store's directory.
class Recovery {
 public:
  explicit Recovery(const StoreLayout& layout) : layout_(layout) {}

  Result<RecoveredStore> run() {
    layout_.drop_spare();
    layout_.empty_trash();
    WC_TRY(settle_in_place(layout_));
    WC_TRY(remove_if_there(layout_.files(), layout_.directory() / "current.tmp"));
    WC_TRY(read_records());
    WC_TRY(look_at_complete());
    WC_TRY(look_at_patches());
    WC_TRY(look_at_incoming());
    for (const auto& [payload, _] : records_) {
      log_info("store: {} has no files; removed", layout_.record(payload).native());
      WC_TRY(remove_if_there(layout_.files(), layout_.record(payload)));
    }
    WC_TRY(settle_current());
    layout_.empty_trash();
    return std::move(found_);
  }

 private:
  /// The payloads that a folder has entries for; what is not named like one is moved aside.
  Result<std::set<PayloadId>> payloads_in(const fs::path& folder) {
    std::set<PayloadId> payloads;
    WC_ASSIGN(const std::vector<std::string> names, layout_.files().list(folder));
    for (const std::string& name : names) {
      if (const auto payload = StoreLayout::payload_of(name)) {
        payloads.insert(*payload);
      } else {
        layout_.move_aside(folder / name);
      }
    }
    return payloads;
  }

  Status read_records() {
    WC_ASSIGN(const std::vector<std::string> names, layout_.files().list(layout_.records()));
    for (const std::string& name : names) {
      const fs::path path = layout_.records() / name;
      if (path.extension() != ".tmp" || !StoreLayout::payload_of(path.stem().native())) continue;
      WC_TRY(remove_if_there(layout_.files(), path));
    }
    WC_ASSIGN(const std::set<PayloadId> payloads, payloads_in(layout_.records()));
    for (const PayloadId payload : payloads) {
      Result<VersionRecord> record = read_record(layout_.files(), layout_.record(payload));
      // A version's record has the manifest of the payload that brought it, which may be a patch.
      if (record.has_value() && (record->manifest.id() == payload ||
                                 (!payload.is_encoded() && record->manifest.version == payload.version))) {
        records_.emplace(payload, std::move(*record));
        continue;
      }
      // Unreadable is not the same as wrong: another start, or another release, may succeed.
      const bool unreadable =
          !record.has_value() && (record.error().code == Errc::kIo || record.error().code == Errc::kUnsupported);
      if (unreadable) return record.error();
      log_warning("store: {} is damaged; removed ({})", layout_.record(payload).native(),
                  record.has_value() ? "it is that of another version" : record.error().detail);
      WC_TRY(remove_if_there(layout_.files(), layout_.record(payload)));
    }
    return {};
  }

  /// The files under `path`, of a snapshot or of a payload, or the reason why they are not what their record says.
  Result<RecoveredVersion> open_recorded(PayloadId payload, const fs::path& path) {
    const auto record = records_.find(payload);
    if (record == records_.end()) return fail(Errc::kCorrupt, Op::kOpen, "it has no record");
    const Manifest& manifest = record->second.manifest;
    if (manifest.open) return fail(Errc::kCorrupt, Op::kOpen, "it was still being made");
    WC_ASSIGN(FileTable table, payload.is_encoded() ? payload_files(manifest) : FileTable::make(manifest.files));
    WC_ASSIGN(std::shared_ptr<VersionFiles> files, VersionFiles::open(layout_.files(), path, std::move(table)));
    return RecoveredVersion{record->second, std::move(files), ChunkSet()};
  }

  Status throw_away(PayloadId payload, const fs::path& path, std::string_view reason) {
    log_warning("store: {} thrown away: {}", path.native(), reason);
    WC_TRY(layout_.throw_away(path));
    records_.erase(payload);
    return remove_if_there(layout_.files(), layout_.record(payload));
  }

  Status look_at_complete() {
    WC_ASSIGN(const std::set<PayloadId> versions, payloads_in(layout_.versions()));
    for (const PayloadId version : versions) {
      if (version.is_encoded()) {
        layout_.move_aside(layout_.versions() / layout_.patch(version).filename());
        continue;
      }
      const fs::path path = layout_.complete(version.version);
      Result<RecoveredVersion> found = open_recorded(version, path);
      if (!found.has_value()) {
        if (found.error().code == Errc::kIo) return found.error();
        WC_TRY(throw_away(version, path, found.error().detail));
        continue;
      }
      const VersionRecord& record = found->record;
      const bool servable = record.manifest.id().is_encoded() || record.digests.complete();
      if (!record.durable && !(servable && snapshot_matches(record.manifest, *found->files))) {
        WC_TRY(throw_away(version, path, "it had not been synced, and does not match its digest"));
        continue;
      }
      records_.erase(version);
      found_.complete.push_back(std::move(*found));
    }
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
    WC_ASSIGN(const std::set<PayloadId> patches, payloads_in(layout_.patches()));
    for (const PayloadId patch : patches) {
      const fs::path path = layout_.patch(patch);
      if (patch.is_packed()) {
        // To look at it would cost a start as much as to look at the version.
        WC_TRY(layout_.throw_away(path));
        continue;
      }
      Result<RecoveredVersion> found = open_recorded(patch, path);
      if (!found.has_value()) {
        if (found.error().code == Errc::kIo) return found.error();
        WC_TRY(throw_away(patch, path, found.error().detail));
        continue;
      }
      if (const std::optional<std::string> reason = why_useless(found->record.manifest)) {
        WC_TRY(throw_away(patch, path, *reason));
        continue;
      }
      // Small, and never synced: looked at each time.
      if (!verify_chunks(found->record, *found->files).complete()) {
        WC_TRY(throw_away(patch, path, "it does not match its digests"));
        continue;
      }
      records_.erase(patch);
      found_.patches.push_back(std::move(*found));
    }
    return {};
  }

  Status look_at_incoming() {
    WC_ASSIGN(const std::set<PayloadId> payloads, payloads_in(layout_.incoming()));
    for (const PayloadId payload : payloads) {
      const fs::path path = layout_.incoming(payload);
      const bool complete = std::any_of(found_.complete.begin(), found_.complete.end(), [&](const auto& found) {
        return found.record.manifest.version == payload.version;
      });
      if (complete) {
        log_warning("store: {} thrown away: the version is complete", path.native());
        WC_TRY(layout_.throw_away(path));
        continue;
      }
      Result<RecoveredVersion> found = open_recorded(payload, path);
      if (!found.has_value()) {
        if (found.error().code == Errc::kIo) return found.error();
        WC_TRY(throw_away(payload, path, found.error().detail));
        continue;
      }
      if (payload.is_full() && found->record.manifest.id().is_encoded()) {
        WC_TRY(throw_away(payload, path, "a patch was being applied to it"));
        continue;
      }
      found->held = verify_chunks(found->record, *found->files);
      log_info("store: version {} is partly here: {} of {} chunks", payload.version.value, found->held.count(),
               found->held.size());
      records_.erase(payload);
      found_.partial.push_back(std::move(*found));
    }
    return {};
  }

  Status settle_current() {
    found_.current = found_.complete.empty() ? kNoVersion : found_.complete.back().record.manifest.version;
    const Result<FileInfo> link = layout_.files().link_info(layout_.current());
    if (link.has_value() && !link->is_link()) layout_.move_aside(layout_.current());
    const std::optional<Version> named = layout_.read_current();
    if (found_.current == kNoVersion) return remove_if_there(layout_.files(), layout_.current());
    if (named == found_.current) return {};
    log_info("store: current version is {} now", found_.current.value);
    return layout_.switch_current(found_.current);
  }

  const StoreLayout& layout_;
  std::map<PayloadId, VersionRecord> records_;  // those whose files were not met yet
  RecoveredStore found_;
};

}  // namespace

Result<RecoveredStore> recover_store(const StoreLayout& layout) { return Recovery(layout).run(); }

}  // namespace weightcast
