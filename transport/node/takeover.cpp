#include "transport/node/takeover.h"

#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <mutex>
#include <optional>

#include "patch/snapshot/finite.h"
#include "patch/snapshot/snapshot.h"
#include "patch/snapshot/snapshot_digest.h"
#include "transport/io/store/version_files.h"
#include "transport/node/chunk_hasher.h"
#include "transport/node/full_manifest.h"
#include "transport/node/model_files.h"
#include "transport/node/sampled_share.h"

namespace weightcast {
namespace {

// Read, scanned, hashed and written from the second-level cache; and little memory to touch before the first chunk can
// leave.
constexpr std::size_t kPieceBytes = 256 * kKiB;

/// The source of a full payload: a snapshot of the trainer's, which is copied into the store.
class SnapshotCopy final : public PayloadSource {
 public:
  SnapshotCopy(Jobs& jobs, FileSystem& file_system, TakeoverRequest request)
      : jobs_(jobs), file_system_(file_system), request_(std::move(request)) {}

  Status open() override {
    if (request_.region) {
      WC_ASSIGN(source_, SnapshotSource::over(file_system_, request_.region, request_.region_bytes, name()));
    } else {
      WC_ASSIGN(source_, SnapshotSource::open(file_system_, request_.path));
    }
    WC_TRY(add_files());
    if (source_->size_bytes() == 0) {
      return fail(Errc::kInvalidArgument, Op::kPublish, fmt::format("{}: holds nothing", name()));
    }
    if (!request_.allow_nonfinite) scan_.emplace(*source_);
    if (!request_.sample_packing) return {};
    // Before the copy: what does not become smaller is sent meanwhile.
    WC_ASSIGN(packed_share_, packed_share(*source_));
    return {};
  }

  Result<Announcement> announce() override {
    files_ = source_->file_table().files();
    WC_ASSIGN(Announcement announcement, announce_full({request_.version, request_.model_id, files_, packed_share_,
                                                        jobs_.loop().unix_ms(), request_.author},
                                                       request_.choose_chunk_bytes));
    chunk_bytes_ = announcement.manifest.chunk_bytes;
    digest_.emplace(source_->file_table());
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
    std::vector<std::byte> buffer(std::min<std::uint64_t>(kPieceBytes, source_->size_bytes()));
    for (std::size_t leaf = next_leaf_++; leaf < digest_->leaf_count() && !stopped_; leaf = next_leaf_++) {
      WC_TRY(copy_leaf(leaf, buffer, report));
    }
    return {};
  }

  void stop() override { stopped_ = true; }

  Result<Checksum> end() override {
    WC_TRY(source_->check_unchanged());
    if (scan_) WC_TRY(check_finite());
    return digest_->root();
  }

  void finish(Store& store, const MadePayload& made, std::function<void(Status)> done) override {
    target_.reset();
    if (!notice_.empty() && request_.notice) request_.notice(notice_);
    store.finish_import(*made.manifest, made.chunk_digests,
                        [done = std::move(done)](const Result<StoredVersion>& stored) {
                          done(stored.has_value() ? Status() : Status(stored.error()));
                        },
                        {std::make_shared<const LeafSums>(digest_->leaves()), nullptr});
  }

 private:
  [[nodiscard]] std::string name() const { return request_.region ? "the region" : request_.path; }

