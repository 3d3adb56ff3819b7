#include "transport/io/store/patched_snapshot.h"

#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <map>
#include <mutex>
#include <utility>

#include "patch/apply/apply.h"
#include "transport/io/buffer.h"
#include "transport/io/store/leaf_digests.h"

namespace weightcast {
namespace {

// Two of the pool's four threads: the others serve everybody else. Each job holds the code of one segment.
constexpr unsigned kJobsMax = 2;
// While one holds more than that, no other takes a segment: the code of a dense one is as long as its cells.
constexpr std::size_t kCodeBytesShared = 4 * kMiB;
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
  bool crowded = false;  // another job's segment is too long for a second one beside it
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
  std::vector<bool> taken;                          // by segment, from the head on
  std::vector<Digest> results;                      // by segment
  std::size_t applied = 0;                          // segments
  std::size_t code_bytes = 0;                       // of the segments that jobs hold
  std::map<std::uint64_t, std::uint64_t> unhashed;  // by where it begins: what go_on() is to read back, up to where

  /// The next whole segment below `prefix_bytes` that nobody took, if there is one.
  Result<std::optional<OwnedSegment>> next(std::uint64_t prefix_bytes, Step& step) {
    const std::lock_guard lock(mutex);
    step.crowded = code_bytes > kCodeBytesShared;
    while (!step.crowded) {
      if (read.empty()) {
        const std::uint64_t left = prefix_bytes > read_bytes ? prefix_bytes - read_bytes : 0;
        step.starved = left == 0;
        if (step.starved) break;
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
      code_bytes += segment->header().payload_bytes;
      return segment;
    }
    return std::optional<OwnedSegment>();
  }

  Status start(const PatchHead& head) {
    // A head for a base of no bytes has no segment that reads it.
    WC_TRY(check_head(head, identity, base ? base->table().size_bytes() : 0, target->table().size_bytes()));
    const std::size_t segments = plan_segments(head).size();
    taken.resize(segments);
    results.resize(segments);
    return {};
  }

  /// Window by window: read, changed, hashed and written while it is in the second-level cache.
  Status apply(const Segment& segment, Step& step) {
    const SegmentRange& range = segment.header.range;
    const std::uint64_t end = range.result_offset + range.size_bytes;
    WC_ASSIGN(SegmentDecoder decoder, SegmentDecoder::start(segment));
    Buffer window(kWindowBytesMax);
    std::optional<DigestStream> leaf = leaves.take(range.result_offset);
    const bool is_late = !leaf;
    for (std::uint64_t at = range.result_offset; at < end;) {
      const MutableBytes cells = window_at(at, end, geometry_of(range.kind).bytes, window);
      if (range.has_base()) WC_TRY(read_base(*base, range.base_offset + (at - range.result_offset), cells));
      WC_TRY(decoder.next(range.has_base() ? Bytes(cells) : Bytes(), cells));
      hash(at, cells, leaf, step);
      WC_TRY(write_stream(*target, at, cells));
      at += cells.size();
    }
    WC_TRY(decoder.finish());
    if (leaf) WC_TRY(go_on(end, std::move(*leaf), window, step));
    if (is_late) WC_TRY(catch_up(range.result_offset, std::min(end, leaf_end(range.result_offset)), window, step));
    step.offset = range.result_offset;
    step.length = range.size_bytes;
    const std::lock_guard lock(mutex);
    results[range.index] = segment.header.result_digest;
    ++applied;
    return {};
  }

  void drop_code(std::size_t bytes) {
    const std::lock_guard lock(mutex);
    code_bytes -= bytes;
  }

  static constexpr std::size_t kWindowBytesMax = Buffer::kAlignment + kWriteBytes + sizeof(std::uint64_t);

  /// Room for the cells from `at` on, as far as one write to a file should go, but whole cells and not beyond `end`. It
  /// stands at the same place in its page as in the file's.
  MutableBytes window_at(std::uint64_t at, std::uint64_t end, unsigned cell_bytes, Buffer& window) const {
    const std::uint64_t in_file = target->table().pieces(at, 1).front().offset_bytes;
    std::uint64_t bytes = kWriteBytes - in_file % kWriteBytes;
    if (bytes < cell_bytes) bytes = cell_bytes;
    bytes = std::min(bytes - bytes % cell_bytes, end - at);
    return {window.data() + in_file % Buffer::kAlignment, static_cast<std::size_t>(bytes)};
  }

  std::uint64_t leaf_end(std::uint64_t offset) const {
    return std::min((offset / kDigestBlockBytes + 1) * kDigestBlockBytes, target->table().size_bytes());
  }

  /// Goes on with the leaf's digest by the bytes that stand at `offset`, and with the next leaf's. Nothing is to be
  /// done with a leaf of which the bytes before are not known.
  void hash(std::uint64_t offset, Bytes bytes, std::optional<DigestStream>& leaf, Step& step) const {
    while (!bytes.empty()) {
      if (offset % kDigestBlockBytes == 0) leaf.emplace();
      const Bytes part = bytes.first(std::min<std::uint64_t>(bytes.size(), leaf_end(offset) - offset));
      if (leaf) leaf->update(part);
      if (leaf && offset + part.size() == leaf_end(offset)) {
        step.leaves.emplace_back(offset / kDigestBlockBytes, leaf->digest());
        leaf.reset();
      }
      offset += part.size();
      bytes = bytes.subspan(part.size());
    }
  }

  /// Goes on with the digest of a leaf that is hashed as far as `at`: by reading back what stands there already,
  /// because it was made before this was known, then by leaving it to whoever makes what follows.
  Status go_on(std::uint64_t at, DigestStream digest, Buffer& window, Step& step) {
    for (std::optional<DigestStream> leaf = std::move(digest); leaf;) {
      std::uint64_t end = 0;
      {
        const std::lock_guard lock(mutex);
        const auto found = unhashed.extract(at);
        if (found.empty()) {
          leaves.put(at, std::move(*leaf));
          return {};
        }
        end = found.mapped();
      }
      while (at < end) {
        const MutableBytes bytes(window.data(), std::min<std::uint64_t>(end - at, kWriteBytes));
        WC_TRY(read_stream(*target, at, bytes));
        hash(at, bytes, leaf, step);
        at += bytes.size();
      }
    }
    return {};
  }

  /// [begin, end) of a leaf is written, but was not hashed, because what stands before it was not: now it is, or
  /// whoever makes it goes on.
  Status catch_up(std::uint64_t begin, std::uint64_t end, Buffer& window, Step& step) {
    std::optional<DigestStream> leaf;
    {
      const std::lock_guard lock(mutex);
      unhashed.emplace(begin, end);
      leaf = leaves.take(begin);
    }
    return leaf ? go_on(begin, std::move(*leaf), window, step) : Status();
  }

  Status complete() {
    const std::lock_guard lock(mutex);
    if (reader.end() == nullptr || applied != taken.size()) {
      return fail(Errc::kCorrupt, Op::kDecode, "the patch ends before it is complete");
    }
    return check_end(*reader.end(), results);
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
          Result<std::optional<OwnedSegment>> segment = work->next(prefix, *step);
          if (!segment.has_value()) {
            step->status = segment.error();
          } else if (segment->has_value()) {
            const std::size_t code_bytes = (*segment)->header().payload_bytes;
            step->status = work->apply((*segment)->view(), *step);
            segment->reset();
            work->drop_code(code_bytes);
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
  // What the other job holds is in the way until that one ends.
  if (!step.crowded || jobs_ == 0) start_jobs();
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
