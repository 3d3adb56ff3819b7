#include "transport/node/takeover.h"

#include <fcntl.h>
#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <mutex>
#include <optional>

#include "patch/snapshot/finite.h"
#include "patch/snapshot/snapshot.h"
#include "patch/snapshot/snapshot_digest.h"
#include "proto/wire.pb.h"
#include "transport/io/disk/posix_file.h"
#include "transport/node/chunk_hasher.h"
#include "transport/node/packed_share.h"

namespace weightcast {
namespace {

// The copy is bound by memory; a second thread hides the first one's page faults, more add nothing.
constexpr unsigned kThreads = 2;
// Read, scanned, hashed and written from the second-level cache; and little memory to touch before the first chunk can
// leave.
constexpr std::size_t kPieceBytes = 256 * kKiB;
// Parts are leaves as long as there are not more than these: workers hear of each.
constexpr std::uint32_t kPartsMax = 4096;
// What has been told grows by this share at least, so that a large snapshot does not take thousands of messages to each
// worker. Copying is faster than sending: nobody waits for what is not told yet.
constexpr double kGrowthShare = 0.5;

/// Chunks of a part of a payload that is sent while it is copied.
std::uint32_t choose_part_chunks(std::uint64_t payload_bytes, std::uint32_t chunk_bytes) {
  const std::uint64_t leaf_chunks = kDigestBlockBytes / chunk_bytes;
  const std::uint64_t chunks = payload_bytes / chunk_bytes + 1;
  return static_cast<std::uint32_t>(
      std::clamp<std::uint64_t>(std::max(leaf_chunks, chunks / kPartsMax), 1, kDigestsPerPart));
}

// What a worker would refuse is refused here, where somebody reads why.
Status check_fits_the_wire(Manifest manifest) {
  manifest.part_digests.resize(manifest.part_count());
  const wire::Manifest message = manifest_to_wire(manifest);
  if (message.ByteSizeLong() > kControlBytesMax / 2) {
    return fail(Errc::kTooLarge, Op::kPublish,
                fmt::format("a manifest of {} bytes, at most {} can be sent; use fewer files or larger chunks",
                            message.ByteSizeLong(), kControlBytesMax / 2));
  }
  WC_TRY(manifest_from_wire(message));
  return {};
}

// One takeover; kept alive by the closures of its steps.
class Takeover : public std::enable_shared_from_this<Takeover> {
 public:
  Takeover(Jobs& jobs, Store& store, TakeoverRequest request, TakeoverObserver observer)
      : jobs_(jobs), store_(store), request_(std::move(request)), observer_(std::move(observer)) {}

  void start() {
    jobs_.run([self = shared_from_this()] { self->open_source(); },
              [self = shared_from_this()] { self->begin_import(); });
  }

 private:
  void open_source() {
    auto source = SnapshotSource::open(request_.path);
    if (!source.has_value()) return note(source.error());
    source_.emplace(std::move(*source));
    if (source_->size_bytes() == 0) {
      return note(fail(Errc::kInvalidArgument, Op::kPublish, fmt::format("{}: holds nothing", request_.path)));
    }
    if (!request_.allow_nonfinite) scan_.emplace(*source_);
    if (!request_.look_whether_packable) return;
    // Before the copy: what does not become smaller is sent meanwhile.
    const Result<double> share = packed_share(*source_);
    if (!share.has_value()) return note(share.error());
    packable_ = *share < kPackedShareMax;
  }

