#include "transport/node/apply_changes.h"

#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <cstring>
#include <mutex>
#include <optional>
#include <utility>

#include "base/memory_file.h"
#include "patch/changes/change_file.h"
#include "patch/codec/segment_codec.h"
#include "patch/snapshot/snapshot.h"
#include "patch/snapshot/snapshot_digest.h"
#include "patch/snapshot/snapshot_stream.h"
#include "transport/core/origin/catch_up.h"
#include "transport/io/store/file_editor.h"
#include "transport/io/store/version_files.h"
#include "transport/node/chunk_hasher.h"
#include "transport/node/full_manifest.h"
#include "transport/node/sampled_share.h"

namespace weightcast {
namespace {

// Read, changed, hashed, encoded and written from the second-level cache.
constexpr std::size_t kWindowBytes = SegmentEncoder::kWindowBytes;
// A thread makes so much in one go. The leaves that spans share are read back, to be hashed.
constexpr std::uint64_t kSpanBytesMax = 512 * kMiB;
constexpr std::uint64_t kSpansPerJobMin = 2;
// All of them stay open.
constexpr std::size_t kEditedFilesMax = 256;
// Beyond this, a patch takes about as much as the full payload; see make_patch.cpp.
constexpr double kChangedShareMax = 0.5;

/// Segments that one thread makes in order.
struct Span {
  std::size_t first = 0, last = 0;  // segments
  std::uint64_t begin = 0, end = 0;
};

std::vector<Span> spans_of(const std::vector<SegmentRange>& plan, std::uint64_t size_bytes, unsigned jobs) {
  const std::uint64_t least = std::clamp(size_bytes / (kSpansPerJobMin * jobs), kDigestBlockBytes, kSpanBytesMax);
  std::vector<Span> spans;
  for (std::size_t i = 0; i < plan.size(); ++i) {
    if (spans.empty() || spans.back().end - spans.back().begin >= least) {
      spans.push_back({i, i, plan[i].result_offset, plan[i].result_offset});
    }
    spans.back().last = i + 1;
    spans.back().end = plan[i].result_offset + plan[i].size_bytes;
  }
  return spans;
}

/// A leaf that several spans make.
struct SharedLeaf {
  std::size_t leaf = 0;
  unsigned spans_left = 0;  // that have not written their part
};

std::vector<SharedLeaf> shared_leaves_of(const std::vector<Span>& spans) {
  std::vector<SharedLeaf> shared;
  for (const Span& span : spans) {
    if (span.begin % kDigestBlockBytes == 0) continue;
    const std::size_t leaf = span.begin / kDigestBlockBytes;
    if (shared.empty() || shared.back().leaf != leaf) shared.push_back({leaf, 1});
    ++shared.back().spans_left;
  }
  return shared;
}

/// Bytes at the place in a page that they have in their file: the kernel copies fast then.
class Window {
 public:
  Window() : bytes_(new (std::align_val_t{kPageBytes}) std::byte[kWindowBytes + kPageBytes]) {}
  [[nodiscard]] MutableBytes get(std::uint64_t offset_in_file, std::size_t size) const {
    return {bytes_.get() + offset_in_file % kPageBytes, size};
  }

 private:
  static constexpr std::size_t kPageBytes = 4096;
  struct Free {
    void operator()(std::byte* bytes) const { ::operator delete[](bytes, std::align_val_t{kPageBytes}); }
  };
  std::unique_ptr<std::byte[], Free> bytes_;
};

/// What one thread keeps from one range to the next.
struct Workbench {
  SegmentEncoder encoder;
  CellChanges changes;
  std::vector<CellChanges> earlier;  // of the lists that lead to the base
  Window window;
  std::vector<std::byte> scratch;  // for the editor
};

/// The source of a full payload: a version of the store, and the cells of it that have changed.
class ChangedCopy final : public PayloadSource {
 public:
  ChangedCopy(Jobs& jobs, FileSystem& file_system, ChangesRequest request, const StoredVersion& base,
              std::function<void(ByProducts)> by_products)
      : jobs_(jobs),
        file_system_(file_system),
        request_(std::move(request)),
        base_path_(base.path),
        base_manifest_(base.manifest),
        base_digests_(base.chunk_digests),
        tell_by_products_(std::move(by_products)) {
    if (!request_.earlier.empty() && request_.earlier.back().to == request_.base) {
      base_leaves_ = request_.earlier.back().leaves;
    }
  }

