#include "transport/node/takeover/takeover.h"

#include <algorithm>
#include <atomic>
#include <mutex>
#include <optional>

#include "patch/snapshot/finite.h"
#include "patch/snapshot/snapshot.h"
#include "patch/snapshot/snapshot_digest.h"
#include "transport/io/store/files/version_files.h"
#include "transport/node/payload/chunk_hasher.h"
#include "transport/node/payload/full_manifest.h"
#include "transport/node/payload/sampled_share.h"

namespace weightcast {
namespace {

// Read, scanned, hashed and written from the second-level cache; and little memory to touch before the first chunk can
// leave.
constexpr std::size_t kPieceBytes = 256 * kKiB;

/// The source of a full payload: a snapshot of the trainer's, which is copied into the store.
class SnapshotCopy final : public PayloadSource {
 public:
  SnapshotCopy(Jobs& jobs, TakeoverRequest request)
      : jobs_(jobs), request_(std::move(request)), source_(request_.snapshot->source) {}

  Status open() override {
    if (!request_.allow_nonfinite) scan_.emplace(source_);
    if (!request_.sample_packing) return {};
    // Before the copy: what does not become smaller is sent meanwhile.
    WC_ASSIGN(packed_share_, packed_share(source_));
    return {};
  }

  Result<Announcement> announce() override {
    files_ = source_.file_table().files();
    WC_ASSIGN(Announcement announcement,
              announce_full({request_.version, request_.model_id, files_, request_.snapshot->file_tree, packed_share_,
                             jobs_.loop().unix_ms(), request_.author},
                            request_.choose_chunk_bytes));
    chunk_bytes_ = announcement.manifest.chunk_bytes;
    digest_.emplace(source_.file_table());
    return announcement;
  }

  void begin(Store& store, std::function<void(Status)> done) override {
    store.begin_import(request_.version, files_, [this, done = std::move(done)](const Result<ImportTarget>& target) {
      if (!target.has_value()) return done(target.error());
      target_ = target->files;
      done({});
    });
  }

  [[nodiscard]] unsigned jobs() const override { return jobs_.loop().jobs_at_once_max(); }

  Status produce(const Report& report) override {
    std::vector<std::byte> buffer(std::min<std::uint64_t>(kPieceBytes, source_.size_bytes()));
    for (std::size_t leaf = next_leaf_++; leaf < digest_->leaf_count() && !stopped_; leaf = next_leaf_++) {
      WC_TRY(copy_leaf(leaf, buffer, report));
    }
    return {};
  }

  void stop() override { stopped_ = true; }

  Result<Checksum> end() override {
    WC_TRY(source_.check_unchanged());
    if (scan_) WC_TRY(check_finite(*scan_, *request_.snapshot));
    return digest_->root();
  }

  void finish(Store& store, const MadePayload& made, std::function<void(Status)> done) override {
    target_.reset();
    store.finish_import(*made.manifest, made.chunk_digests,
                        [done = std::move(done)](const Result<StoredVersion>& stored) {
                          done(stored.has_value() ? Status() : Status(stored.error()));
                        },
                        {std::make_shared<const LeafSums>(digest_->leaves()), nullptr});
  }

 private:
  // Leaves are multiples of chunks, so that each is scanned and hashed, and its chunks are, by the thread that has it.
  Status copy_leaf(std::size_t leaf, std::vector<std::byte>& buffer, const Report& report) {
    std::uint64_t offset = digest_->leaf_offset_bytes(leaf);
    const std::uint64_t end = offset + digest_->leaf_size_bytes(leaf);
    const auto first_chunk = static_cast<std::uint32_t>(offset / chunk_bytes_);
    ChunkHasher chunks(chunk_bytes_);
    for (; offset < end; offset += buffer.size()) {
      if (jobs_.cancelled()) return Jobs::cancelled_error(Op::kPublish);
      const MutableBytes piece = MutableBytes(buffer).first(std::min<std::uint64_t>(buffer.size(), end - offset));
      WC_TRY(source_.read_at(offset, piece));
      if (scan_) {
        WC_TRY(scan_->scan(offset, piece));
        if (scan_->any()) continue;  // refused already; what is left is to count
      }
      chunks.update(piece);
      digest_->add(offset, piece);
      WC_TRY(write_piece(offset, piece));
    }
    if (scan_ && scan_->any()) return {};
    chunks.finish();
    report(first_chunk, chunks.digests(), digest_->leaf_size_bytes(leaf));
    return {};
  }

  Status write_piece(std::uint64_t offset, Bytes bytes) {
    // The kernel lets one writer at a time into a file, and the others spin: here they sleep, and somebody hashes.
    const std::lock_guard lock(write_mutex_);
    return write_stream(*target_, offset, bytes);
  }

  Jobs& jobs_;
  const TakeoverRequest request_;
  const SnapshotSource& source_;  // the request's
  double packed_share_ = kPackedShareOfWeights;
  std::optional<NonFiniteScan> scan_;  // unless such elements are allowed
  std::vector<SnapshotFile> files_;
  std::uint32_t chunk_bytes_ = 0;
  FilesRef target_;
  std::atomic<std::size_t> next_leaf_{0};
  std::atomic<bool> stopped_{false};
  std::mutex write_mutex_;
  std::optional<SnapshotDigest> digest_;
};

}  // namespace

void take_over(Jobs& jobs, Store& store, TakeoverRequest request, PayloadObserver observer) {
  auto source = std::make_unique<SnapshotCopy>(jobs, std::move(request));
  std::make_shared<PayloadProducer>(jobs, store, std::move(source), std::move(observer))->start();
}

}  // namespace weightcast
