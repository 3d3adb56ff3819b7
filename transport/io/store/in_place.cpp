#include "transport/io/store/in_place.h"

#include <fmt/format.h>
#include <unistd.h>

#include <mutex>
#include <system_error>
#include <utility>
#include <vector>

#include "base/units.h"
#include "patch/apply/undo.h"
#include "patch/codec/codec.h"
#include "patch/snapshot/snapshot_digest.h"
#include "transport/io/log.h"
#include "transport/io/parallel.h"
#include "transport/io/store/patched_snapshot.h"
#include "transport/io/store/snapshot_check.h"
#include "transport/io/store/store_work.h"

namespace weightcast {
namespace {

namespace fs = std::filesystem;

constexpr std::size_t kReadBytes = 256 * kKiB;
// Small enough to stay in a core's cache from the read to the write.
constexpr std::size_t kWindowBytes = 256 * kKiB;
// A thread takes as long to start as a few windows to write.
constexpr std::uint64_t kParallelBytesMin = 2 * kMiB;

Status sync_files(VersionFiles& files) {
  for (std::size_t i = 0; i < files.table().files().size(); ++i) {
    WC_ASSIGN(const FileRef file, files.file(i));
    if (::fdatasync(file->fd()) != 0) return fail_errno(errno, Op::kSync, files.table().files()[i].name);
  }
  return {};
}

Error unwanted() { return fail(Errc::kNotFound, Op::kDecode, "it is not wanted any more"); }

/// Where the segments of a patch are, by their place in the plan, which is their order in the files.
struct Segments {
  std::vector<SegmentPlace> places;
  std::vector<Digest> results;
};

Result<Segments> plan_of(const PatchHead& head, const InPlaceWork& work) {
  const Manifest& manifest = work.record.manifest;
  const std::uint64_t bytes = work.files->table().size_bytes();
  WC_TRY(check_head(
      head, {manifest.model_id, manifest.base_version, manifest.version, work.base_digest, manifest.snapshot_digest},
      bytes, bytes));
  const std::vector<SegmentRange> plan = plan_segments(head);
  for (const SegmentRange& range : plan) {
    if (!range.has_base() || range.base_offset == range.result_offset) continue;
    // Nothing is wrong with it, but only the whole version helps.
    return fail(Errc::kWrongBase, Op::kDecode, "a patch that moves tensors cannot be applied in place");
  }
  return Segments{std::vector<SegmentPlace>(plan.size()), std::vector<Digest>(plan.size())};
}

/// Reads the whole patch once.
Result<Segments> find_segments(const InPlaceWork& work) {
  PatchReader reader;
  std::optional<Segments> segments;
  std::size_t found = 0;
  std::vector<std::byte> bytes;
  const std::uint64_t patch_bytes = work.record.manifest.payload_bytes;  // its file was made for the most it might be
  for (std::uint64_t at = 0; at < patch_bytes;) {
    bytes.resize(std::min<std::uint64_t>(patch_bytes - at, kReadBytes));
    WC_TRY(read_stream(*work.patch, at, bytes));
    for (Bytes left = bytes; !left.empty();) {
      WC_ASSIGN(const std::size_t taken, reader.handle_bytes(left));
      left = left.subspan(taken);
      at += taken;
      if (!segments && reader.head() != nullptr) {
        WC_ASSIGN(segments, plan_of(*reader.head(), work));
      }
      const std::optional<OwnedSegment> segment = reader.poll_segment();
      if (!segment) continue;
      const SegmentHeader& header = segment->header();
      SegmentPlace& place = segments->places[header.range.index];
      found += place.size_bytes == 0;
      place.size_bytes = kSegmentHeaderBytes + header.payload_bytes;
      place.offset_bytes = at - place.size_bytes;
      segments->results[header.range.index] = header.result_digest;
    }
  }
  if (!segments || reader.end() == nullptr || found != segments->places.size()) {
    return fail(Errc::kCorrupt, Op::kDecode, "the patch ends before it is complete");
  }
  WC_TRY(check_end(*reader.end(), segments->results));
  return std::move(*segments);
}

/// What one thread decodes segments with.
class SegmentWindows {
 public:
  explicit SegmentWindows(const InPlaceWork& work) : work_(work), before_(kWindowBytes), after_(kWindowBytes) {}