  Status open() override {
    WC_ASSIGN(base_, SnapshotSource::open(file_system_, base_path_.string()));
    if (base_->file_table().files() != base_manifest_.files) return damaged("it has other files than were published");
    WC_TRY(keep_list());
    WC_ASSIGN(changes_, ChangeFile::open(applied_ ? applied_->list : request_.changes, request_.changes_bytes,
                                         "the changes", base_->tensors()));
    plan();
    if (!request_.sample_packing) return {};
    WC_ASSIGN(packed_share_, packed_share(*base_));
    return {};
  }

  Result<Announcement> announce() override {
    WC_ASSIGN(Announcement announcement, announce_full({request_.version, request_.model_id, base_manifest_.files,
                                                        packed_share_, jobs_.loop().unix_ms(), request_.author},
                                                       request_.choose_chunk_bytes));
    chunk_bytes_ = announcement.manifest.chunk_bytes;
    digest_.emplace(base_->file_table());
    if (base_leaves_ && base_leaves_->size() != digest_->leaf_count()) base_leaves_.reset();
    return announcement;
  }

  void begin(Store& store, std::function<void(Status)> done) override {
    store.begin_import(request_.version, base_manifest_.files,
                       [this, done = std::move(done)](const Result<ImportTarget>& target) {
                         if (!target.has_value()) return done(target.error());
                         target_ = target->files;
                         done({});
                       });
  }

  [[nodiscard]] unsigned jobs() const override { return jobs_.loop().jobs_at_once_max(); }

  Status produce(const Report& report) override {
    std::call_once(looked_for_earlier_, [this] { find_earlier(); });
    Workbench bench;
    for (std::size_t span = next_span_++; span < spans_.size(); span = next_span_++) {
      WC_TRY(make_span(spans_[span], bench, report));
    }
    return {};
  }

  void stop() override { stopped_ = true; }

  Result<Checksum> end() override {
    WC_TRY(base_->check_unchanged());
    if (applied_) applied_->leaves = std::make_shared<const std::vector<Checksum>>(digest_->leaves());
    return digest_->root();
  }

  void finish(Store& store, const MadePayload& made, std::function<void(Status)> done) override {
    target_.reset();
    ByProducts by_products;
    by_products.was_in_place = !editors_.empty() && edits_;
    editors_.clear();
    by_products.applied = std::move(applied_);
    if (encodes_) {
      by_products.encoded =
          std::make_shared<EncodedPatch>(EncodedPatch{patch_of(request_.version, request_.base), std::move(segments_)});
    }
    tell_by_products_(std::move(by_products));
    store.finish_import(*made.manifest, made.chunk_digests,
                        [done = std::move(done)](const Result<StoredVersion>& stored) {
                          done(stored.has_value() ? Status() : Status(stored.error()));
                        });
  }

 private:
  /// Hashes the leaves of a range, and checks the chunks of the base under them. All of their bytes come, in order;
  /// what else comes is passed over.
  class Hashes {
   public:
    Hashes(ChangedCopy& copy, std::uint64_t begin, std::uint64_t end)
        : copy_(copy), begin_(begin), end_(end), chunks_(copy.chunk_bytes_), old_at_(begin), new_at_(begin) {}

    [[nodiscard]] bool covers(std::uint64_t offset, std::size_t size) const {
      return offset >= begin_ && offset + size <= end_;
    }

