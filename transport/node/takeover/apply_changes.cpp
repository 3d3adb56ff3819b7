#include "transport/node/takeover/apply_changes.h"

#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <mutex>
#include <optional>
#include <utility>

#include "base/parallel.h"
#include "patch/codec/listed.h"
#include "patch/codec/segment_codec.h"
#include "patch/snapshot/snapshot.h"
#include "patch/snapshot/snapshot_digest.h"
#include "patch/snapshot/snapshot_stream.h"
#include "transport/core/origin/catch_up.h"
#include "transport/io/store/files/spare_update.h"
#include "transport/io/store/files/version_files.h"
#include "transport/node/payload/full_manifest.h"
#include "transport/node/payload/make_patch.h"
#include "transport/node/payload/model_files.h"
#include "transport/node/takeover/encode_changes.h"

namespace weightcast {
namespace {

// Beyond this, a patch takes about as much as the full payload; see make_patch.cpp.
constexpr double kChangedShareMax = 0.5;
// What a listed change takes in a patch, about, where a percent of the cells changes: only what the chunk size is
// chosen by.
constexpr double kExpectedBytesPerChange = 1.2;

/// A version that is made. Kept alive by what is under way; it ends with the jobs.
class ChangedVersion : public std::enable_shared_from_this<ChangedVersion> {
 public:
  ChangedVersion(Jobs& jobs, FileSystem& file_system, Store& store, ChangesRequest request, const StoredVersion& base,
                 PayloadObserver observer)
      : jobs_(jobs),
        file_system_(file_system),
        store_(store),
        request_(std::move(request)),
        base_path_(base.path),
        base_manifest_(base.manifest),
        base_leaves_(base.leaves),
        observer_(std::move(observer)) {}

  void start() {
    began_at_ = jobs_.loop().now();
    run(&ChangedVersion::open, &ChangedVersion::begin);
  }

 private:
  /// What one thread keeps from one segment to the next.
  struct Workbench {
    ListedEncoder listed;
    SegmentEncoder encoder{best_kernels(), SparseForm::kListed};
    FoundChanges found;
    std::vector<std::byte> copied;   // a segment of the base
    CellChanges undone;              // of a segment that changes in most places
    std::vector<std::byte> before;   // of such a segment
    std::vector<std::byte> scratch;  // for the editor
  };

  /// Does `work` off the loop, then `next` on it, unless the work has failed.
  void run(Status (ChangedVersion::*work)(), void (ChangedVersion::*next)()) {
    auto status = std::make_shared<Status>();
    jobs_.run([self = shared_from_this(), work, status] { *status = ((*self).*work)(); },
              [self = shared_from_this(), next, status] {
                status->has_value() ? ((*self).*next)() : self->fail_with(status->error());
              });
  }

  // The version may be made in another way by whoever hears of it.
  void fail_with(const Error& error) {
    if (begun_) store_.discard(request_.version);
    observer_.done(error);
  }

  Error damaged(std::string_view what) const {
    return fail(
        Errc::kCorrupt, Op::kPublish,
        fmt::format("version {}, which the changes are against, is damaged on this disk ({}); publish version {} "
                    "whole",
                    request_.base.value, what, request_.version.value));
  }

  Status open() {
    WC_ASSIGN(base_, open_stored(file_system_, base_path_.string(), base_manifest_.files, base_manifest_.file_tree));
    if (base_->file_table().files() != base_manifest_.files) return damaged("it has other files than were published");
    WC_TRY(request_.changes->open(*base_));
    plan();
    return {};
  }

  // As make_patch() plans it. What cannot be a patch is made from ranges of bytes.
  void plan() {
    const std::uint64_t bytes = base_->size_bytes();
    PatchIdentity identity{request_.model_id, request_.base, request_.version, base_manifest_.snapshot_digest, {}};
    Result<PatchHead> head = make_head(std::move(identity), layout_of(*base_), layout_of(*base_), kPatchSegmentBytes);
    encodes_ = request_.makes_patch && head.has_value() &&
               double(request_.changes->changed_bytes_max()) < kChangedShareMax * double(bytes);
    auto step = std::make_shared<StepChanges>();
    if (head.has_value()) {
      step->plan = plan_segments(*head);
      head_ = std::move(*head);
    } else {
      for (std::uint64_t at = 0; at < bytes; at += kPatchSegmentBytes) {
        const auto size = static_cast<std::uint32_t>(std::min<std::uint64_t>(kPatchSegmentBytes, bytes - at));
        step->plan.push_back({std::uint32_t(step->plan.size()), at, at, size, CellKind::kRaw8});
      }
    }
    step->from = request_.base;
    step->to = request_.version;
    step->from_digest = base_manifest_.snapshot_digest;
    step->segments.resize(step->plan.size());
    encoded_.resize(step->plan.size());
    old_values_.resize(step->plan.size());
    step_ = std::move(step);
  }

