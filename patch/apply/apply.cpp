#include "patch/apply/apply.h"

#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <thread>

namespace weightcast {

Status check_applies(const PatchIdentity& patch, const PatchIdentity& held) {
  if (patch.model_id != held.model_id) {
    return fail(Errc::kInvalidArgument, Op::kDecode,
                fmt::format("the patch is for model '{}', this is '{}'", patch.model_id, held.model_id));
  }
  const bool same_version = patch.base_version == held.base_version;
  const bool known = patch.base_digest != Digest{} && held.base_digest != Digest{};
  if (!same_version || (known && patch.base_digest != held.base_digest)) {
    return fail(
        Errc::kWrongBase, Op::kDecode,
        fmt::format("the patch is for version {} ({}), this is version {} ({}); find a patch for it or fetch it whole",
                    patch.base_version.value, patch.base_digest.hex(), held.base_version.value,
                    held.base_digest.hex()));
  }
  return {};
}

PatchApplier::PatchApplier(std::vector<SegmentRange> plan, const ByteSource& base, ByteTarget& target,
                           const Kernels& kernels)
    : plan_(std::move(plan)),
      base_(&base),
      target_(&target),
      kernels_(&kernels),
      mutex_(std::make_unique<std::mutex>()),
      states_(plan_.size(), State::kMissing),
      results_(plan_.size()) {}

Result<PatchApplier> PatchApplier::start(const PatchHead& head, const ByteSource& base, ByteTarget& target,
                                         const Kernels& kernels) {
  if (base.size_bytes() != head.base_bytes) {
    return fail(
        Errc::kWrongBase, Op::kDecode,
        fmt::format("the patch is for a base of {} bytes, this one has {}", head.base_bytes, base.size_bytes()));
  }
  if (target.size_bytes() != head.result_bytes) {
    return fail(Errc::kInvalidArgument, Op::kDecode,
                fmt::format("the result has {} bytes, the target {}", head.result_bytes, target.size_bytes()));
  }
  return PatchApplier(plan_segments(head), base, target, kernels);
}

Status PatchApplier::make(const Segment& segment, Buffers& buffers) {
  const SegmentRange& range = segment.header.range;
  auto& [before_scratch, after_scratch] = buffers;
  Bytes before;
  if (range.has_base()) {
    WC_ASSIGN(before, base_->view(range.base_offset, range.size_bytes, before_scratch));
  }
  if (const MutableBytes direct = target_->direct(range.result_offset, range.size_bytes); !direct.empty()) {
    return decode_segment(segment, before, direct, *kernels_);
  }
  after_scratch.resize(range.size_bytes);
  WC_TRY(decode_segment(segment, before, after_scratch, *kernels_));
  return target_->write(range.result_offset, after_scratch);
}

Status PatchApplier::apply(const Segment& segment) {
  const std::uint32_t index = segment.header.range.index;
  if (index >= plan_.size() || plan_[index] != segment.header.range) {
    return fail(Errc::kCorrupt, Op::kDecode, fmt::format("patch segment {}: the patch's head does not plan it", index));
  }
  Buffers buffers;
  {
    const std::lock_guard lock(*mutex_);
    if (states_[index] != State::kMissing) {
      return fail(Errc::kAlreadyExists, Op::kDecode, fmt::format("patch segment {} was applied before", index));
    }
    states_[index] = State::kTaken;
    if (!idle_buffers_.empty()) {
      buffers = std::move(idle_buffers_.back());
      idle_buffers_.pop_back();
    }
  }
  Status made = make(segment, buffers);
  const std::lock_guard lock(*mutex_);
  idle_buffers_.push_back(std::move(buffers));
  states_[index] = made ? State::kApplied : State::kMissing;
  results_[index] = segment.header.result_digest;
  return made;
}

std::size_t PatchApplier::missing() const {
  const std::lock_guard lock(*mutex_);
  return std::size_t(std::count_if(states_.begin(), states_.end(), [](State s) { return s != State::kApplied; }));
}

Status PatchApplier::finish(const PatchEnd& end) const {
  if (const std::size_t left = missing(); left > 0) {
    return fail(Errc::kCorrupt, Op::kDecode,
                fmt::format("{} of {} patch segments are missing; fetch them", left, plan_.size()));
  }
  return check_end(end, results_);
}

Status apply_patch(Bytes patch, const ByteSource& base, ByteTarget& target, unsigned threads, const Kernels& kernels) {
  // Reading is checking digests, a hundredth of the work of applying: one reader, shared by all threads.
  PatchReader reader;
  std::optional<PatchApplier> applier;
  std::mutex mutex;
  std::optional<Error> failed;
  const auto next = [&]() -> std::optional<OwnedSegment> {
    const std::lock_guard lock(mutex);
    while (!failed && !patch.empty()) {
      const Result<std::size_t> taken = reader.handle_bytes(patch);
      if (!taken) {
        failed = taken.error();
        break;
      }
      patch = patch.subspan(*taken);
      if (!applier && reader.head() != nullptr) {
        Result<PatchApplier> started = PatchApplier::start(*reader.head(), base, target, kernels);
        if (!started) {
          failed = started.error();
          break;
        }
        applier.emplace(std::move(*started));
      }
      if (std::optional<OwnedSegment> segment = reader.poll_segment()) return segment;
    }
    return std::nullopt;
  };
  const auto work = [&] {
    while (const std::optional<OwnedSegment> segment = next()) {
      if (Status applied = applier->apply(segment->view()); !applied) {
        const std::lock_guard lock(mutex);
        if (!failed) failed = applied.error();
      }
    }
  };
  {
    std::vector<std::thread> others;
    for (unsigned i = 1; i < threads; ++i) others.emplace_back(work);
    work();
    for (std::thread& other : others) other.join();
  }
  if (failed) return *failed;
  if (reader.end() == nullptr) return fail(Errc::kCorrupt, Op::kParse, "patch: it is cut short; fetch the rest");
  return applier->finish(*reader.end());
}

}  // namespace weightcast
