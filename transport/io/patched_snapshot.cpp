#include "transport/io/patched_snapshot.h"

#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <mutex>
#include <utility>

#include "patch/apply.h"

namespace weightcast {
namespace {

// Two of the pool's four threads: the others hash what these have written, and serve everybody else.
constexpr unsigned kJobsMax = 2;
constexpr std::size_t kReadBytes = 256 * kKiB;

class BaseFiles final : public ByteSource {
 public:
  explicit BaseFiles(VersionFiles& files) : files_(files) {}
  std::uint64_t size_bytes() const override { return files_.table().size_bytes(); }
  // By reading, not by mapping: a file that somebody cut short is an error then, and not a signal.
  Result<Bytes> view(std::uint64_t offset, std::size_t size, std::vector<std::byte>& scratch) const override {
    scratch.resize(size);
    if (Status read = read_stream(files_, offset, scratch); !read.has_value()) {
      return fail(Errc::kWrongBase, Op::kDecode, fmt::format("the base cannot be read: {}", read.error().detail));
    }
    return Bytes(scratch);
  }

 private:
  VersionFiles& files_;
};

class TargetFiles final : public ByteTarget {
 public:
  explicit TargetFiles(VersionFiles& files) : files_(files) {}
  std::uint64_t size_bytes() const override { return files_.table().size_bytes(); }
  MutableBytes direct(std::uint64_t, std::size_t) override { return {}; }
  Status write(std::uint64_t offset, Bytes bytes) override { return write_stream(files_, offset, bytes); }

 private:
  VersionFiles& files_;
};

}  // namespace

/// What the pool threads share; kept alive by their jobs.
struct PatchedSnapshot::Work {
  Work(PatchIdentity wanted, std::shared_ptr<VersionFiles> base_files, std::shared_ptr<VersionFiles> patch_files,
       std::shared_ptr<VersionFiles> target_files)
      : identity(std::move(wanted)),
        base(std::move(base_files)),
        patch(std::move(patch_files)),
        target(std::move(target_files)),
        source(*base),
        sink(*target) {}

  const PatchIdentity identity;
  const std::shared_ptr<VersionFiles> base, patch, target;
  const BaseFiles source;
  TargetFiles sink;
  std::atomic<bool> cancelled = false;

  std::mutex mutex;  // guards what follows
  PatchReader reader;
  std::optional<PatchApplier> applier;
  std::vector<std::byte> read;  // of the patch, not given to the reader yet
  std::uint64_t read_bytes = 0;

  /// The next whole segment below `prefix_bytes`; nothing if there is none yet. Takes the lock.
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
      WC_ASSIGN(const std::size_t taken, reader.handle_bytes(read));
      read.erase(read.begin(), read.begin() + static_cast<std::ptrdiff_t>(taken));
      if (!applier && reader.head() != nullptr) WC_TRY(start(*reader.head()));
      if (std::optional<OwnedSegment> segment = reader.poll_segment()) return segment;
    }
  }

  Status start(const PatchHead& head) {
    WC_TRY(check_applies(head.identity, identity));
    if (head.identity.version != identity.version || head.identity.result_digest != identity.result_digest) {
      return fail(Errc::kCorrupt, Op::kDecode, "the patch leads to another version than its manifest says");
    }
    Result<PatchApplier> started = PatchApplier::start(head, source, sink);
    if (!started.has_value()) return started.error();
    applier.emplace(std::move(*started));
    return {};
  }

  Status complete() {
    const std::lock_guard lock(mutex);
    if (!applier || reader.end() == nullptr) {
      return fail(Errc::kCorrupt, Op::kDecode, "the patch ends before it is complete");
    }
    return applier->finish(*reader.end());
  }
};

/// What one job did.
struct PatchedSnapshot::Step {
  Status status;
  bool starved = false;  // there was no whole segment
  std::uint64_t offset = 0, length = 0;
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
            const SegmentRange& range = (*segment)->header().range;
            step->status = work->applier->apply((*segment)->view());
            step->offset = range.result_offset;
            step->length = range.size_bytes;
            if (!step->status.has_value() && step->status.error().code == Errc::kAlreadyExists) *step = {};
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
