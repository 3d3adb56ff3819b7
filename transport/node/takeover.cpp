#include "transport/node/takeover.h"

#include <fcntl.h>
#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <mutex>
#include <optional>

#include "patch/finite.h"
#include "patch/snapshot.h"
#include "patch/snapshot_digest.h"
#include "proto/wire.pb.h"
#include "transport/io/posix_file.h"

namespace weightcast {
namespace {

// The copy is bound by memory; a second thread hides the first one's page faults, more add nothing.
constexpr unsigned kThreads = 2;

// What a worker would refuse is refused here, where somebody reads why.
Status check_fits_the_wire(const Manifest& manifest) {
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
  Takeover(EventLoop& loop, Store& store, TakeoverRequest request, std::function<void(Result<TakenOver>)> done)
      : loop_(loop), store_(store), request_(std::move(request)), done_(std::move(done)) {}

  void start() {
    loop_.offload([self = shared_from_this()] { self->open_source(); },
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
  }

  void begin_import() {
    if (error_) return done_(*error_);
    for (const SnapshotFile& file : source_->file_table().files()) files_.push_back({file.name, file.size_bytes});
    chunk_bytes_ = request_.choose_chunk_bytes(source_->size_bytes());
    store_.begin_import(request_.version, files_, [self = shared_from_this()](Result<ImportTarget> target) {
      if (!target.has_value()) return self->done_(target.error());
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
    chunk_digests_.resize((source_->size_bytes() + chunk_bytes_ - 1) / chunk_bytes_);
    copying_ = kThreads;
    for (unsigned i = 0; i < kThreads; ++i) {
      loop_.offload([self = shared_from_this()] { self->copy_leaves(); },
                    [self = shared_from_this()] {
                      if (--self->copying_ == 0) self->finish();
                    });
    }
  }

  // Leaves are multiples of chunks, so each leaf is scanned, and its chunks are hashed, by the thread that has them in
  // its cache.
  void copy_leaves() {
    std::vector<std::byte> buffer(std::min<std::uint64_t>(kDigestBlockBytes, source_->size_bytes()));
    for (std::size_t leaf = next_leaf_++; leaf < digest_->leaf_count() && !failed_; leaf = next_leaf_++) {
      const std::uint64_t offset = digest_->leaf_offset_bytes(leaf);
      const MutableBytes bytes(buffer.data(), digest_->leaf_size_bytes(leaf));
      if (Status read = source_->read_at(offset, bytes); !read.has_value()) return note(read.error());
      if (scan_) {
        if (Status scanned = scan_->scan(offset, bytes); !scanned.has_value()) return note(scanned.error());
        if (scan_->any()) continue;  // refused already; what is left is to count
      }
      for (std::uint64_t at = 0; at < bytes.size(); at += chunk_bytes_) {
        const auto chunk = Bytes(bytes).subspan(at, std::min<std::uint64_t>(chunk_bytes_, bytes.size() - at));
        chunk_digests_[(offset + at) / chunk_bytes_] = digest_of(chunk);
      }
      if (Status written = write_leaf(offset, bytes); !written.has_value()) return note(written.error());
      const Digest leaf_digest = digest_of(bytes);
      const std::lock_guard lock(mutex_);
      digest_->set_leaf(leaf, leaf_digest);
    }
  }

  Status write_leaf(std::uint64_t offset, Bytes bytes) {
    // The kernel lets one writer at a time into a file, and the others spin: here they sleep, and somebody hashes.
    const std::lock_guard lock(write_mutex_);
    for (const FilePiece& piece : source_->file_table().pieces(offset, bytes.size())) {
      WC_TRY(write_fully(targets_[piece.file], piece.offset_bytes, bytes.first(piece.size_bytes),
                         files_[piece.file].name));
      bytes = bytes.subspan(piece.size_bytes);
    }
    return {};
  }

  void finish() {
    if (!error_) {
      if (Status same = source_->check_unchanged(); !same.has_value()) note(same.error());
    }
    if (scan_ && !error_) refuse_non_finite();
    if (error_) return abandon(*error_);
    auto manifest = std::make_shared<Manifest>();
    manifest->model_id = request_.model_id;
    manifest->version = request_.version;
    manifest->kind = PayloadKind::kFull;
    manifest->payload_bytes = source_->size_bytes();
    manifest->chunk_bytes = chunk_bytes_;
    manifest->part_digests = part_digests_of(chunk_digests_);
    manifest->files = files_;
    manifest->snapshot_digest = digest_->root();
    manifest->published_unix_ms =
        std::chrono::duration_cast<std::chrono::milliseconds>(std::chrono::system_clock::now().time_since_epoch())
            .count();
    if (Status fits = check_fits_the_wire(*manifest); !fits.has_value()) return abandon(fits.error());
    store_.finish_import(*manifest, chunk_digests_,
                         [self = shared_from_this(), manifest](Result<StoredVersion> stored) {
                           if (!stored.has_value()) return self->abandon(stored.error());
                           self->done_(TakenOver{manifest, std::move(self->chunk_digests_), manifest->payload_bytes});
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

  void abandon(const Error& why) {
    store_.discard(request_.version);
    done_(why);
  }

  void note(Error error) {
    const std::lock_guard lock(mutex_);
    if (!error_) error_ = std::move(error);
    failed_ = true;
  }

  EventLoop& loop_;
  Store& store_;
  TakeoverRequest request_;
  std::function<void(Result<TakenOver>)> done_;

  std::optional<SnapshotSource> source_;
  std::optional<NonFiniteScan> scan_;  // unless such elements are allowed
  std::vector<SnapshotFile> files_;
  std::uint32_t chunk_bytes_ = 0;
  std::vector<File> targets_;
  std::optional<SnapshotDigest> digest_;
  std::vector<Digest> chunk_digests_;
  std::atomic<std::size_t> next_leaf_{0};
  std::atomic<bool> failed_{false};
  unsigned copying_ = 0;
  std::mutex write_mutex_;
  std::mutex mutex_;  // guards error_ and digest_ while threads copy
  std::optional<Error> error_;
};

}  // namespace

void take_over(EventLoop& loop, Store& store, TakeoverRequest request, std::function<void(Result<TakenOver>)> done) {
  std::make_shared<Takeover>(loop, store, std::move(request), std::move(done))->start();
}

}  // namespace weightcast
