#include "transport/archive/node_log.h"

#include <algorithm>
#include <set>

#include "transport/io/store/files/readable.h"
#include "transport/io/store/files/recovery_checks.h"
#include "transport/io/store/files/version_record.h"
#include "transport/io/store/store_layout.h"

namespace weightcast {
namespace {

namespace fs = std::filesystem;

class LogReader {
 public:
  LogReader(FileSystem& files, const StoreLayout& layout) : files_(files), layout_(layout) {}

  Result<std::vector<NodePayload>> read() {
    WC_TRY(add_patches());
    // The one that is kept on the disk stays for longer.
    for (const StoreLayout& place : layout_.places()) WC_TRY(add_versions(place));
    std::ranges::stable_sort(found_, {}, &NodePayload::id);
    return std::move(found_);
  }

 private:
  /// Nothing where the record is being written, was deleted, or says nothing that counts.
  std::optional<VersionRecord> record_at(const fs::path& path) const {
    Result<VersionRecord> record = read_record(files_, path);
    if (!record.has_value() || record->manifest.open) return std::nullopt;
    return std::move(*record);
  }

  Status add_patches() {
    WC_ASSIGN(const std::vector<std::string> names, names_in(files_, layout_.patches()));
    for (const std::string& name : names) {
      const auto id = layout_.payload_of(name);
      if (!id || !id->is_patch()) continue;
      const std::optional<VersionRecord> record = record_at(layout_.record(*id));
      if (!record || record->manifest.id() != *id || !record->digests.complete()) continue;
      add(*id, layout_.patch(*id), layout_.record(*id), *record);
    }
    return {};
  }

  Status add_versions(const StoreLayout& where) {
    const fs::path folder = where.versions();
    WC_ASSIGN(const std::vector<std::string> names, names_in(files_, folder));
    for (const std::string& name : names) {
      const auto id = layout_.payload_of(name);
      if (!id || !id->is_full() || versions_.contains(id->version)) continue;
      // The origin may have signed the tree with any of the payloads that lead to the version.
      std::vector<fs::path> paths;
      for (const StoreLayout& place : layout_.places()) paths.push_back(place.record(id->version));
      for (const NodePayload& each : found_) {
        if (each.id.is_patch() && each.id.version == id->version) paths.push_back(layout_.record(each.id));
      }
      std::optional<VersionRecord> best;
      fs::path best_path;
      for (const fs::path& path : paths) {
        std::optional<VersionRecord> record = record_at(path);
        if (!record || record->manifest.version != id->version) continue;
        const bool better = !best || (best->manifest.tree_of_snapshot().chunk_bytes == 0 &&
                                      record->manifest.tree_of_snapshot().chunk_bytes != 0);
        if (!better) continue;
        best = std::move(record);
        best_path = path;
      }
      if (!best) continue;
      add(*id, folder / name, best_path, *best);
      versions_.insert(id->version);
    }
    return {};
  }

  void add(PayloadId id, const fs::path& path, const fs::path& record_path, const VersionRecord& record) {
    const bool has_digests = record.manifest.id() == id && record.digests.complete();
    found_.push_back(
        {id, record.manifest, has_digests ? record.digests.chunks : std::vector<ContentDigest>(), path, record_path});
  }

  FileSystem& files_;
  const StoreLayout layout_;
  std::vector<NodePayload> found_;
  std::set<Version> versions_;
};

}  // namespace

Result<std::vector<NodePayload>> read_node_log(FileSystem& files, const fs::path& state) {
  const fs::path directory = fs::absolute(state);
  WC_ASSIGN(const fs::path root, StoreLayout::versions_root_of(files, directory));
  if (!exists(files, root / "records")) {
    return fail(Errc::kNotFound, Op::kOpen, state.native() + ": no state directory of a daemon; give it with --state");
  }
  const StoreLayout layout(files, directory, root == directory ? fs::path() : root);
  WC_ASSIGN(const StoreLayout::Current current, layout.read_current());
  return LogReader(files, current.run > 1 ? layout.of_run(current.run) : layout).read();
}

Result<bool> HeldPayload::matches(const Manifest& manifest, unsigned threads) const {
  return snapshot_matches(manifest, *files_, threads);
}

Result<std::vector<ContentDigest>> HeldPayload::chunk_digests(std::uint32_t chunk_bytes, unsigned threads) const {
  return chunk_digests_of(*files_, chunk_bytes, threads);
}

Result<HeldPayload> HeldPayload::open(FileSystem& files, const NodePayload& payload) {
  WC_ASSIGN(FileTable table,
            payload.id.is_full() ? FileTable::make(payload.manifest.files) : payload_files(payload.manifest));
  HeldPayload held;
  WC_ASSIGN(held.files_, VersionFiles::open(files, payload.path, std::move(table)));
  for (std::size_t i = 0; i < held.files_->table().files().size(); ++i) {
    WC_ASSIGN(FileRef file, held.files_->file(i));
    held.open_.push_back(std::move(file));
  }
  return held;
}

}  // namespace weightcast
