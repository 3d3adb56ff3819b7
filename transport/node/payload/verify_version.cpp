#include "transport/node/payload/verify_version.h"

#include <fmt/format.h>

#include <algorithm>
#include <functional>
#include <optional>
#include <utility>

#include "base/units.h"
#include "transport/io/store/files/recovery_checks.h"
#include "transport/io/store/files/version_files.h"
#include "transport/io/store/files/version_record.h"
#include "transport/io/store/store_layout.h"
#include "transport/node/payload/chunk_hasher.h"
#include "transport/node/payload/patched_stream.h"
#include "transport/node/payload/signed_manifests.h"

namespace weightcast {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kVersions = "versions";

constexpr std::size_t kPieceBytes = 256 * kKiB;
// Of steps from a proven version: more than --anchor-interval allows.
constexpr std::size_t kStepsMax = 4096;

/// The root of the tree over what the files hold.
Result<ContentDigest> root_of(VersionFiles& files, const HashTree& tree, unsigned threads) {
  WC_ASSIGN(const std::vector<ContentDigest> digests, chunk_digests_of(files, tree.chunk_bytes, threads));
  return root_over(digests, tree.part_chunks);
}

Error not_published(const fs::path& path, const ContentDigest& root, const HashTree& tree) {
  return fail(Errc::kCorrupt, Op::kVerify,
              fmt::format("{}: its bytes are not those that were published (SHA-256 tree {}, signed {})", path.native(),
                          root.hex(), tree.root.hex()));
}

/// A signed patch and its payload.
struct Step {
  fs::path path;
  VersionRecord record;
  FilesRef payload;
};

/// How a version follows from an earlier one that is here.
struct Way {
  fs::path start;  // a directory with a whole version
  FilesRef files;  // what it holds
  Checksum start_digest{};
  std::vector<Step> steps;       // from there to the version, oldest first
  std::size_t proven_after = 0;  // so many steps the bytes are those of `proven`
  Version proven{};
  HashTree tree;  // over these

  [[nodiscard]] std::string text() const {
    return fmt::format("{} and {} signed patches", start.native(), steps.size());
  }
};

/// Finds and goes the way to a version that has no SHA-256 of its own. See verify_version().
class WayToVersion {
 public:
  /// `manifest` is the version's, and signed.
  WayToVersion(const StoreLayout& layout, const Manifest& manifest, const NodeKeys& keys,
               const Revocations& revocations, unsigned threads)
      : layout_(layout), manifest_(manifest), keys_(keys), revocations_(revocations), threads_(threads) {}

  /// Errors: kNotAllowed (there is none; or what is on it is not signed), kCorrupt, kIo.
  Result<Way> find() {
    std::optional<Version> last;
    for (Version at = manifest_.version; way_.steps.size() < kStepsMax;) {
      last = at;
      WC_TRY(look_for_tree(at));
      if (at != manifest_.version && way_.tree.chunk_bytes != 0) {
        WC_ASSIGN(const bool starts, start_at(at));
        if (starts) return finished();
      }
      WC_ASSIGN(std::optional<Step> step, step_to(at));
      if (!step) break;
      at = step->record.manifest.base_version;
      way_.steps.push_back(std::move(*step));
    }
    return fail(
        Errc::kNotAllowed, Op::kVerify,
        fmt::format("{}: nothing here proves its bytes: the origin published version {} by its patch, without a "
                    "SHA-256 of all of it, and the signed patches that are here go back to version {}, which "
                    "has none either; an origin with keys hashes a version every --anchor-interval publications, and "
                    "what follows the next one can be proven",
                    layout_.complete(manifest_.version).native(), manifest_.version.value, last->value));
  }