  /// Calls `take(offset, before, after)` for the segment's cells, a window at a time, in order. Returns how they are
  /// told.
  template <typename Take>
  Result<SegmentMode> decode(const SegmentPlace& place, const Take& take) {
    frame_.resize(place.size_bytes);
    WC_TRY(read_stream(*work_.patch, place.offset_bytes, frame_));
    WC_ASSIGN(const Segment segment, read_segment(frame_));
    WC_ASSIGN(SegmentDecoder decoder, SegmentDecoder::start(segment));
    const SegmentRange& range = segment.header.range;
    for (std::uint64_t done = 0; done < range.size_bytes;) {
      const std::size_t bytes = std::min<std::uint64_t>(range.size_bytes - done, kWindowBytes);
      const MutableBytes before = MutableBytes(before_).first(bytes), after = MutableBytes(after_).first(bytes);
      WC_TRY(read_base(*work_.files, range.result_offset + done, before));
      WC_TRY(decoder.next(range.has_base() ? Bytes(before) : Bytes(), after));
      WC_TRY(take(range.result_offset + done, before, after));
      done += bytes;
    }
    WC_TRY(decoder.finish());
    return segment.header.mode;
  }

 private:
  const InPlaceWork& work_;
  std::vector<std::byte> frame_, before_, after_;
};

/// The leaves of a snapshot's digest, from bytes that come in order.
class DigestInOrder {
 public:
  explicit DigestInOrder(const FileTable& table) : digest_(table) {}

  void update(Bytes bytes) {
    while (!bytes.empty()) {
      const Bytes part = bytes.first(std::min<std::uint64_t>(bytes.size(), digest_.leaf_size_bytes(leaf_) - in_leaf_));
      stream_.update(part);
      in_leaf_ += part.size();
      bytes = bytes.subspan(part.size());
      if (in_leaf_ < digest_.leaf_size_bytes(leaf_)) continue;
      digest_.set_leaf(leaf_++, std::exchange(stream_, DigestStream()).digest());
      in_leaf_ = 0;
    }
  }
  [[nodiscard]] Digest root() const { return digest_.root(); }

