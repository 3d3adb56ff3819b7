#include "transport/io/store/files/patched_snapshot.h"

#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <mutex>
#include <utility>

namespace weightcast {
namespace {

// Each job holds the code of one segment, and that of a dense one is as long as its cells: while they hold more than so
// much for each job, none takes another.
constexpr std::size_t kCodeBytesPerJob = 2 * kMiB;
constexpr std::size_t kReadBytes = 256 * kKiB;

}  // namespace

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
};

/// What the pool threads share; kept alive by their jobs.
struct PatchedSnapshot::Work final : ApplyStreams {
  Work(PatchIdentity wanted, FilesRef base_files, FilesRef patch_files, FilesRef target_files, Steps known_steps,
       std::size_t code_bytes_shared)
      : identity(std::move(wanted)),
        base(std::move(base_files)),
        patch(std::move(patch_files)),
        target(std::move(target_files)),
        steps(std::move(known_steps)),
        code_bytes_max(code_bytes_shared) {}

  const PatchIdentity identity;
  const FilesRef base, patch, target;
  const Steps steps;
  const std::size_t code_bytes_max;
  std::atomic<bool> cancelled = false;

  std::mutex mutex;  // guards what follows
  PatchReader reader;
  std::vector<std::byte> read;  // of the patch, not given to the reader yet
  std::uint64_t read_bytes = 0;
  std::size_t code_bytes = 0;  // of the segments that jobs hold
  // From the head on; used without the mutex.
  std::vector<SegmentRange> plan;
  std::unique_ptr<SpareUpdate> spare;  // null: the base is read
  std::optional<PatchApplier> applier;

  Status read_base(std::uint64_t offset, MutableBytes cells) override {
    return weightcast::read_base(*base, offset, cells);
  }
  Status write_result(std::uint64_t offset, Bytes after) override { return write_stream(*target, offset, after); }
  Result<std::optional<MutableBytes>> edit_result(const SegmentRange& range, std::uint64_t offset, std::size_t size,
                                                  std::vector<std::byte>& scratch) override {
    if (!spare) return std::optional<MutableBytes>();
    return spare->edit(range, offset, size, scratch);
  }
  Status commit_result(std::uint64_t offset, Bytes cells) override { return spare->commit(offset, cells); }

  /// The next whole segment below `prefix_bytes`, if there is one.
  Result<std::optional<OwnedSegment>> next(std::uint64_t prefix_bytes, Step& step) {
    const std::lock_guard lock(mutex);
    step.crowded = code_bytes > code_bytes_max;
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
      if (!applier && reader.head() != nullptr) WC_TRY(start(*reader.head()));
      std::optional<OwnedSegment> segment = reader.poll_segment();
      if (!segment) continue;
      code_bytes += segment->header().payload_bytes;
      return segment;
    }
    return std::optional<OwnedSegment>();
  }

  Status start(const PatchHead& head) {
    // A head for a base of no bytes has no segment that reads it.
    WC_TRY(check_head(head, identity, base ? base->table().size_bytes() : 0, target->table().size_bytes()));
    plan = plan_segments(head);
    spare = SpareUpdate::open(*target, identity.base_version, plan, steps.earlier);
    // Where the base is copied all of its bytes pass, and are summed: that finds what has become of it.
    applier.emplace(plan, target->table(), *this,
                    ApplyOptions{.window_bytes = kWriteBytes,
                                 .base_leaves = spare ? steps.base_leaves : nullptr,
                                 .list_bytes_max = steps.list_bytes_max});
    return {};
  }

  Status apply(const OwnedSegment& segment) {
    const Status applied = applier->apply(segment.view());
    {
      const std::lock_guard lock(mutex);
      code_bytes -= segment.header().payload_bytes;
    }
    const bool twice = !applied.has_value() && applied.error().code == Errc::kAlreadyExists;
    return twice ? Status() : applied;
  }

  Result<Checksum> finish() {
    const std::lock_guard lock(mutex);
    if (reader.end() == nullptr) {
      return fail(Errc::kCorrupt, Op::kDecode, "the patch ends before it is complete");
    }
    return applier->finish(*reader.end());
  }

  StepRef take_step() {
    const std::lock_guard lock(mutex);
    if (steps.list_bytes_max == 0) return nullptr;
    return step_of(identity, std::move(plan), applier->take_changes());
  }
};

PatchedSnapshot::PatchedSnapshot(EventLoop& loop, PatchIdentity identity, FilesRef base, FilesRef patch,
                                 FilesRef target, Steps steps)
    : loop_(loop),
      work_(std::make_shared<Work>(std::move(identity), std::move(base), std::move(patch), std::move(target),
                                   std::move(steps), kCodeBytesPerJob * loop.jobs_at_once_max())) {}

PatchedSnapshot::~PatchedSnapshot() { work_->cancelled = true; }

void PatchedSnapshot::handle_prefix(std::uint64_t bytes) {
  if (bytes <= prefix_bytes_) return;
  prefix_bytes_ = bytes;
  starved_ = false;
  start_jobs();
}

void PatchedSnapshot::start_jobs() {
  while (!starved_ && !error_ && jobs_ < loop_.jobs_at_once_max()) {
    ++jobs_;
    auto step = std::make_shared<Step>();
    loop_.offload(
        [work = work_, step, prefix = prefix_bytes_] {
          if (work->cancelled) return;
          Result<std::optional<OwnedSegment>> segment = work->next(prefix, *step);
          if (!segment.has_value()) {
            step->status = segment.error();
          } else if (segment->has_value()) {
            step->status = work->apply(**segment);
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
  if (!step.status.has_value() && !error_) error_ = step.status.error();
  // What the other job holds is in the way until that one ends.
  if (!step.crowded || jobs_ == 0) start_jobs();
  finish_if_idle();
}

void PatchedSnapshot::finish(std::function<void(Result<Checksum>)> done) {
  done_ = std::move(done);
  loop_.post([this, alive = std::weak_ptr(alive_)] {
    if (!alive.expired()) finish_if_idle();
  });
}

StepRef PatchedSnapshot::take_step() { return work_->take_step(); }

std::shared_ptr<const LeafSums> PatchedSnapshot::leaves() const {
  const std::lock_guard lock(work_->mutex);
  return std::make_shared<const LeafSums>(work_->applier->leaves());
}

void PatchedSnapshot::finish_if_idle() {
  if (!done_ || jobs_ > 0 || (!starved_ && !error_)) return;
  const auto done = std::exchange(done_, nullptr);
  if (error_) return done(*error_);
  Result<Checksum> digest = work_->finish();
  if (!digest.has_value()) error_ = digest.error();
  done(std::move(digest));
}

}  // namespace weightcast