  void begin() {
    store_.begin_import(request_.version, base_manifest_.files,
                        [self = shared_from_this()](const Result<ImportTarget>& target) {
                          if (!target.has_value()) return self->observer_.done(target.error());
                          self->begun_ = true;
                          self->target_ = target->files;
                          self->produce();
                        });
  }

  void produce() {
    spare_ =
        SpareUpdate::open(*target_, request_.base, step_->plan, store_.steps(target_->old_version(), request_.base));
    follows_ = spare_ && base_leaves_;
    digest_.emplace(follows_ ? SnapshotDigest(base_->file_table(), *base_leaves_)
                             : SnapshotDigest(base_->file_table()));
    if (!follows_) base_digest_.emplace(base_->file_table());
    running_ = jobs_.loop().jobs_at_once_max();
    for (unsigned i = 0, jobs = running_; i < jobs; ++i) {
      jobs_.run([self = shared_from_this()] { self->note(self->make_segments()); },
                [self = shared_from_this()] {
                  if (--self->running_ > 0) return;
                  self->error_ ? self->fail_with(*self->error_)
                               : self->run(&ChangedVersion::close, &ChangedVersion::end);
                });
    }
  }

  void note(const Status& status) {
    if (status.has_value()) return;
    const std::lock_guard lock(mutex_);
    if (!error_) error_ = status.error();
    stopped_ = true;
  }

  Status make_segments() {
    Workbench bench;
    for (std::size_t i = next_++; i < step_->plan.size() && !stopped_; i = next_++) {
      if (jobs_.cancelled()) return Jobs::cancelled_error(Op::kPublish);
      WC_TRY(make_segment(step_->plan[i], bench));
    }
    return {};
  }

  Status make_segment(const SegmentRange& range, Workbench& bench) {
    const std::uint64_t begin = range.result_offset, end = begin + range.size_bytes;
    const unsigned width = geometry_of(range.kind).bytes;
    std::optional<MutableBytes> there;
    if (spare_) {
      WC_ASSIGN(there, spare_->edit(range, begin, range.size_bytes, bench.scratch));
    }
    const bool is_copied = !there;
    if (is_copied) {
      bench.copied.resize(range.size_bytes);
      WC_TRY(base_->read_at(begin, bench.copied));
      there = MutableBytes(bench.copied);
    }
    const MutableBytes cells = *there;
    LeafChange leaves(begin, end);
    if (!follows_) {
      leaves.add(begin, cells);
      base_digest_->add(leaves);
    }
    WC_TRY(request_.changes->apply(range, cells, bench.found));
    const CellChanges& changes = bench.found.changes;
    leaves.replace(begin, width, changes.cells, bench.found.old_values, changes.values);
    digest_->add(leaves);
    const bool is_listed = changes.cells.size() <= listed_changes_max(range);
    const bool is_kept = takes_list(changes);
    if (encodes_ && !(is_listed && is_kept)) WC_TRY(encode(range, cells, is_listed, bench));
    if (is_kept) keep_list(range.index, bench.found, is_listed);
    if (!is_copied) return spare_->commit(begin, cells);
    // As in takeover.cpp: the kernel lets one writer at a time into a file.
    const std::lock_guard lock(write_mutex_);
    return write_stream(*target_, begin, cells);
  }

  /// Now, while the cells are there: lists that are kept are encoded when all segments are made. `cells` are the new
  /// ones.
  Status encode(const SegmentRange& range, Bytes cells, bool is_listed, Workbench& bench) {
    EncodedSegment& segment = encoded_[range.index];
    const CellChanges& changes = bench.found.changes;
    if (is_listed) {
      WC_ASSIGN(segment.header,
                bench.listed.encode(range, changes.cells, bench.found.old_values, changes.values, segment.frame));
    } else {
      bench.before.assign(cells.begin(), cells.end());
      bench.undone.cells = changes.cells;
      bench.undone.values = bench.found.old_values;
      write_changes(bench.undone, geometry_of(range.kind).bytes, bench.before.data());
      segment.header = bench.encoder.encode(range, bench.before, cells, segment.frame);
    }
    segment.frame.shrink_to_fit();
    encoded_bytes_ += segment.frame.size();
    if (encoded_bytes_ >= patch_bytes_limit()) encodes_ = false;
    return {};
  }

