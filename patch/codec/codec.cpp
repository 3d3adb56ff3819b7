#include "patch/codec/codec.h"

#include <fmt/format.h>

#include <algorithm>
#include <condition_variable>
#include <memory>
#include <mutex>

#include "base/parallel.h"

namespace weightcast {
namespace {

/// Makes the segments of a plan, on several threads or on the caller's, and hands them out in order.
/// Invariant: a segment is made only while fewer than `window` others wait between it and the next one to hand out.
class SegmentQueue {
 public:
  SegmentQueue(const std::vector<SegmentRange>& plan, unsigned threads, const std::function<SegmentMaker()>& new_maker)
      : plan_(plan), slots_(2 * std::max(threads, 1u)) {
    const unsigned wanted = threads > 1 ? threads : 0;
    while (threads_.size() < wanted && add_thread(threads_, [this, &new_maker] { work(new_maker()); })) {
    }
    if (threads_.empty()) own_ = new_maker();
  }
  ~SegmentQueue() {
    {
      const std::lock_guard lock(mutex_);
      stopped_ = true;
    }
    changed_.notify_all();
    threads_.clear();  // joins
  }

  /// Waits for the next segment in order.
  Result<EncodedSegment> pop() {
    if (own_) return own_(plan_[handed_out_++]);
    std::unique_lock lock(mutex_);
    auto& slot = slots_[handed_out_ % slots_.size()];
    changed_.wait(lock, [&] { return slot.has_value(); });
    Result<EncodedSegment> finished = std::move(*slot);
    slot.reset();
    ++handed_out_;
    lock.unlock();
    changed_.notify_all();
    return finished;
  }

 private:
  void work(const SegmentMaker& maker) {
    for (;;) {
      std::unique_lock lock(mutex_);
      changed_.wait(lock, [&] { return stopped_ || taken_ == plan_.size() || taken_ < handed_out_ + slots_.size(); });
      if (stopped_ || taken_ == plan_.size()) return;
      const std::size_t index = taken_++;
      lock.unlock();
      Result<EncodedSegment> finished = maker(plan_[index]);
      lock.lock();
      slots_[index % slots_.size()].emplace(std::move(finished));
      lock.unlock();
      changed_.notify_all();
    }
  }

  const std::vector<SegmentRange>& plan_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<std::optional<Result<EncodedSegment>>> slots_;
  std::size_t taken_ = 0;
  std::size_t handed_out_ = 0;
  bool stopped_ = false;
  SegmentMaker own_;                   // where no thread was started
  std::vector<std::jthread> threads_;  // last: they use all of the above
};

/// Compares base and result.
class ComparingMaker {
 public:
  ComparingMaker(const ByteSource& base, const ByteSource& result, const EncodeOptions& options)
      : base_(base), result_(result), encoder_(*options.kernels, options.sparse_form) {}

  Result<EncodedSegment> make(const SegmentRange& range) {
    Bytes before;
    if (range.has_base()) {
      WC_ASSIGN(before, base_.view(range.base_offset, range.size_bytes, before_));
    }
    WC_ASSIGN(const Bytes after, result_.view(range.result_offset, range.size_bytes, after_));
    EncodedSegment finished;
    finished.header = encoder_.encode(range, before, after, finished.frame);
    return finished;
  }