  /// Looks whether it is the model of the version before, and adds what is to accompany the weights.
  Status add_files() {
    bool brings_own = false;
    if (!request_.region) {
      WC_ASSIGN(const FileInfo info, file_system_.info(request_.path));
      brings_own = info.is_directory();
    }
    if (brings_own && request_.files) {
      return fail(Errc::kInvalidArgument, Op::kPublish,
                  fmt::format("{}: a directory brings its own files; put the others into it", name()));
    }
    std::optional<Sidecars> added;
    if (request_.files) {
      WC_ASSIGN(added, unpack_files(file_system_, request_.files, request_.files_bytes));
    }
    std::optional<SnapshotSource> before;
    if (!request_.before_path.empty()) {
      Result<SnapshotSource> opened = SnapshotSource::open(file_system_, request_.before_path.string());
      if (opened.has_value()) {
        before = std::move(*opened);
      } else if (!request_.new_model) {
        return about(fmt::format("version {}, which this one is to follow", request_.before.value), opened.error());
      }
    }
    if (before) {
      const std::optional<std::string> other = difference_of(before->tensors(), source_->tensors());
      if (other && !request_.new_model) return another_model(*other);
      // Those of another model would be wrong.
      if (!brings_own && !added && !other) {
        WC_ASSIGN(added, before->read_sidecars());
        std::erase_if(*added, [this](const auto& file) {
          return std::ranges::find(request_.before_files, file.first, &SnapshotFile::name) ==
                 request_.before_files.end();
        });
      }
    }
    if (added) WC_TRY(source_->add_sidecars(*added));
    if (!before) return {};
    const std::string lost = lost_sidecars(request_.before_files, source_->file_table().files());
    if (!lost.empty()) {
      notice_ = fmt::format("version {} goes without files that version {} had: {}", request_.version.value,
                            request_.before.value, lost);
    }
    return {};
  }

  [[nodiscard]] Error another_model(const std::string& difference) const {
    return fail(
        Errc::kInvalidArgument, Op::kPublish,
        fmt::format("{}: its tensors are not those of version {}: {}; publish with {} if the workers are to take "
                    "another model",
                    name(), request_.before.value, difference, request_.region ? "WC_NEW_MODEL" : "--new-model"));
  }

  // Leaves are multiples of chunks, so that each is scanned and hashed, and its chunks are, by the thread that has it.
  Status copy_leaf(std::size_t leaf, std::vector<std::byte>& buffer, const Report& report) {
    std::uint64_t offset = digest_->leaf_offset_bytes(leaf);
    const std::uint64_t end = offset + digest_->leaf_size_bytes(leaf);
    const auto first_chunk = static_cast<std::uint32_t>(offset / chunk_bytes_);
    ChunkHasher chunks(chunk_bytes_);
    for (; offset < end; offset += buffer.size()) {
      if (jobs_.cancelled()) return Jobs::cancelled_error(Op::kPublish);
      const MutableBytes piece = MutableBytes(buffer).first(std::min<std::uint64_t>(buffer.size(), end - offset));
      WC_TRY(source_->read_at(offset, piece));
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

  Status check_finite() const {
    const std::optional<NonFinite> found = scan_->result();
    if (!found) return {};
    return fail(Errc::kInvalidArgument, Op::kPublish,
                fmt::format("{}: {} elements of {} tensors are NaN or infinite, the first in '{}'; publish with "
                            "{} if that is meant",
                            name(), found->elements, found->tensors, found->first_tensor,
                            request_.region ? "WC_ALLOW_NONFINITE" : "--allow-nonfinite"));
  }

  Jobs& jobs_;
  FileSystem& file_system_;
  const TakeoverRequest request_;
  std::optional<SnapshotSource> source_;
  std::string notice_;
  double packed_share_ = kPackedShareOfWeights;
  std::optional<NonFiniteScan> scan_;  // unless such elements are allowed
  std::vector<SnapshotFile> files_;
  std::uint32_t chunk_bytes_ = 0;
  std::shared_ptr<VersionFiles> target_;
  std::atomic<std::size_t> next_leaf_{0};
  std::atomic<bool> stopped_{false};
  std::mutex write_mutex_;
  std::optional<SnapshotDigest> digest_;
};

}  // namespace

void take_over(Jobs& jobs, FileSystem& files, Store& store, TakeoverRequest request, PayloadObserver observer) {
  auto source = std::make_unique<SnapshotCopy>(jobs, files, std::move(request));
  std::make_shared<PayloadProducer>(jobs, store, std::move(source), std::move(observer))->start();
}

}  // namespace weightcast