  void begin_import() {
    if (error_) return observer_.done(*error_);
    manifest_.model_id = request_.model_id;
    manifest_.version = request_.version;
    manifest_.kind = PayloadKind::kFull;
    manifest_.payload_bytes = source_->size_bytes();
    manifest_.files = source_->file_table().files();
    manifest_.chunk_bytes = request_.choose_chunk_bytes(manifest_.payload_bytes);
    manifest_.part_chunks = choose_part_chunks(manifest_.payload_bytes, manifest_.chunk_bytes);
    manifest_.published_unix_ms = jobs_.loop().unix_ms();
    if (Status fits = check_fits_the_wire(manifest_); !fits.has_value()) return observer_.done(fits.error());
    // Workers make room while this node does.
    observer_.begun(made_of(0, true).manifest, packable_);
    store_.begin_import(request_.version, manifest_.files, [self = shared_from_this()](Result<ImportTarget> target) {
      if (!target.has_value()) return self->observer_.done(target.error());  // there is nothing to throw away
      for (const auto& path : target->paths) {
        auto file = open_file(path, O_WRONLY);
        if (!file.has_value()) return self->abandon(file.error());
        self->targets_.push_back(std::move(*file));
      }
      self->copy();
    });
  }

  void copy() {
    digest_.emplace(source_->file_table());
    chunk_digests_.resize(manifest_.chunk_count());
    copied_.resize(digest_->leaf_count());
    copying_ = kThreads;
    for (unsigned i = 0; i < kThreads; ++i) {
      jobs_.run([self = shared_from_this()] { self->copy_leaves(); },
                [self = shared_from_this()] {
                  if (--self->copying_ == 0) self->finish();
                });
    }
  }

  void copy_leaves() {
    std::vector<std::byte> buffer(std::min<std::uint64_t>(kPieceBytes, source_->size_bytes()));
    for (std::size_t leaf = next_leaf_++; leaf < digest_->leaf_count() && !failed_; leaf = next_leaf_++) {
      if (Status copied = copy_leaf(leaf, buffer); !copied.has_value()) return note(copied.error());
    }
  }

  // Leaves are multiples of chunks, so that each is scanned and hashed, and its chunks are, by the thread that has it.
  Status copy_leaf(std::size_t leaf, std::vector<std::byte>& buffer) {
    std::uint64_t offset = digest_->leaf_offset_bytes(leaf);
    const std::uint64_t end = offset + digest_->leaf_size_bytes(leaf);
    const std::uint64_t first_chunk = offset / manifest_.chunk_bytes;
    ChunkHasher chunks(manifest_.chunk_bytes);
    DigestStream digest;
    for (; offset < end; offset += buffer.size()) {
      if (jobs_.cancelled()) return Jobs::cancelled_error(Op::kPublish);
      const MutableBytes piece = MutableBytes(buffer).first(std::min<std::uint64_t>(buffer.size(), end - offset));
      WC_TRY(source_->read_at(offset, piece));
      if (scan_) {
        WC_TRY(scan_->scan(offset, piece));
        if (scan_->any()) continue;  // refused already; what is left is to count
      }
      chunks.update(piece);
      digest.update(piece);
      WC_TRY(write_piece(offset, piece));
    }
    if (scan_ && scan_->any()) return {};
    chunks.finish();
    std::ranges::copy(chunks.digests(), chunk_digests_.begin() + static_cast<std::ptrdiff_t>(first_chunk));
    handle_leaf(leaf, digest.digest());
    return {};
  }

  // What is whole from the first byte on is told, while copying goes on.
  void handle_leaf(std::size_t leaf, const Digest& digest) {
    const std::lock_guard lock(mutex_);
    digest_->set_leaf(leaf, digest);
    copied_[leaf] = true;
    while (first_missing_ < copied_.size() && copied_[first_missing_]) ++first_missing_;
    if (failed_ || (scan_ && scan_->any()) || first_missing_ == copied_.size()) return;
    const std::uint64_t chunks = digest_->leaf_offset_bytes(first_missing_) / manifest_.chunk_bytes;
    const auto whole = static_cast<std::uint32_t>(chunks / manifest_.part_chunks * manifest_.part_chunks);
    if (whole <= told_chunks_ || double(whole - told_chunks_) < kGrowthShare * double(told_chunks_)) return;
    told_chunks_ = whole;
    jobs_.post([self = shared_from_this(), grown = made_of(whole, true)]() mutable {
      if (self->finishing_) return;  // that tells all
      self->store_.grow_making(*grown.manifest);
      self->observer_.grown(std::move(grown));
    });
  }