  /// Compares `files` with what the way leads to. Errors: kCorrupt (which names what is damaged), kIo.
  Status go(Way& way, const fs::path& path, VersionFiles& files) {
    std::vector<std::unique_ptr<PatchedStream>> streams;
    Checksum digest = way.start_digest;
    const std::uint64_t size_bytes = files.table().size_bytes();
    for (const Step& step : way.steps) {
      Result<std::unique_ptr<PatchedStream>> made = PatchedStream::make(step.record, step.payload, digest, size_bytes);
      if (!made.has_value()) return about(step.path.native(), made.error());
      streams.push_back(std::move(*made));
      digest = step.record.manifest.snapshot_digest;
    }
    ChunkHasher hasher(way.tree.chunk_bytes);
    std::uint64_t compared_bytes = 0;
    std::optional<std::uint64_t> differs_at;
    std::vector<std::byte> there;
    const auto compare = [&](Bytes bytes) -> Status {
      there.resize(bytes.size());
      WC_TRY(read_stream(files, compared_bytes, there));
      const auto [byte, _] = std::ranges::mismatch(bytes, there);
      if (!differs_at && byte != bytes.end()) differs_at = compared_bytes + std::uint64_t(byte - bytes.begin());
      compared_bytes += bytes.size();
      return {};
    };
    std::optional<std::size_t> failed_step;
    std::function<Status(std::size_t, Bytes)> pass = [&](std::size_t step, Bytes bytes) -> Status {
      if (step == way.proven_after) hasher.update(bytes);
      if (step == streams.size()) return compare(bytes);
      bool further = false;
      Status pushed = streams[step]->push(bytes, [&](Bytes result) {
        Status passed = pass(step + 1, result);
        further |= !passed.has_value();
        return passed;
      });
      if (!pushed.has_value() && !further) failed_step = step;
      return pushed;
    };
    const auto pass_all = [&]() -> Status {
      std::vector<std::byte> buffer(kPieceBytes);
      for (std::uint64_t at = 0; at < size_bytes; at += buffer.size()) {
        const MutableBytes piece = MutableBytes(buffer).first(std::min<std::uint64_t>(buffer.size(), size_bytes - at));
        WC_TRY(read_stream(*way.files, at, piece));
        WC_TRY(pass(0, piece));
      }
      for (std::size_t step = 0; step < streams.size(); ++step) {
        Status finished = streams[step]->finish();
        if (finished.has_value()) continue;
        failed_step = step;
        return finished;
      }
      return {};
    };
    const Status passed = pass_all();
    if (!passed.has_value()) {
      if (failed_step && passed.error().code == Errc::kWrongBase)
        WC_TRY(check_start(way, way.steps[*failed_step].path));
      return failed_step ? about(way.steps[*failed_step].path.native(), passed.error()) : passed.error();
    }
    hasher.finish();
    if (const ContentDigest root = root_over(hasher.digests(), way.tree.part_chunks); root != way.tree.root) {
      return not_published(way.start, root, way.tree);
    }
    if (!differs_at) return {};
    const FilePiece piece = files.table().pieces(*differs_at, 1).front();
    return fail(Errc::kCorrupt, Op::kVerify,
                fmt::format("{}: byte {} is not what {} make of it",
                            (path / files.table().files()[piece.file].name).native(), piece.offset_bytes, way.text()));
  }

 private:
  /// What signed patches do not fit is damaged, unless it is what was published.
  Status check_start(Way& way, const fs::path& patch) const {
    if (way.proven_after > 0) {
      return fail(Errc::kCorrupt, Op::kVerify,
                  fmt::format("{}: its bytes are not those that {} goes on from", way.start.native(), patch.native()));
    }
    WC_ASSIGN(const ContentDigest root, root_of(*way.files, way.tree, threads_));
    if (root == way.tree.root) return {};
    return not_published(way.start, root, way.tree);
  }

  /// The record at `path`, if it is one of this run and model, with these files. Errors: kNotAllowed (it is not
  /// signed), kIo.
  Result<std::optional<VersionRecord>> signed_record(const fs::path& path, Version version) const {
    Result<VersionRecord> record = read_record(layout_.files(), path);
    if (!record.has_value()) {
      if (record.error().code == Errc::kNotFound) return std::optional<VersionRecord>();
      return about(path.native(), record.error());
    }
    const Manifest& there = record->manifest;
    if (there.version != version || there.run != manifest_.run || there.model_id != manifest_.model_id ||
        there.files != manifest_.files || there.open) {
      return std::optional<VersionRecord>();
    }
    const Result<CertificateInfo> signer = check_accepted_manifest(there, keys_, revocations_, unix_now_s());
    if (!signer.has_value()) return about(path.native(), signer.error());
    return std::optional(std::move(*record));
  }