  [[nodiscard]] std::uint64_t patch_bytes_limit() const {
    const auto worth = static_cast<std::uint64_t>(kPatchShareMax * double(base_->size_bytes()));
    return std::min(worth, kListedPatchBytesMax);
  }

  /// Whether there is room for one more list.
  bool takes_list(const CellChanges& changes) {
    const std::uint64_t bytes = changes.cells.size() * sizeof(changes.cells[0]) + changes.values.size();
    const std::lock_guard lock(mutex_);
    if (bytes > kStepBytesMax - step_->bytes) return false;
    step_->bytes += bytes;
    return true;
  }

  void keep_list(std::uint32_t index, FoundChanges& found, bool is_encoded_later) {
    listed_cells_ += is_encoded_later ? found.changes.cells.size() : 0;
    if (is_encoded_later && encodes_) old_values_[index] = std::exchange(found.old_values, {});
    step_->segments[index] = std::exchange(found.changes, {});
  }

  /// The payload of what was made.
  Status close() {
    const Checksum digest = digest_->root();
    if (base_digest_ && base_digest_->root() != base_manifest_.snapshot_digest) {
      return damaged("its bytes are not those of its digest");
    }
    WC_TRY(base_->check_unchanged());
    WC_TRY(request_.changes->finish(digest_->leaves()));
    result_digest_ = digest;
    if (encodes_) expect_patch();
    return {};
  }

  // Of a small snapshot the head may be most of the patch.
  void expect_patch() {
    head_.identity.result_digest = result_digest_;
    std::vector<std::byte> head;
    write_head(head_, head);
    expected_bytes_ = head.size() + kEndBytes + kSegmentHeaderBytes * step_->plan.size() + encoded_bytes_ +
                      static_cast<std::uint64_t>(kExpectedBytesPerChange * double(listed_cells_));
    if (expected_bytes_ >= patch_bytes_limit()) encodes_ = false;
  }

  void end() {
    Manifest manifest = base_manifest_;
    manifest.model_id = request_.model_id;
    manifest.version = request_.version;
    manifest.published_unix_ms = jobs_.loop().unix_ms();
    manifest.snapshot_digest = result_digest_;
    manifest.snapshot_tree = {};
    manifest.open = false;
    manifest.expected_bytes = 0;
    manifest.part_chunks = kDigestsPerPart;
    manifest_ = std::move(manifest);
    if (!encodes_) return make_full();
    if (!request_.proves_result) return make_patch();
    tree_chunk_bytes_ = request_.choose_chunk_bytes(manifest_.snapshot_bytes());
    run(&ChangedVersion::hash_result, &ChangedVersion::make_patch);
  }

  void make_full() {
    encoded_.clear();
    old_values_.clear();
    manifest_.kind = PayloadKind::kFull;
    manifest_.base_version = kNoVersion;
    manifest_.snapshot_tree = {};
    manifest_.payload_bytes = manifest_.snapshot_bytes();
    manifest_.chunk_bytes = request_.choose_chunk_bytes(manifest_.payload_bytes);
    run(&ChangedVersion::hash_version, &ChangedVersion::finish_full);
  }

  // The digest is known, so the rest can be sent while it is made.
  void make_patch() {
    spare_.reset();
    manifest_.kind = PayloadKind::kPatch;
    manifest_.base_version = request_.base;
    EncodeChangesRequest encode;
    encode.patch = {manifest_, std::move(head_),       std::make_shared<const LeafSums>(digest_->leaves()),
                    step_,     std::move(old_values_), std::move(encoded_)};
    encode.expected_bytes = expected_bytes_;
    encode.bytes_limit = patch_bytes_limit();
    encode.author = request_.author;
    encode.choose_chunk_bytes = request_.choose_chunk_bytes;
    PayloadObserver observer{observer_.begun, observer_.grown, [self = shared_from_this()](Result<MadePayload> made) {
                               self->handle_encoded(std::move(made));
                             }};
    encode_changes(jobs_, file_system_, store_, std::move(encode), std::move(observer));
  }

  void handle_encoded(Result<MadePayload> made) {
    if (made.has_value()) {
      made->took = jobs_.loop().now() - began_at_;
      return observer_.done(std::move(made));
    }
    if (made.error().code != Errc::kTooLarge) return fail_with(made.error());
    observer_.withdrawn(made.error());
    make_full();
  }