    /// Tells of all leaves, which are as they are to be.
    void report(const Report& report) {
      for (const Leaf& leaf : leaves_) {
        const std::uint64_t begin = copy_.digest_->leaf_offset_bytes(leaf.index);
        {
          const std::lock_guard lock(copy_.digest_mutex_);
          copy_.digest_->set_leaf(leaf.index, leaf.digest);
        }
        report(static_cast<std::uint32_t>(begin / copy_.chunk_bytes_), leaf.chunks,
               copy_.digest_->leaf_size_bytes(leaf.index));
      }
    }

    /// Checks bytes of the base that stand at `offset`, each chunk or leaf when it is complete. Leaves cost a tenth of
    /// chunks, and what this process wrote a moment ago only a disk can have changed.
    Status check_old(std::uint64_t offset, Bytes bytes) {
      return copy_.base_leaves_ ? check_old_leaves(offset, bytes) : check_old_chunks(offset, bytes);
    }

    void add_new(std::uint64_t offset, Bytes bytes) {
      for (bytes = clip(offset, bytes, new_at_); !bytes.empty();) {
        const std::size_t leaf = new_at_ / kDigestBlockBytes;
        const std::uint64_t begin = copy_.digest_->leaf_offset_bytes(leaf);
        const std::uint64_t leaf_bytes = copy_.digest_->leaf_size_bytes(leaf);
        const Bytes piece = bytes.first(std::min<std::uint64_t>(bytes.size(), begin + leaf_bytes - new_at_));
        leaf_.update(piece);
        chunks_.update(piece);
        new_at_ += piece.size();
        bytes = bytes.subspan(piece.size());
        if (new_at_ == begin + leaf_bytes) end_leaf(leaf);
      }
    }

   private:
    Status check_old_chunks(std::uint64_t offset, Bytes bytes) {
      const std::uint64_t chunk_bytes = copy_.base_manifest_.chunk_bytes;
      for (bytes = clip(offset, bytes, old_at_); !bytes.empty();) {
        const std::uint64_t chunk = old_at_ / chunk_bytes;
        const std::uint64_t chunk_end = std::min((chunk + 1) * chunk_bytes, copy_.base_->size_bytes());
        const Bytes piece = bytes.first(std::min<std::uint64_t>(bytes.size(), chunk_end - old_at_));
        old_.update(piece);
        old_at_ += piece.size();
        bytes = bytes.subspan(piece.size());
        if (old_at_ < chunk_end) continue;
        if (old_.take() != copy_.base_digests_[chunk]) return copy_.damaged(fmt::format("chunk {} of it", chunk));
      }
      return {};
    }

    Status check_old_leaves(std::uint64_t offset, Bytes bytes) {
      for (bytes = clip(offset, bytes, old_at_); !bytes.empty();) {
        const std::size_t leaf = old_at_ / kDigestBlockBytes;
        const std::uint64_t leaf_end = copy_.digest_->leaf_offset_bytes(leaf) + copy_.digest_->leaf_size_bytes(leaf);
        const Bytes piece = bytes.first(std::min<std::uint64_t>(bytes.size(), leaf_end - old_at_));
        old_leaf_.update(piece);
        old_at_ += piece.size();
        bytes = bytes.subspan(piece.size());
        if (old_at_ < leaf_end) continue;
        if (old_leaf_.digest() != (*copy_.base_leaves_)[leaf])
          return copy_.damaged(fmt::format("block {} of it", leaf));
        old_leaf_.reset();
      }
      return {};
    }

    /// Those of the bytes that are due, which begin at `at`.
    [[nodiscard]] Bytes clip(std::uint64_t offset, Bytes bytes, std::uint64_t at) const {
      const std::uint64_t end = std::min(offset + bytes.size(), end_);
      return at >= end ? Bytes() : bytes.subspan(at - offset, end - at);
    }
    // Leaves are multiples of chunks.
    void end_leaf(std::size_t leaf) {
      chunks_.finish();
      leaves_.push_back({leaf, leaf_.digest(), chunks_.digests()});
      leaf_.reset();
      chunks_.forget();
    }