 private:
  const ByteSource& base_;
  const ByteSource& result_;
  SegmentEncoder encoder_;
  std::vector<std::byte> before_, after_;  // scratch
};

Error corrupt(std::string what) { return fail(Errc::kCorrupt, Op::kParse, "patch: " + std::move(what)); }

}  // namespace

Result<PatchSummary> encode_patch(const PatchHead& head, const ByteSource& base, const ByteSource& result,
                                  const EncodeOptions& options, const PatchSink& sink) {
  if (base.size_bytes() != head.base_bytes || result.size_bytes() != head.result_bytes) {
    return fail(Errc::kInvalidArgument, Op::kEncode,
                fmt::format("the snapshots have {} and {} bytes, their layouts {} and {}", base.size_bytes(),
                            result.size_bytes(), head.base_bytes, head.result_bytes));
  }
  const auto new_maker = [&]() -> SegmentMaker {
    return [maker = std::make_shared<ComparingMaker>(base, result, options)](const SegmentRange& range) {
      return maker->make(range);
    };
  };
  return write_patch(head, options.threads, new_maker, sink);
}

Result<PatchSummary> write_patch(const PatchHead& head, unsigned threads,
                                 const std::function<SegmentMaker()>& new_maker, const PatchSink& sink) {
  const std::vector<SegmentRange> plan = plan_segments(head);
  PatchSummary summary;
  const auto emit = [&](Bytes bytes) {
    summary.patch_bytes += bytes.size();
    return sink(bytes);
  };
  std::vector<std::byte> frame;
  write_head(head, frame);
  // It can be sent while the first segment is made.
  WC_TRY(emit(frame));
  SegmentQueue queue(plan, threads, new_maker);
  ChecksumStream results;
  for (std::size_t i = 0; i < plan.size(); ++i) {
    WC_ASSIGN(const EncodedSegment segment, queue.pop());
    results.update(segment.header.result_digest.bytes);
    summary.cells += segment.header.range.size_bytes / geometry_of(segment.header.range.kind).bytes;
    summary.changed_cells += segment.header.changed_cells;
    WC_TRY(emit(segment.frame));
  }
  summary.segments = std::uint32_t(plan.size());
  frame.clear();
  write_end({summary.segments, results.digest()}, frame);
  WC_TRY(emit(frame));
  return summary;
}

// How long the frame is that begins in the buffer, as far as its bytes tell; at least one more than there are where
// they do not tell yet.
Result<std::size_t> PatchReader::frame_bytes() const {
  if (!head_) return buffer_.size() < kHeadPrefixBytes ? Result<std::size_t>(kHeadPrefixBytes) : peek_head(buffer_);
  constexpr std::size_t kMagicBytes = 4;
  if (buffer_.size() < kMagicBytes) return kMagicBytes;
  std::uint32_t magic = 0;
  for (unsigned i = 0; i < kMagicBytes; ++i) magic |= std::to_integer<std::uint32_t>(buffer_[i]) << (8 * i);
  if (magic == kEndMagic) return kEndBytes;
  if (magic != kSegmentMagic) return corrupt("neither a segment nor the end follows; fetch it again");
  if (buffer_.size() < kSegmentHeaderBytes) return kSegmentHeaderBytes;
  WC_ASSIGN(const SegmentHeader header, peek_segment(buffer_));
  if (header.range.index >= plan_.size() || header.range != plan_[header.range.index]) {
    return corrupt(fmt::format("segment {} is not one that the head plans; fetch it again", header.range.index));
  }
  if (!head_->knows(header.mode)) {
    return corrupt(fmt::format("segment {} has the mode {}, which format version {} lacks", header.range.index,
                               to_string(header.mode), head_->format_version));
  }
  return kSegmentHeaderBytes + header.payload_bytes;
}

Status PatchReader::handle_frame() {
  if (!head_) {
    WC_ASSIGN(head_, read_head(buffer_));
    plan_ = plan_segments(*head_);
  } else if (buffer_.size() == kEndBytes) {
    WC_ASSIGN(end_, read_end(buffer_));
  } else {
    WC_ASSIGN(const Segment segment, read_segment(buffer_));
    segment_.emplace(segment.header, std::move(buffer_));
  }
  buffer_.clear();
  return {};
}

Result<std::size_t> PatchReader::handle_bytes(Bytes bytes) {
  const auto fail_for_good = [this](Error error) {
    failed_ = error;
    return error;
  };
  if (failed_) return *failed_;
  std::size_t taken = 0;
  while (taken < bytes.size() && !segment_) {
    if (end_) return fail_for_good(corrupt("bytes follow its end"));
    // Learn the frame's length from ever more of its bytes, then take exactly that many.
    Result<std::size_t> wanted = frame_bytes();
    if (!wanted) return fail_for_good(wanted.error());
    // All of it: growing to it would take up to twice the memory.
    buffer_.reserve(*wanted);
    const std::size_t count = std::min(*wanted - buffer_.size(), bytes.size() - taken);
    buffer_.insert(buffer_.end(), bytes.begin() + std::ptrdiff_t(taken), bytes.begin() + std::ptrdiff_t(taken + count));
    taken += count;
    wanted = frame_bytes();
    if (!wanted) return fail_for_good(wanted.error());
    if (buffer_.size() < *wanted) continue;
    if (Status handled = handle_frame(); !handled) return fail_for_good(handled.error());
  }
  return taken;
}

std::optional<OwnedSegment> PatchReader::poll_segment() { return std::exchange(segment_, std::nullopt); }

}  // namespace weightcast