  /// What the first `chunks` amount to.
  [[nodiscard]] MadePayload made_of(std::uint32_t chunks, bool open) const {
    MadePayload made{nullptr, {chunk_digests_.begin(), chunk_digests_.begin() + chunks}};
    auto manifest = std::make_shared<Manifest>(manifest_);
    if (open) {
      manifest->open = true;
      manifest->expected_bytes = manifest_.payload_bytes;
      manifest->payload_bytes = std::uint64_t{chunks} * manifest_.chunk_bytes;
    } else {
      manifest->snapshot_digest = digest_->root();
    }
    manifest->part_digests = part_digests_of(made.chunk_digests, manifest_.part_chunks);
    made.manifest = std::move(manifest);
    return made;
  }

  Status write_piece(std::uint64_t offset, Bytes bytes) {
    // The kernel lets one writer at a time into a file, and the others spin: here they sleep, and somebody hashes.
    const std::lock_guard lock(write_mutex_);
    for (const FilePiece& piece : source_->file_table().pieces(offset, bytes.size())) {
      WC_TRY(write_fully(targets_[piece.file], piece.offset_bytes, bytes.first(piece.size_bytes),
                         manifest_.files[piece.file].name));
      bytes = bytes.subspan(piece.size_bytes);
    }
    return {};
  }

  void finish() {
    finishing_ = true;
    if (!error_) {
      if (Status same = source_->check_unchanged(); !same.has_value()) note(same.error());
    }
    if (scan_ && !error_) refuse_non_finite();
    if (error_) return abandon(*error_);
    MadePayload made = made_of(manifest_.chunk_count(), false);
    const std::shared_ptr<const Manifest> manifest = made.manifest;
    store_.finish_import(
        *manifest, chunk_digests_,
        [self = shared_from_this(), made = std::move(made)](const Result<StoredVersion>& stored) mutable {
          if (!stored.has_value()) return self->abandon(stored.error());
          self->observer_.done(std::move(made));
        });
  }

  void refuse_non_finite() {
    const std::optional<NonFinite> found = scan_->result();
    if (!found) return;
    note(fail(Errc::kInvalidArgument, Op::kPublish,
              fmt::format("{}: {} elements of {} tensors are NaN or infinite, the first in '{}'; publish with "
                          "--allow-nonfinite if that is meant",
                          request_.path, found->elements, found->tensors, found->first_tensor)));
  }

  // Who is being sent some of it hears that it ends before it is gone.
  void abandon(const Error& why) {
    observer_.done(why);
    store_.discard(request_.version);
  }

  void note(Error error) {
    const std::lock_guard lock(mutex_);
    if (!error_) error_ = std::move(error);
    failed_ = true;
  }

  Jobs& jobs_;
  Store& store_;
  TakeoverRequest request_;
  TakeoverObserver observer_;

  std::optional<SnapshotSource> source_;
  bool packable_ = true;
  std::optional<NonFiniteScan> scan_;  // unless such elements are allowed
  Manifest manifest_;                  // but for its digests, which come with the bytes
  std::vector<File> targets_;
  std::optional<SnapshotDigest> digest_;
  std::vector<Digest> chunk_digests_;
  std::atomic<std::size_t> next_leaf_{0};
  std::atomic<bool> failed_{false};
  unsigned copying_ = 0;
  bool finishing_ = false;
  std::mutex write_mutex_;
  std::mutex mutex_;  // guards what follows, and digest_, while threads copy
  std::optional<Error> error_;
  std::vector<bool> copied_;       // by leaf
  std::size_t first_missing_ = 0;  // of those
  std::uint32_t told_chunks_ = 0;
};

}  // namespace

void take_over(Jobs& jobs, Store& store, TakeoverRequest request, TakeoverObserver observer) {
  std::make_shared<Takeover>(jobs, store, std::move(request), std::move(observer))->start();
}

}  // namespace weightcast