    struct Leaf {
      std::size_t index = 0;
      Checksum digest;
      std::vector<ContentDigest> chunks;
    };

    ChangedCopy& copy_;
    const std::uint64_t begin_, end_;
    std::vector<Leaf> leaves_;
    ContentDigestStream old_;
    ChecksumStream old_leaf_;
    ChecksumStream leaf_;
    ChunkHasher chunks_;
    std::uint64_t old_at_, new_at_;
  };

  Error damaged(std::string_view what) const {
    return fail(
        Errc::kCorrupt, Op::kPublish,
        fmt::format("version {}, which the changes are against, is damaged on this disk ({}); publish version {} "
                    "whole",
                    request_.base.value, what, request_.version.value));
  }

  // As make_patch() plans it. What cannot be a patch is made from ranges of bytes.
  void plan() {
    const std::uint64_t bytes = base_->size_bytes();
    const Result<PatchHead> head = make_head({}, layout_of(*base_), layout_of(*base_), kPatchSegmentBytes);
    encodes_ = request_.encodes_patch && head.has_value() &&
               double(changes_->value_bytes()) < kChangedShareMax * double(bytes);
    if (head.has_value()) {
      plan_ = plan_segments(*head);
    } else {
      for (std::uint64_t at = 0; at < bytes; at += kPatchSegmentBytes) {
        const auto size = static_cast<std::uint32_t>(std::min<std::uint64_t>(kPatchSegmentBytes, bytes - at));
        plan_.push_back({std::uint32_t(plan_.size()), at, at, size, CellKind::kRaw8});
      }
    }
    if (encodes_) segments_.resize(plan_.size());
    spans_ = spans_of(plan_, bytes, jobs());
    shared_leaves_ = shared_leaves_of(spans_);
  }

  /// The list in memory of ours: what follows reads that, and later versions can be told what has changed.
  Status keep_list() {
    const std::uint64_t bytes = request_.changes_bytes;
    if (bytes > kAppliedChangesBytesMax) return {};
    WC_ASSIGN(const FileInfo info, request_.changes->info());
    if (bytes > info.size_bytes) return {};  // ChangeFile says so
    auto list = std::make_shared<MemoryFile>(bytes);
    WC_TRY(read_fully(*request_.changes, 0, list->bytes(), "the changes"));
    applied_ = AppliedChanges{request_.base, request_.version, std::move(list), bytes};
    return {};
  }

  /// Whether the new files hold an older version that lists lead on from. Whatever comes of it is compared with the
  /// base's digests, so nothing depends on these being right.
  void find_earlier() {
    const auto holds = std::ranges::find(request_.earlier, target_->old_version(), &AppliedChanges::from);
    if (target_->old_version() == kNoVersion || holds == request_.earlier.end()) return;
    if (base_manifest_.files.size() > kEditedFilesMax) return;
    for (auto list = holds; list != request_.earlier.end(); ++list) {
      Result<ChangeFile> opened = ChangeFile::open(list->list, list->bytes, "earlier changes", base_->tensors());
      if (!opened.has_value()) return;
      earlier_.push_back(std::move(*opened));
    }
    for (std::size_t i = 0; i < base_manifest_.files.size(); ++i) {
      const Result<FileRef> file = target_->file(i);
      if (!file.has_value()) return;
      auto editor = FileEditor::open(*file, base_manifest_.files[i].size_bytes);
      if (!editor.has_value()) return;
      editors_.push_back(std::move(*editor));
    }
    edits_ = true;
  }