  Status hash_version() {
    WC_ASSIGN(std::vector<ContentDigest> digests, chunk_digests(manifest_.chunk_bytes));
    manifest_.part_digests = part_digests_of(digests, manifest_.part_chunks);
    request_.author.sign(manifest_);
    made_ = {std::make_shared<const Manifest>(manifest_), std::move(digests), {}};
    return {};
  }

  Status hash_result() {
    Manifest whole = manifest_;
    whole.kind = PayloadKind::kFull;
    whole.base_version = kNoVersion;
    whole.payload_bytes = manifest_.snapshot_bytes();
    whole.chunk_bytes = tree_chunk_bytes_;
    WC_ASSIGN(const std::vector<ContentDigest> digests, chunk_digests(whole.chunk_bytes));
    whole.part_digests = part_digests_of(digests, whole.part_chunks);
    manifest_.snapshot_tree = whole.tree_of_snapshot();
    return {};
  }

  /// Of the version that was made.
  Result<std::vector<ContentDigest>> chunk_digests(std::uint32_t chunk_bytes) {
    const std::uint64_t bytes = base_->size_bytes();
    std::vector<ContentDigest> digests((bytes + chunk_bytes - 1) / chunk_bytes);
    for_each_index(digests.size(), jobs_.loop().threads_per_job_max(), [&](std::size_t i) {
      if (stopped_) return;
      if (jobs_.cancelled()) return note(Jobs::cancelled_error(Op::kPublish));
      const std::uint64_t begin = i * std::uint64_t{chunk_bytes};
      std::vector<std::byte> chunk(std::min<std::uint64_t>(chunk_bytes, bytes - begin));
      note(read_stream(*target_, begin, chunk));
      digests[i] = content_digest_of(chunk);
    });
    if (error_) return *error_;
    return digests;
  }

  void finish_full() {
    made_.took = jobs_.loop().now() - began_at_;
    target_.reset();
    spare_.reset();
    store_.finish_import(*made_.manifest, made_.chunk_digests,
                         [self = shared_from_this()](const Result<StoredVersion>& stored) {
                           stored.has_value() ? self->observer_.done(std::move(self->made_))
                                              : self->fail_with(stored.error());
                         },
                         {std::make_shared<const LeafSums>(digest_->leaves()), std::move(step_)});
  }

  Jobs& jobs_;
  FileSystem& file_system_;
  Store& store_;
  const ChangesRequest request_;
  const std::filesystem::path base_path_;
  const Manifest base_manifest_;
  const std::shared_ptr<const LeafSums> base_leaves_;  // null: not known
  const PayloadObserver observer_;
  Instant began_at_{};
  std::optional<SnapshotSource> base_;
  bool begun_ = false;  // the store has an import of it
  FilesRef target_;
  std::unique_ptr<SpareUpdate> spare_;  // null: the base is copied
  bool follows_ = false;                // the digest follows from the base's leaves
  std::optional<SnapshotDigest> digest_;
  std::optional<SnapshotDigest> base_digest_;  // of what is copied
  unsigned running_ = 0;
  std::atomic<std::size_t> next_{0};
  std::atomic<bool> stopped_{false};
  std::atomic<bool> encodes_{false};
  std::atomic<std::uint64_t> encoded_bytes_{0};
  std::atomic<std::uint64_t> listed_cells_{0};
  PatchHead head_;  // without the result's digest until the end
  // Each is written by the thread that makes the segment.
  std::vector<EncodedSegment> encoded_;
  std::vector<std::vector<std::byte>> old_values_;
  std::mutex write_mutex_;
  std::mutex mutex_;  // guards error_ and, while segments are made, step_->bytes
  std::optional<Error> error_;
  std::shared_ptr<StepChanges> step_;
  Checksum result_digest_;
  std::uint64_t expected_bytes_ = 0;  // of the patch
  std::uint32_t tree_chunk_bytes_ = 0;
  Manifest manifest_;
  MadePayload made_;
};

}  // namespace

void apply_changes(Jobs& jobs, FileSystem& files, Store& store, ChangesRequest request, PayloadObserver observer) {
  const StoredVersion* base = store.find(request.base);
  if (base == nullptr) {
    return jobs.post([done = std::move(observer.done), base_version = request.base] {
      done(fail(
          Errc::kNotFound, Op::kPublish,
          fmt::format("version {}, which the changes are against, is not in the store any more", base_version.value)));
    });
  }
  std::make_shared<ChangedVersion>(jobs, files, store, std::move(request), *base, std::move(observer))->start();
}

}  // namespace weightcast
