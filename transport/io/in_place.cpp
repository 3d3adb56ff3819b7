#include "transport/io/in_place.h"

#include <fmt/format.h>
#include <unistd.h>

#include <system_error>
#include <vector>

#include "base/units.h"
#include "patch/apply.h"
#include "patch/undo.h"
#include "transport/io/log.h"
#include "transport/io/patched_snapshot.h"
#include "transport/io/snapshot_check.h"
#include "transport/io/store_work.h"

namespace weightcast {
namespace {

namespace fs = std::filesystem;

constexpr std::size_t kReadBytes = 256 * kKiB;

/// A version's files, as what a patch is applied to and as what comes of it.
class OnlyCopy final : public ByteSource, public ByteTarget {
 public:
  explicit OnlyCopy(VersionFiles& files) : files_(files) {}
  std::uint64_t size_bytes() const override { return files_.table().size_bytes(); }
  Result<Bytes> view(std::uint64_t offset, std::size_t size, std::vector<std::byte>& scratch) const override {
    scratch.resize(size);
    WC_TRY(read_base(files_, offset, scratch));
    return Bytes(scratch);
  }
  MutableBytes direct(std::uint64_t, std::size_t) override { return {}; }
  Status write(std::uint64_t offset, Bytes bytes) override { return write_stream(files_, offset, bytes); }

 private:
  VersionFiles& files_;
};

Status sync_files(VersionFiles& files) {
  for (std::size_t i = 0; i < files.table().files().size(); ++i) {
    WC_ASSIGN(const FileRef file, files.file(i));
    if (::fdatasync(file->fd()) != 0) return fail_errno(errno, Op::kSync, files.table().files()[i].name);
  }
  return {};
}

Result<PatchApplier> start(const PatchHead& head, const InPlaceWork& work, OnlyCopy& copy, UndoJournal& journal) {
  const Manifest& manifest = work.record.manifest;
  WC_TRY(check_head(
      head, {manifest.model_id, manifest.base_version, manifest.version, work.base_digest, manifest.snapshot_digest},
      copy.size_bytes(), copy.size_bytes()));
  Result<PatchApplier> applier = PatchApplier::start(head, copy, copy, &journal);
  if (applier.has_value() || applier.error().code != Errc::kInvalidArgument) return applier;
  // Nothing is wrong with it, but only the whole version helps.
  return fail(Errc::kWrongBase, Op::kDecode, applier.error().detail);
}

Status apply(const InPlaceWork& work, UndoJournal& journal, const std::atomic<bool>& wanted) {
  OnlyCopy copy(*work.files);
  PatchReader reader;
  std::optional<PatchApplier> applier;
  std::vector<std::byte> bytes;
  const std::uint64_t patch_bytes = work.record.manifest.payload_bytes;  // its file was made for the most it might be
  for (std::uint64_t at = 0; at < patch_bytes;) {
    bytes.resize(std::min<std::uint64_t>(patch_bytes - at, kReadBytes));
    WC_TRY(read_stream(*work.patch, at, bytes));
    at += bytes.size();
    for (Bytes left = bytes; !left.empty();) {
      WC_ASSIGN(const std::size_t taken, reader.handle_bytes(left));
      left = left.subspan(taken);
      if (!applier && reader.head() != nullptr) {
        WC_ASSIGN(applier, start(*reader.head(), work, copy, journal));
      }
      const std::optional<OwnedSegment> segment = reader.poll_segment();
      if (!segment) continue;
      if (!wanted) return fail(Errc::kNotFound, Op::kDecode, "it is not wanted any more");
      WC_TRY(applier->apply(segment->view()));
    }
  }
  if (!applier || reader.end() == nullptr) {
    return fail(Errc::kCorrupt, Op::kDecode, "the patch ends before it is complete");
  }
  return applier->finish(*reader.end());
}

Status change(const StoreLayout& layout, const InPlaceWork& work, UndoJournal& journal, const std::atomic<bool>& wanted,
              double& switch_s) {
  const Manifest& manifest = work.record.manifest;
  WC_TRY(rename_path(layout.complete(manifest.base_version), layout.incoming(manifest.version)));
  // Only now: from here on nobody can open them by a name that he knows.
  work.files->close_all();
  WC_TRY(check_unused(layout.incoming(manifest.version), work.files->table()));
  WC_TRY(apply(work, journal, wanted));
  WC_ASSIGN(const Digest digest, files_digest(*work.files));
  if (digest != manifest.snapshot_digest) {
    return fail(Errc::kCorrupt, Op::kVerify, "the patch leads to other bytes than its manifest says");
  }
  return install_patched(layout, manifest, switch_s);
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

InPlaceResult install_in_place(const StoreLayout& layout, const InPlaceWork& work, const std::atomic<bool>& wanted) {
  InPlaceResult result;
  const PayloadId payload = work.record.manifest.id();
  const fs::path path = layout.undo(payload);
  {
    // Through a loss of power too: the version that is overwritten is marked durable.
    Result<UndoJournal> journal =
        UndoJournal::create(path.native(), path.filename().native(), UndoJournal::Sync::kPower);
    if (!journal.has_value()) {
      result.status = journal.error();
      // What a full disk leaves of it holds nothing.
      if (result.status.error().code == Errc::kNoSpace) static_cast<void>(remove_file(path));
      return result;
    }
    result.status = change(layout, work, *journal, wanted, result.switch_s);
  }
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