  Status make_span(const Span& span, Workbench& bench, const Report& report) {
    const std::uint64_t bytes = base_->size_bytes();
    const std::uint64_t begin = (span.begin + kDigestBlockBytes - 1) / kDigestBlockBytes * kDigestBlockBytes;
    const std::uint64_t end = span.end == bytes ? bytes : span.end / kDigestBlockBytes * kDigestBlockBytes;
    const auto make = [&](bool edits) -> Status {
      Hashes hashes(*this, begin, end);
      for (std::size_t i = span.first; i < span.last; ++i) WC_TRY(make_segment(plan_[i], edits, bench, hashes));
      hashes.report(report);
      return {};
    };
    const bool edits = edits_;
    Status made = make(edits);
    if (!made.has_value() && edits && made.error().code != Errc::kClosed) {
      // The older version is not what it should be, or cannot be read: the base is copied over it.
      edits_ = false;
      made = make(false);
    }
    WC_TRY(made);
    auto shared = std::ranges::lower_bound(shared_leaves_, span.begin / kDigestBlockBytes, {}, &SharedLeaf::leaf);
    for (; shared != shared_leaves_.end() && digest_->leaf_offset_bytes(shared->leaf) < span.end; ++shared) {
      bool is_last = false;
      {
        const std::lock_guard lock(digest_mutex_);
        is_last = --shared->spans_left == 0;
      }
      const std::uint64_t at = digest_->leaf_offset_bytes(shared->leaf);
      if (is_last) WC_TRY(hash_shared(at, at + digest_->leaf_size_bytes(shared->leaf), bench, report));
    }
    return {};
  }

  // By what was written: the changes may be others when they are read again.
  Status hash_shared(std::uint64_t begin, std::uint64_t end, const Workbench& bench, const Report& report) {
    Hashes hashes(*this, begin, end);
    for (std::uint64_t at = begin; at < end;) {
      const auto size = static_cast<std::size_t>(std::min<std::uint64_t>(kWindowBytes, end - at));
      const MutableBytes window = window_at(at, size, bench);
      WC_TRY(read_base(at, window, hashes));
      WC_TRY(read_stream(*target_, at, window));
      hashes.add_new(at, window);
      at += size;
    }
    hashes.report(report);
    return {};
  }

  Status make_segment(const SegmentRange& range, bool edits, Workbench& bench, Hashes& hashes) {
    const unsigned cell_bytes = geometry_of(range.kind).bytes;
    const std::uint64_t begin = range.result_offset;
    WC_TRY(changes_->read(begin, range.size_bytes, cell_bytes, !request_.allow_nonfinite, bench.changes));
    if (edits) {
      bench.earlier.resize(earlier_.size());
      for (std::size_t i = 0; i < earlier_.size(); ++i) {
        WC_TRY(earlier_[i].read(begin, range.size_bytes, cell_bytes, false, bench.earlier[i]));
      }
    }
    const bool encodes = encodes_;
    if (encodes) {
      WC_TRY(bench.encoder.begin(range, bench.changes, [this, begin](std::uint32_t offset, MutableBytes cells) {
        return base_->read_at(begin + offset, cells);
      }));
    }
    for (std::uint32_t at = 0; at < range.size_bytes;) {
      const auto size = std::min<std::size_t>(kWindowBytes, range.size_bytes - at);
      const auto change = [&](MutableBytes window) {
        if (encodes) {
          bench.encoder.next(window);
        } else {
          change_cells(bench.changes, cell_bytes, at / cell_bytes, window);
        }
        hashes.add_new(begin + at, window);
      };
      const std::vector<FilePiece> pieces = base_->file_table().pieces(begin + at, size);
      // Only where all of it is compared with the base's digests; the rest is copied.
      if (edits && pieces.size() == 1 && hashes.covers(begin + at, size)) {
        WC_TRY(check_going_on());
        FileEditor& editor = *editors_[pieces[0].file];
        WC_ASSIGN(const MutableBytes window, editor.edit(pieces[0].offset_bytes, size, bench.scratch));
        for (const CellChanges& earlier : bench.earlier) change_cells(earlier, cell_bytes, at / cell_bytes, window);
        WC_TRY(hashes.check_old(begin + at, window));
        change(window);
        WC_TRY(editor.commit(pieces[0].offset_bytes, window));
      } else {
        const MutableBytes window = bench.window.get(pieces.front().offset_bytes, size);
        WC_TRY(read_base(begin + at, window, hashes));
        change(window);
        WC_TRY(write(begin + at, window));
      }
      at += static_cast<std::uint32_t>(size);
    }
    return encodes ? keep_segment(range.index, bench.encoder) : Status();
  }

