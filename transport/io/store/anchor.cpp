#include "transport/io/store/anchor.h"

#include <algorithm>
#include <functional>
#include <set>
#include <string>
#include <utility>

#include "transport/io/store/files/readable.h"
#include "transport/io/store/files/snapshot_check.h"

namespace weightcast {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kRecordSuffix = ".record";

fs::path copy_path(const StoreLayout& layout, Version version) {
  fs::path path = layout.anchor(version);
  path += ".tmp";
  return path;
}

/// The record first: an anchor without one does not count.
Status put_in_place(const StoreLayout& layout, Version version, const VersionRecord& record, const fs::path& from) {
  WC_TRY(layout.throw_away(layout.anchor(version)));
  WC_TRY(rewrite_record(layout.files(), layout.anchor_record(version), record));
  WC_TRY(layout.files().rename(from, layout.anchor(version)));
  return sync_directory(layout.files(), layout.anchors());
}

}  // namespace

AnchorCopy::AnchorCopy(StoreLayout layout, VersionRecord record, FilesRef source, FilesRef target)
    : layout_(std::move(layout)),
      record_(std::move(record)),
      source_(std::move(source)),
      target_(std::move(target)),
      digest_(target_->table()) {}

Result<std::shared_ptr<AnchorCopy>> AnchorCopy::begin(StoreLayout layout, VersionRecord record, FilesRef source) {
  const fs::path path = copy_path(layout, record.manifest.version);
  WC_TRY(remove_all(layout.files(), path));
  WC_ASSIGN(auto target, VersionFiles::create(layout.files(), path, source->table()));
  return std::shared_ptr<AnchorCopy>(
      new AnchorCopy(std::move(layout), std::move(record), std::move(source), std::move(target)));
}

Status AnchorCopy::copy_piece() {
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

Status AnchorCopy::finish() {
  WC_CHECK(complete());
  const Version version = record_.manifest.version;
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
  return put_in_place(layout_, version, record_, copy_path(layout_, version));
}

void AnchorCopy::discard() {
  static_cast<void>(remove_all(layout_.files(), copy_path(layout_, record_.manifest.version)));
}

Result<std::vector<Version>> anchors_in(const StoreLayout& layout) {
  WC_ASSIGN(const std::vector<std::string> names, names_in(layout.files(), layout.anchors()));
  std::vector<Version> found;
  for (const std::string& name : names) {
    const auto payload = layout.payload_of(name);
    if (payload && payload->is_full()) found.push_back(payload->version);
  }
  std::ranges::sort(found, std::greater<>());
  return found;
}

Status make_anchor_of(const StoreLayout& layout, Version version, const VersionRecord& record) {
  const StoreLayout disk = layout.on_disk();
  WC_TRY(put_in_place(layout, version, record, disk.complete(version)));
  return sync_directory(layout.files(), disk.versions());
}

Status drop_log(const StoreLayout& layout, Version except) {
  WC_ASSIGN(const std::vector<std::string> names, names_in(layout.files(), layout.anchors()));
  std::set<std::string> kept;
  if (except != kNoVersion) kept = {layout.anchor(except).filename(), layout.anchor_record(except).filename()};
  // Directories first: a record without one is nothing.
  for (const bool records : {false, true}) {
    for (const std::string& name : names) {
      const bool is_record = name.find(kRecordSuffix) != std::string::npos;  // or one that was being written
      if (is_record != records || kept.contains(name)) continue;
      WC_TRY(is_record ? remove_if_there(layout.files(), layout.anchors() / name)
                       : layout.throw_away(layout.anchors() / name));
    }
  }
  for (const fs::path& folder : {layout.patches(), layout.records()}) {
    WC_ASSIGN(const std::vector<std::string> payloads, layout.files().list(folder));
    for (const std::string& name : payloads) {
      const auto named = StoreLayout::named(name);
      if (!named || named->run == layout.run() || !named->payload.is_patch()) continue;
      WC_TRY(folder == layout.records() ? remove_if_there(layout.files(), folder / name)
                                        : layout.throw_away(folder / name));
    }
  }
  layout.empty_trash();
  return {};
}

}  // namespace weightcast