 private:
  SnapshotDigest digest_;
  DigestStream stream_;
  std::size_t leaf_ = 0;
  std::uint64_t in_leaf_ = 0;
};

Result<std::vector<SegmentPlace>> note_changes(const InPlaceWork& work, UndoJournal& journal,
                                               const std::atomic<bool>& wanted) {
  WC_ASSIGN(const Segments segments, find_segments(work));
  std::vector<SegmentPlace> changes;
  DigestInOrder digest(work.files->table());
  SegmentWindows windows(work);
  for (const SegmentPlace& place : segments.places) {
    if (!wanted) return unwanted();
    WC_ASSIGN(const SegmentMode mode, windows.decode(place, [&](std::uint64_t offset, Bytes before, Bytes after) {
      digest.update(after);
      return journal.record(offset, before, after);
    }));
    if (mode != SegmentMode::kUnchanged) changes.push_back(place);
  }
  if (digest.root() != work.record.manifest.snapshot_digest) {
    return fail(Errc::kCorrupt, Op::kVerify, "the patch leads to other bytes than its manifest says");
  }
  WC_TRY(journal.sync());
  return changes;
}

Status write_changes(const InPlaceWork& work, const std::vector<SegmentPlace>& changes,
                     const std::atomic<bool>& wanted) {
  std::mutex mutex;  // guards `status` and `idle`
  Status status;
  std::vector<SegmentWindows> idle;
  const auto write = [&](std::uint64_t offset, Bytes, Bytes after) { return write_stream(*work.files, offset, after); };
  for_each_index(static_cast<std::uint32_t>(changes.size()), work.files->table().size_bytes() >= kParallelBytesMin,
                 [&](std::uint32_t i) {
                   std::optional<SegmentWindows> windows;
                   {
                     const std::lock_guard lock(mutex);
                     if (status.has_value() && !wanted) status = unwanted();
                     if (!status.has_value()) return;
                     if (!idle.empty()) {
                       windows.emplace(std::move(idle.back()));
                       idle.pop_back();
                     }
                   }
                   if (!windows) windows.emplace(work);
                   const Result<SegmentMode> written = windows->decode(changes[i], write);
                   const std::lock_guard lock(mutex);
                   idle.push_back(std::move(*windows));
                   if (!written.has_value()) status = written.error();
                 });
  return status;
}

/// Steps 3 to 5.
Status change(const StoreLayout& layout, const InPlaceWork& work, const std::vector<SegmentPlace>& changes,
              const std::atomic<bool>& wanted, double& switch_s) {
  WC_TRY(write_changes(work, changes, wanted));
  return install_patched(layout, work.record.manifest, switch_s);
}

/// Step 2. Errors: kBusy, with everything where it was; kUnsupported, kIo.
Status hide(const StoreLayout& layout, const InPlaceWork& work) {
  const Manifest& manifest = work.record.manifest;
  const fs::path home = layout.complete(manifest.base_version), hidden = layout.incoming(manifest.version);
  WC_TRY(rename_path(home, hidden));
  // Only now: from here on nobody can open them by a name that he knows.
  work.files->close_all();
  const Status unused = check_unused(hidden, work.files->table());
  if (unused.has_value() || unused.error().code != Errc::kBusy) return unused;
  WC_TRY(rename_path(hidden, home));
  return unused;
}

/// Whatever step it ended at: the old version, under its own name.
Status revert(const StoreLayout& layout, PayloadId payload, const FileTable& table) {
  const fs::path home = layout.complete(payload.base);
  for (const fs::path& path : {layout.complete(payload.version), layout.incoming(payload.version)}) {
    std::error_code ignored;
    if (!fs::exists(home, ignored) && fs::exists(path, ignored)) WC_TRY(rename_path(path, home));
  }
  // Before the journal goes: with it what has become of the version is known.
  if (layout.read_current() == payload.version) WC_TRY(layout.switch_current(payload.base));
  WC_TRY(remove_file(layout.record(payload.version)));
  WC_ASSIGN(const std::shared_ptr<VersionFiles> files, VersionFiles::open(home, table));
  const Result<Recovered> recovered = recover(
      layout.undo(payload).native(), [&](std::uint64_t offset, Bytes old) { return write_stream(*files, offset, old); },
      [&] { return sync_files(*files); });
  return recovered.has_value() ? Status() : Status(recovered.error());
}

/// Whether versions/N is what was to be made; then it is made durable.
Result<bool> is_made(const StoreLayout& layout, Version version) {
  const Result<VersionRecord> record = read_record(layout.record(version));
  if (!record.has_value()) return false;
  WC_ASSIGN(FileTable table, FileTable::make(record->manifest.files));
  const Result<std::shared_ptr<VersionFiles>> files = VersionFiles::open(layout.complete(version), std::move(table));
  if (!files.has_value()) return false;
  if (record->durable) return true;
  const Result<Digest> digest = files_digest(**files);
  if (!digest.has_value() || *digest != record->manifest.snapshot_digest) return false;
  WC_TRY(sync_files(**files));
  WC_TRY(sync_names_and_mark(layout, version, **files));
  return true;
}

Status settle(const StoreLayout& layout, PayloadId payload) {
  WC_ASSIGN(const bool made, is_made(layout, payload.version));
  if (made) return end_in_place(layout, payload.version);
  const auto put_back = [&]() -> Status {
    WC_ASSIGN(const VersionRecord base, read_record(layout.record(payload.base)));
    WC_ASSIGN(const FileTable table, FileTable::make(base.manifest.files));
    return revert(layout, payload, table);
  };
  const Status done = put_back();
  if (done.has_value()) {
    log_info("store: version {} is as it was before version {} was made of it", payload.base.value,
             payload.version.value);
    return {};
  }
  // Unreadable is not the same as wrong: another start may succeed.
  if (done.error().code == Errc::kIo || done.error().code == Errc::kNoSpace) return done;
  log_warning("store: version {} cannot be put back and is thrown away: {}", payload.base.value,
              done.error().message());
  for (const fs::path& path :
       {layout.complete(payload.version), layout.incoming(payload.version), layout.complete(payload.base)}) {
    WC_TRY(layout.throw_away(path));
  }
  WC_TRY(remove_file(layout.record(payload.version)));
  WC_TRY(remove_file(layout.record(payload.base)));
  return remove_file(layout.undo(payload));
}

/// Whose journals are there: N-B of each version N that was made, or begun to be made, of B's files.
std::vector<PayloadId> journals(const StoreLayout& layout) {
  std::error_code error;
  std::vector<PayloadId> found;
  for (const fs::directory_entry& entry : fs::directory_iterator(layout.undo(), error)) {
    if (const auto payload = StoreLayout::payload_of(entry.path().filename().native())) found.push_back(*payload);
  }
  return found;
}

}  // namespace

Result<std::vector<SegmentPlace>> prepare_in_place(const StoreLayout& layout, const InPlaceWork& work,
                                                   const std::atomic<bool>& wanted) {
  const PayloadId payload = work.record.manifest.id();
  const fs::path path = layout.undo(payload);
  Result<UndoJournal> journal = UndoJournal::create(path.native(), path.filename().native());
  if (!journal.has_value()) {
    // What a full disk leaves of it holds nothing.
    if (journal.error().code != Errc::kAlreadyExists) WC_TRY(remove_file(path));
    return journal.error();
  }
  Result<std::vector<SegmentPlace>> changes = note_changes(work, *journal, wanted);
  if (!changes.has_value()) WC_TRY(abandon_in_place(layout, payload));
  return changes;
}

Status abandon_in_place(const StoreLayout& layout, PayloadId payload) { return remove_file(layout.undo(payload)); }

InPlaceResult install_in_place(const StoreLayout& layout, const InPlaceWork& work,
                               const std::vector<SegmentPlace>& changes, const std::atomic<bool>& wanted) {
  InPlaceResult result;
  const PayloadId payload = work.record.manifest.id();
  const auto hidden_at = std::chrono::steady_clock::now();
  result.status = hide(layout, work);
  if (!result.status.has_value() && result.status.error().code == Errc::kBusy) return result;
  if (result.status.has_value()) result.status = change(layout, work, changes, wanted, result.switch_s);
  result.hidden_s = to_seconds(std::chrono::steady_clock::now() - hidden_at);
  if (result.status.has_value()) return result;
  const Status reverted = revert(layout, payload, work.files->table());
  result.base_lost = !reverted.has_value();
  if (result.base_lost) {
    result.status = fail(Errc::kWrongBase, Op::kDecode,
                         fmt::format("{}; and version {} cannot be put back: {}", result.status.error().detail,
                                     payload.base.value, reverted.error().detail));
  }
  return result;
}

Status end_in_place(const StoreLayout& layout, Version version) {
  for (const PayloadId payload : journals(layout)) {
    if (payload.version != version) continue;
    WC_TRY(remove_file(layout.record(payload.base)));
    WC_TRY(remove_file(layout.undo(payload)));
  }
  return {};
}

Status settle_in_place(const StoreLayout& layout) {
  for (const PayloadId payload : journals(layout)) WC_TRY(settle(layout, payload));
  return {};
}

}  // namespace weightcast
