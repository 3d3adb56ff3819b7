#include "transport/io/patched_snapshot.h"

#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <mutex>
#include <utility>

#include "patch/apply.h"
#include "transport/io/buffer.h"
#include "transport/io/leaf_digests.h"

namespace weightcast {
namespace {

// Two of the pool's four threads: the others serve everybody else. Each job holds one segment, its cells and its code.
constexpr unsigned kJobsMax = 2;
constexpr std::size_t kReadBytes = 256 * kKiB;

}  // namespace

Status check_head(const PatchHead& head, const PatchIdentity& wanted, std::uint64_t base_bytes,
                  std::uint64_t result_bytes) {
  if (head.identity.model_id != wanted.model_id || head.identity.version != wanted.version ||
      head.identity.result_digest != wanted.result_digest || head.result_bytes != result_bytes) {
    return fail(Errc::kCorrupt, Op::kDecode, "the patch leads to another version than its manifest says");
  }
  WC_TRY(check_applies(head.identity, wanted));
  if (head.base_bytes == base_bytes) return {};
  return fail(Errc::kWrongBase, Op::kDecode,
              fmt::format("the patch is for a base of {} bytes, this one has {}", head.base_bytes, base_bytes));
}

Status read_base(VersionFiles& base, std::uint64_t offset, MutableBytes cells) {
  const Status read = read_stream(base, offset, cells);
  if (read.has_value()) return {};
  return fail(Errc::kWrongBase, Op::kDecode, fmt::format("the base cannot be read: {}", read.error().detail));
}

/// What one job did.
struct PatchedSnapshot::Step {
  Status status;
  bool starved = false;  // there was no whole segment
  std::uint64_t offset = 0, length = 0;
  std::vector<std::pair<std::size_t, Digest>> leaves;  // that are complete with it
};

/// What the pool threads share; kept alive by their jobs.
struct PatchedSnapshot::Work {
  Work(PatchIdentity wanted, std::shared_ptr<VersionFiles> base_files, std::shared_ptr<VersionFiles> patch_files,
       std::shared_ptr<VersionFiles> target_files)
      : identity(std::move(wanted)),
        base(std::move(base_files)),
        patch(std::move(patch_files)),
        target(std::move(target_files)),
        leaves(target->table().size_bytes()) {}

  const PatchIdentity identity;
  const std::shared_ptr<VersionFiles> base, patch, target;
  LeafDigests leaves;
  std::atomic<bool> cancelled = false;

  std::mutex mutex;  // guards what follows
  PatchReader reader;
  std::vector<std::byte> read;  // of the patch, not given to the reader yet
  std::uint64_t read_bytes = 0;
  std::vector<bool> taken;      // by segment, from the head on
  std::vector<Digest> results;  // by segment
  std::size_t applied = 0;      // segments
  std::vector<std::unique_ptr<Buffer>> idle;

  /// The next whole segment below `prefix_bytes` that nobody took; nothing if there is none yet.
  Result<std::optional<OwnedSegment>> next(std::uint64_t prefix_bytes) {
    const std::lock_guard lock(mutex);
    for (;;) {
      if (read.empty()) {
        const std::uint64_t left = prefix_bytes > read_bytes ? prefix_bytes - read_bytes : 0;
        if (left == 0) return std::optional<OwnedSegment>();
        read.resize(std::min<std::uint64_t>(left, kReadBytes));
        WC_TRY(read_stream(*patch, read_bytes, read));
        read_bytes += read.size();
      }
      WC_ASSIGN(const std::size_t used, reader.handle_bytes(read));
      read.erase(read.begin(), read.begin() + static_cast<std::ptrdiff_t>(used));
      if (taken.empty() && reader.head() != nullptr) WC_TRY(start(*reader.head()));
      std::optional<OwnedSegment> segment = reader.poll_segment();
      if (!segment || taken[segment->header().range.index]) continue;
      taken[segment->header().range.index] = true;
      return segment;
    }
  }

  Status start(const PatchHead& head) {
    WC_TRY(check_head(head, identity, base->table().size_bytes(), target->table().size_bytes()));
    const std::size_t segments = plan_segments(head).size();
    taken.resize(segments);
    results.resize(segments);
    return {};
  }

  /// Memory for `bytes` cells and what stands before them in their page.
  std::unique_ptr<Buffer> take_buffer(std::size_t bytes) {
    const std::lock_guard lock(mutex);
    if (!idle.empty() && idle.back()->capacity() >= bytes) {
      std::unique_ptr<Buffer> buffer = std::move(idle.back());
      idle.pop_back();
      return buffer;
    }
    idle.clear();
    return std::make_unique<Buffer>(bytes);
  }

  /// The old cells are read to where the new ones are made of them: half the memory, and half the way through it.
  Status apply(const Segment& segment, Step& step) {
    const SegmentRange& range = segment.header.range;
    const std::size_t page_offset =
        target->table().pieces(range.result_offset, 1).front().offset_bytes % Buffer::kAlignment;
    std::unique_ptr<Buffer> buffer = take_buffer(page_offset + range.size_bytes);
    const MutableBytes cells(buffer->data() + page_offset, range.size_bytes);
    if (range.has_base()) WC_TRY(read_base(*base, range.base_offset, cells));
    WC_TRY(decode_segment(segment, range.has_base() ? Bytes(cells) : Bytes(), cells));
    WC_TRY(write_leaves(range.result_offset, cells, step));
    step.offset = range.result_offset;
    step.length = range.size_bytes;
    const std::lock_guard lock(mutex);
    results[range.index] = segment.header.result_digest;
    ++applied;
    idle.push_back(std::move(buffer));
    return {};
  }

