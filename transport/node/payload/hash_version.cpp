#include "transport/node/payload/hash_version.h"

#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <filesystem>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "patch/snapshot/snapshot_digest.h"
#include "transport/io/log.h"
#include "transport/io/store/files/version_files.h"
#include "transport/node/payload/chunk_hasher.h"
#include "transport/node/payload/full_manifest.h"

namespace weightcast {
namespace {

// Read and hashed in the second-level cache.
constexpr std::size_t kPieceBytes = 256 * kKiB;

/// The source of a full payload: a complete version of the store, which is read where it lies.
class VersionHashing final : public PayloadSource {
 public:
  VersionHashing(Jobs& jobs, FileSystem& file_system, HashVersionRequest request, const StoredVersion& version)
      : jobs_(jobs),
        file_system_(file_system),
        request_(std::move(request)),
        path_(version.path),
        published_(version.manifest) {}

  Status open() override {
    WC_ASSIGN(FileTable table, FileTable::make(published_.files));
    WC_ASSIGN(files_, VersionFiles::open(file_system_, path_, std::move(table)));
    return {};
  }

  Result<Announcement> announce() override {
    WC_ASSIGN(Announcement announcement,
              announce_full({request_.version, published_.model_id, published_.files, published_.file_tree,
                             kPackedShareOfWeights, published_.published_unix_ms, request_.author},
                            request_.choose_chunk_bytes));
    chunk_bytes_ = announcement.manifest.chunk_bytes;
    digest_.emplace(files_->table());
    return announcement;
  }

  // The files are there.
  void begin(Store& /*store*/, std::function<void(Status)> done) override {
    jobs_.post([done = std::move(done)] { done({}); });
  }

  [[nodiscard]] unsigned jobs() const override { return jobs_.loop().jobs_at_once_max(); }

  Status produce(const Report& report) override {
    std::vector<std::byte> buffer(std::min<std::uint64_t>(kPieceBytes, files_->table().size_bytes()));
    for (std::size_t leaf = next_leaf_++; leaf < digest_->leaf_count() && !stopped_; leaf = next_leaf_++) {
      WC_TRY(hash_leaf(leaf, buffer, report));
    }
    return {};
  }

  void stop() override { stopped_ = true; }

  Result<Checksum> end() override {
    const Checksum digest = digest_->root();
    if (digest == published_.snapshot_digest) return digest;
    return fail(Errc::kCorrupt, Op::kVerify,
                fmt::format("{}: its bytes are not those that were published (digest {} instead of {}); this node's "
                            "disk may be failing",
                            path_.native(), digest.hex(), published_.snapshot_digest.hex()));
  }

  void finish(Store& store, const MadePayload& made, std::function<void(Status)> done) override {
    store.add_full_manifest(*made.manifest, made.chunk_digests, [done = std::move(done)](const Status& kept) {
      const bool is_disk = !kept.has_value() && (kept.error().code == Errc::kNoSpace || kept.error().code == Errc::kIo);
      if (!is_disk) return done(kept);
      log_warning("its digests are not kept over a restart: {}", kept.error().message());
      done({});
    });
  }

 private:
  // Leaves are multiples of chunks: each thread hashes whole ones.
  Status hash_leaf(std::size_t leaf, std::vector<std::byte>& buffer, const Report& report) {
    std::uint64_t offset = digest_->leaf_offset_bytes(leaf);
    const std::uint64_t end = offset + digest_->leaf_size_bytes(leaf);
    const auto first_chunk = static_cast<std::uint32_t>(offset / chunk_bytes_);
    ChunkHasher chunks(chunk_bytes_);
    for (; offset < end; offset += buffer.size()) {
      if (jobs_.cancelled()) return Jobs::cancelled_error(Op::kPublish);
      const MutableBytes piece = MutableBytes(buffer).first(std::min<std::uint64_t>(buffer.size(), end - offset));
      WC_TRY(read_stream(*files_, offset, piece));
      chunks.update(piece);
      digest_->add(offset, piece);
    }
    chunks.finish();
    report(first_chunk, chunks.digests(), digest_->leaf_size_bytes(leaf));
    return {};
  }

  Jobs& jobs_;
  FileSystem& file_system_;
  const HashVersionRequest request_;
  const std::filesystem::path path_;
  const Manifest published_;
  FilesRef files_;
  std::uint32_t chunk_bytes_ = 0;
  std::atomic<std::size_t> next_leaf_{0};
  std::atomic<bool> stopped_{false};
  std::optional<SnapshotDigest> digest_;
};

}  // namespace

void hash_version(Jobs& jobs, FileSystem& files, Store& store, HashVersionRequest request, PayloadObserver observer) {
  const StoredVersion* version = store.find(request.version);
  if (version == nullptr) {
    return jobs.post([done = std::move(observer.done)] {
      done(fail(Errc::kNotFound, Op::kPublish, "the version is not in the store any more"));
    });
  }
  auto source = std::make_unique<VersionHashing>(jobs, files, std::move(request), *version);
  std::make_shared<PayloadProducer>(jobs, store, std::move(source), std::move(observer))->start();
}

}  // namespace weightcast