  /// Whether the origin has signed a tree over that version; the first one that is met counts.
  Status look_for_tree(Version version) {
    if (way_.tree.chunk_bytes != 0) return {};
    std::vector<fs::path> paths;
    for (const StoreLayout& place : layout_.places()) paths.insert(paths.begin(), place.record(version));
    WC_ASSIGN(const std::vector<PayloadId> patches, patches_to(version));
    for (const PayloadId patch : patches) paths.push_back(layout_.record(patch));
    for (const fs::path& path : paths) {
      WC_ASSIGN(const std::optional<VersionRecord> record, signed_record(path, version));
      if (!record || record->manifest.tree_of_snapshot().chunk_bytes == 0) continue;
      way_.tree = record->manifest.tree_of_snapshot();
      way_.proven = version;
      steps_from_proven_ = way_.steps.size();
      return {};
    }
    return {};
  }

  Result<bool> start_at(Version version) {
    // What is kept on the disk stays as it is while versions come and go.
    for (const StoreLayout& where : layout_.places()) {
      const fs::path path = where.complete(version);
      WC_ASSIGN(const std::optional<VersionRecord> record, signed_record(where.record(version), version));
      if (!record) continue;
      WC_ASSIGN(FileTable table, FileTable::make(manifest_.files));
      Result<FilesRef> opened = VersionFiles::open(layout_.files(), path, std::move(table));
      if (!opened.has_value() && opened.error().code == Errc::kNotFound) continue;
      if (!opened.has_value()) return about(path.native(), opened.error());
      way_.start = path;
      way_.files = std::move(*opened);
      way_.start_digest = record->manifest.snapshot_digest;
      return true;
    }
    return false;
  }

  /// The patches here that lead to that version, by records; the shortest step first.
  Result<std::vector<PayloadId>> patches_to(Version version) const {
    const Result<std::vector<std::string>> names = layout_.files().list(layout_.patches());
    if (!names.has_value() && names.error().code != Errc::kNotFound) return names.error();
    std::vector<PayloadId> found;
    if (!names.has_value()) return found;
    for (const std::string& name : *names) {
      const auto payload = layout_.payload_of(name);
      if (payload && payload->is_patch() && payload->version == version) found.push_back(*payload);
    }
    std::ranges::sort(found, std::greater<>(), &PayloadId::base);
    return found;
  }

  Result<std::optional<Step>> step_to(Version version) const {
    WC_ASSIGN(const std::vector<PayloadId> patches, patches_to(version));
    for (const PayloadId patch : patches) {
      const fs::path path = layout_.patch(patch);
      WC_ASSIGN(std::optional<VersionRecord> record, signed_record(layout_.record(patch), version));
      if (!record || record->manifest.id() != patch) continue;
      WC_ASSIGN(FileTable table, payload_files(record->manifest));
      Result<FilesRef> opened = VersionFiles::open(layout_.files(), path, std::move(table));
      if (!opened.has_value() && opened.error().code == Errc::kNotFound) continue;
      if (!opened.has_value()) return about(path.native(), opened.error());
      return std::optional(Step{path, std::move(*record), std::move(*opened)});
    }
    return std::optional<Step>();
  }

  Way finished() {
    std::ranges::reverse(way_.steps);
    way_.proven_after = way_.steps.size() - steps_from_proven_;
    return std::move(way_);
  }

  const StoreLayout& layout_;
  const Manifest& manifest_;
  const NodeKeys& keys_;
  const Revocations& revocations_;
  const unsigned threads_;
  Way way_;  // its steps newest first, until it is finished
  std::size_t steps_from_proven_ = 0;
};

}  // namespace