  /// Writes and hashes what stands at `offset`, leaf by leaf. The last leaf comes first: whoever makes the next segment
  /// goes on with it.
  Status write_leaves(std::uint64_t offset, Bytes cells, Step& step) {
    for (std::uint64_t end = offset + cells.size(); end > offset;) {
      const std::size_t leaf = (end - 1) / kDigestBlockBytes;
      const std::uint64_t begin = std::max(offset, leaf * kDigestBlockBytes);
      std::optional<DigestStream> digest = leaves.take(begin);
      WC_TRY(write_pieces(begin, cells.subspan(begin - offset, end - begin), digest));
      if (digest) {
        if (const auto whole = leaves.put(end, std::move(*digest))) step.leaves.emplace_back(leaf, *whole);
      }
      end = begin;
    }
    return {};
  }

  /// Pieces that end where pages do, each hashed just before it is written: then it is in the cache.
  Status write_pieces(std::uint64_t offset, Bytes from, std::optional<DigestStream>& digest) {
    for (const FilePiece& part : target->table().pieces(offset, from.size())) {
      WC_ASSIGN(const FileRef file, target->file(part.file));
      const std::string& name = target->table().files()[part.file].name;
      const std::uint64_t end = part.offset_bytes + part.size_bytes;
      for (std::uint64_t at = part.offset_bytes; at < end;) {
        const Bytes piece = from.first(std::min(end - at, kWriteBytes - at % kWriteBytes));
        if (digest) digest->update(piece);
        WC_TRY(write_fully(*file, at, piece, name));
        at += piece.size();
        from = from.subspan(piece.size());
      }
    }
    return {};
  }

  Status complete() {
    const std::lock_guard lock(mutex);
    if (reader.end() == nullptr || applied != taken.size() || reader.end()->segments != applied) {
      return fail(Errc::kCorrupt, Op::kDecode, "the patch ends before it is complete");
    }
    DigestStream all;
    for (const Digest& digest : results) all.update(digest.bytes);
    if (all.digest() == reader.end()->results_digest) return {};
    return fail(Errc::kCorrupt, Op::kVerify, "the patch's end belongs to other segments");
  }
};

PatchedSnapshot::PatchedSnapshot(EventLoop& loop, PatchIdentity identity, std::shared_ptr<VersionFiles> base,
                                 std::shared_ptr<VersionFiles> patch, std::shared_ptr<VersionFiles> target)
    : loop_(loop),
      work_(std::make_shared<Work>(std::move(identity), std::move(base), std::move(patch), target)),
      check_(loop, target) {}

PatchedSnapshot::~PatchedSnapshot() { work_->cancelled = true; }

void PatchedSnapshot::handle_prefix(std::uint64_t bytes) {
  if (bytes <= prefix_bytes_) return;
  prefix_bytes_ = bytes;
  starved_ = false;
  start_jobs();
}

void PatchedSnapshot::start_jobs() {
  while (!starved_ && !error_ && jobs_ < kJobsMax) {
    ++jobs_;
    auto step = std::make_shared<Step>();
    loop_.offload(
        [work = work_, step, prefix = prefix_bytes_] {
          if (work->cancelled) return;
          Result<std::optional<OwnedSegment>> segment = work->next(prefix);
          if (!segment.has_value()) {
            step->status = segment.error();
          } else if (!segment->has_value()) {
            step->starved = true;
          } else {
            step->status = work->apply((*segment)->view(), *step);
          }
        },
        [this, step, prefix = prefix_bytes_, alive = std::weak_ptr(alive_)] {
          if (alive.expired()) return;
          --jobs_;
          if (step->starved && prefix == prefix_bytes_) starved_ = true;
          handle_step(*step);
        });
  }
}

void PatchedSnapshot::handle_step(const Step& step) {
  if (!step.status.has_value()) {
    if (!error_) error_ = step.status.error();
  } else if (step.length > 0) {
    for (const auto& [leaf, digest] : step.leaves) check_.handle_hashed(leaf, digest);
    check_.handle_stored(step.offset, step.length);
  }
  start_jobs();
  finish_if_idle();
}

void PatchedSnapshot::finish(std::function<void(Result<Digest>)> done) {
  done_ = std::move(done);
  loop_.post([this, alive = std::weak_ptr(alive_)] {
    if (!alive.expired()) finish_if_idle();
  });
}

void PatchedSnapshot::finish_if_idle() {
  if (!done_ || jobs_ > 0 || (!starved_ && !error_)) return;
  const auto done = std::exchange(done_, nullptr);
  if (!error_) {
    if (Status complete = work_->complete(); !complete.has_value()) error_ = complete.error();
  }
  if (error_) return done(*error_);
  check_.finish(done);
}

}  // namespace weightcast
