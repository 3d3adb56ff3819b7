#include "transport/node/verify_version.h"

#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <mutex>

#include "base/parallel.h"
#include "transport/io/store/store_layout.h"
#include "transport/io/store/version_files.h"
#include "transport/io/store/version_record.h"
#include "transport/node/signed_manifests.h"

namespace weightcast {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kVersions = "versions";

/// The root of the tree over what the files hold.
Result<ContentDigest> root_of(VersionFiles& files, const HashTree& tree, unsigned threads) {
  const std::uint64_t bytes = files.table().size_bytes();
  const std::uint64_t chunks = (bytes + tree.chunk_bytes - 1) / tree.chunk_bytes;
  std::vector<ContentDigest> digests(chunks);
  std::mutex mutex;  // guards `status`
  Status status;
  for_each_index(chunks, threads, [&](std::size_t chunk) {
    const std::uint64_t offset = chunk * std::uint64_t{tree.chunk_bytes};
    std::vector<std::byte> buffer(std::min<std::uint64_t>(tree.chunk_bytes, bytes - offset));
    const Status read = read_stream(files, offset, buffer);
    if (read.has_value()) {
      digests[chunk] = content_digest_of(buffer);
      return;
    }
    const std::lock_guard lock(mutex);
    status = read;
  });
  WC_TRY(status);
  const std::vector<ContentDigest> parts = part_digests_of(digests, tree.part_chunks);
  return content_digest_of(std::as_bytes(std::span(parts)));
}

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
  ProvenVersion proven{std::move(record->manifest), {}};
  const Manifest& manifest = proven.manifest;
  Result<CertificateInfo> signer = check_manifest(manifest, keys, revocations, manifest.published_unix_ms / 1000);
  if (!signer.has_value()) return about(path.native(), signer.error());
  proven.signer = std::move(*signer);

  const HashTree tree = manifest.tree_of_snapshot();
  if (tree.chunk_bytes == 0) {
    return fail(Errc::kNotAllowed, Op::kVerify, path.native() + ": its manifest says nothing of the version's bytes");
  }
  WC_ASSIGN(FileTable table, FileTable::make(manifest.files));
  Result<std::shared_ptr<VersionFiles>> opened = VersionFiles::open(files, version, std::move(table));
  if (!opened.has_value()) return about(version.native(), opened.error());
  const Result<std::vector<std::string>> foreign = foreign_names(files, version, (*opened)->table());
  if (!foreign.has_value()) return about(version.native(), foreign.error());
  if (!foreign->empty()) {
    return fail(Errc::kCorrupt, Op::kVerify,
                fmt::format("{}: '{}' is no file of the published version", version.native(), foreign->front()));
  }
  const Result<ContentDigest> root = root_of(**opened, tree, threads);
  if (!root.has_value()) return about(version.native(), root.error());
  if (*root == tree.root) return proven;
  return fail(Errc::kCorrupt, Op::kVerify,
              fmt::format("{}: its bytes are not those that were published (SHA-256 tree {}, signed {})",
                          version.native(), root->hex(), tree.root.hex()));
}

Result<std::vector<fs::path>> versions_below(FileSystem& files, const fs::path& path) {
  const fs::path clean = path.has_filename() ? path : path.parent_path();
  if (StoreLayout::named(clean.filename().native()) && clean.parent_path().filename() == kVersions) {
    return std::vector{clean};
  }
  WC_ASSIGN(const fs::path home, StoreLayout::home_of_versions(files, clean));
  const fs::path versions = home / kVersions;
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