Result<ProvenVersion> verify_version(FileSystem& files, const fs::path& version, const NodeKeys& keys,
                                     const Revocations& revocations, unsigned threads) {
  const auto named = StoreLayout::named(version.filename().native());
  if (!named || named->payload.is_encoded() || version.parent_path().filename() != kVersions) {
    return fail(Errc::kNotFound, Op::kVerify,
                version.native() + ": not the directory of a version; give DIR/versions/N, or the state directory DIR");
  }
  const StoreLayout layout = StoreLayout::around(files, version.parent_path(), named->run);
  const fs::path path = layout.record(named->payload);
  Result<VersionRecord> record = read_record(files, path);
  if (!record.has_value()) return about(path.native(), record.error());
  if (record->manifest.version != named->payload.version || record->manifest.open) {
    return fail(Errc::kCorrupt, Op::kVerify, path.native() + ": it is the record of another version");
  }
  ProvenVersion proven{.manifest = std::move(record->manifest), .signer = {}};
  const Manifest& manifest = proven.manifest;
  Result<CertificateInfo> signer = check_accepted_manifest(manifest, keys, revocations, unix_now_s());
  if (!signer.has_value()) return about(path.native(), signer.error());
  proven.signer = std::move(*signer);

  WC_ASSIGN(FileTable table, FileTable::make(manifest.files));
  Result<FilesRef> opened = VersionFiles::open(files, version, std::move(table));
  if (!opened.has_value()) return about(version.native(), opened.error());
  const Result<std::vector<std::string>> foreign = foreign_names(files, version, (*opened)->table());
  if (!foreign.has_value()) return about(version.native(), foreign.error());
  if (!foreign->empty()) {
    return fail(Errc::kCorrupt, Op::kVerify,
                fmt::format("{}: '{}' is no file of the published version", version.native(), foreign->front()));
  }
  for (const SnapshotFile& file : manifest.files) {
    if (!manifest.file_tree) break;  // those of weights say nothing of it
    const Result<FileInfo> info = files.link_info(version / file.name);
    if (!info.has_value()) return about(version.native(), info.error());
    if (info->executable == file.executable) continue;
    return fail(Errc::kCorrupt, Op::kVerify,
                fmt::format("{}: it is {}executable, unlike the published one", (version / file.name).native(),
                            info->executable ? "" : "not "));
  }
  if (const HashTree tree = manifest.tree_of_snapshot(); tree.chunk_bytes != 0) {
    const Result<ContentDigest> root = root_of(**opened, tree, threads);
    if (!root.has_value()) return about(version.native(), root.error());
    if (*root != tree.root) return not_published(version, *root, tree);
    proven.by = manifest.version;
    return proven;
  }
  WayToVersion to_version(layout, manifest, keys, revocations, threads);
  WC_ASSIGN(Way way, to_version.find());
  WC_TRY(to_version.go(way, version, **opened));
  proven.by = way.proven;
  proven.patches = static_cast<std::uint32_t>(way.steps.size() - way.proven_after);
  return proven;
}

Result<std::vector<fs::path>> versions_below(FileSystem& files, const fs::path& path) {
  const fs::path clean = path.has_filename() ? path : path.parent_path();
  if (StoreLayout::named(clean.filename().native()) && clean.parent_path().filename() == kVersions) {
    return std::vector{clean};
  }
  WC_ASSIGN(const fs::path root, StoreLayout::versions_root_of(files, clean));
  const fs::path versions = root / kVersions;
  const Result<std::vector<std::string>> names = files.list(versions);
  std::vector<fs::path> found;
  if (names.has_value()) {
    for (const std::string& name : *names) {
      const auto named = StoreLayout::named(name);
      if (named && !named->payload.is_encoded()) found.push_back(versions / name);
    }
  } else if (names.error().code != Errc::kNotFound) {
    return about(clean.native(), names.error());
  }
  if (found.empty()) {
    return fail(Errc::kNotFound, Op::kVerify, clean.native() + ": holds no version; give a daemon's --state directory");
  }
  std::ranges::sort(found);
  return found;
}

fs::path state_directory_of(FileSystem& files, const fs::path& version) {
  return StoreLayout::around(files, version.parent_path(), 1).directory();
}

}  // namespace weightcast