  Status keep_segment(std::uint32_t index, SegmentEncoder& encoder) {
    EncodedSegment& segment = segments_[index];
    encoded_bytes_ -= segment.frame.size();  // of what is made again
    segment.frame.clear();
    WC_ASSIGN(segment.header, encoder.finish(segment.frame));
    segment.frame.shrink_to_fit();
    encoded_bytes_ += segment.frame.size();
    if (encoded_bytes_ > kEncodedPatchBytesMax) encodes_ = false;
    return {};
  }

  MutableBytes window_at(std::uint64_t offset, std::size_t size, const Workbench& bench) const {
    return bench.window.get(base_->file_table().pieces(offset, 1).front().offset_bytes, size);
  }

  [[nodiscard]] Status check_going_on() const {
    if (stopped_) return fail(Errc::kClosed, Op::kPublish, "another part of it has failed");
    if (jobs_.cancelled()) return Jobs::cancelled_error(Op::kPublish);
    return {};
  }

  Status read_base(std::uint64_t offset, MutableBytes window, Hashes& hashes) const {
    WC_TRY(check_going_on());
    WC_TRY(base_->read_at(offset, window));
    return hashes.check_old(offset, window);
  }

  Status write(std::uint64_t offset, Bytes bytes) {
    // As in takeover.cpp: the kernel lets one writer at a time into a file.
    const std::lock_guard lock(write_mutex_);
    return write_stream(*target_, offset, bytes);
  }

  Jobs& jobs_;
  FileSystem& file_system_;
  const ChangesRequest request_;
  const std::filesystem::path base_path_;
  const Manifest base_manifest_;
  const std::vector<ContentDigest> base_digests_;
  std::shared_ptr<const std::vector<Checksum>> base_leaves_;  // null: not known
  const std::function<void(ByProducts)> tell_by_products_;
  std::optional<SnapshotSource> base_;
  std::optional<AppliedChanges> applied_;
  std::optional<ChangeFile> changes_;
  std::vector<ChangeFile> earlier_;                   // from what the new files hold to the base
  std::vector<std::unique_ptr<FileEditor>> editors_;  // of the new files
  double packed_share_ = kPackedShareOfWeights;
  std::vector<SegmentRange> plan_;
  std::vector<Span> spans_;
  std::vector<SharedLeaf> shared_leaves_;
  std::uint32_t chunk_bytes_ = 0;
  std::shared_ptr<VersionFiles> target_;
  std::atomic<std::size_t> next_span_{0};
  std::atomic<bool> stopped_{false};
  std::once_flag looked_for_earlier_;
  std::atomic<bool> edits_{false};
  std::atomic<bool> encodes_{false};
  std::atomic<std::uint64_t> encoded_bytes_{0};
  std::vector<EncodedSegment> segments_;  // each is written by the thread that makes it
  std::mutex write_mutex_;
  std::mutex digest_mutex_;
  std::optional<SnapshotDigest> digest_;
};

}  // namespace

void apply_changes(Jobs& jobs, FileSystem& files, Store& store, ChangesRequest request, PayloadObserver observer,
                   std::function<void(ByProducts)> by_products) {
  const StoredVersion* base = store.find(request.base);
  if (base == nullptr) {
    return jobs.post([done = std::move(observer.done), base_version = request.base] {
      done(fail(
          Errc::kNotFound, Op::kPublish,
          fmt::format("version {}, which the changes are against, is not in the store any more", base_version.value)));
    });
  }
  auto source = std::make_unique<ChangedCopy>(jobs, files, std::move(request), *base, std::move(by_products));
  std::make_shared<PayloadProducer>(jobs, store, std::move(source), std::move(observer))->start();
}

}  // namespace weightcast
