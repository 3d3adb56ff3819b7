#include "patch/apply/patch_applier.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "patch/codec/listed.h"

namespace weightcast {

Status check_applies(const PatchIdentity& patch, const PatchIdentity& held) {
  if (patch.model_id != held.model_id) {
    return fail(Errc::kInvalidArgument, Op::kDecode,
                fmt::format("the patch is for model '{}', this is '{}'", patch.model_id, held.model_id));
  }
  const bool same_version = patch.base_version == held.base_version;
  const bool known = patch.base_digest != Checksum{} && held.base_digest != Checksum{};
  if (!same_version || (known && patch.base_digest != held.base_digest)) {
    return fail(
        Errc::kWrongBase, Op::kDecode,
        fmt::format("the patch is for version {} ({}), this is version {} ({}); find a patch for it or fetch it whole",
                    patch.base_version.value, patch.base_digest.hex(), held.base_version.value,
                    held.base_digest.hex()));
  }
  return {};
}

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

/// Room for one window of cells, which become new ones.
class PatchApplier::Window {
 public:
  explicit Window(const ApplyOptions& options)
      : listed(*options.kernels),
        // A cell may be longer than what is left of a window.
        room_bytes_(kPageBytes + options.window_bytes + sizeof(std::uint64_t)),
        cells_(new (kAlignment) std::byte[room_bytes_]) {}

  /// `size` bytes that stand at the same place in a page as they do in the file.
  [[nodiscard]] MutableBytes cells(std::uint64_t in_file, std::size_t size) const {
    return {cells_.get() + in_file % kPageBytes, size};
  }
  std::vector<std::byte> scratch;  // for ApplyStreams::edit_result()
  // Of a segment of listed changes.
  ListedDecoder listed;
  CellChanges changes;
  std::vector<std::byte> old_values;

 private:
  // The kernel copies fast where source and target stand at the same place in their pages.
  static constexpr std::size_t kPageBytes = 4096;
  static constexpr std::align_val_t kAlignment{kPageBytes};
  struct Free {
    void operator()(std::byte* bytes) const { ::operator delete[](bytes, kAlignment); }
  };

  std::size_t room_bytes_;
  std::unique_ptr<std::byte[], Free> cells_;
};

namespace {

bool moves_nothing(const std::vector<SegmentRange>& plan) {
  return std::ranges::all_of(plan, [](const SegmentRange& range) { return range.base_offset == range.result_offset; });
}

}  // namespace

PatchApplier::PatchApplier(std::vector<SegmentRange> plan, FileTable table, ApplyStreams& streams, ApplyOptions options)
    : plan_(std::move(plan)),
      table_(std::move(table)),
      streams_(streams),
      options_(std::move(options)),
      follows_(options_.base_leaves && moves_nothing(plan_) &&
               options_.base_leaves->size() == leaf_count_of(table_.size_bytes())),
      digest_(follows_ ? SnapshotDigest(table_, *options_.base_leaves) : SnapshotDigest(table_)),
      states_(plan_.size(), State::kMissing),
      results_(plan_.size()),
      changes_(options_.list_bytes_max > 0 ? plan_.size() : 0) {}

PatchApplier::~PatchApplier() = default;

Status PatchApplier::apply(const Segment& segment) {
  const std::uint32_t index = segment.header.range.index;
  if (index >= plan_.size() || plan_[index] != segment.header.range) {
    return fail(Errc::kCorrupt, Op::kDecode, fmt::format("patch segment {}: the patch's head does not plan it", index));
  }
  std::unique_ptr<Window> window;
  {
    const std::lock_guard lock(mutex_);
    if (states_[index] != State::kMissing) {
      return fail(Errc::kAlreadyExists, Op::kDecode, fmt::format("patch segment {} was applied before", index));
    }
    states_[index] = State::kTaken;
    if (!idle_.empty()) {
      window = std::move(idle_.back());
      idle_.pop_back();
    }
  }
  if (!window) window = std::make_unique<Window>(options_);
  WC_TRY(make(segment, *window));
  const std::lock_guard lock(mutex_);
  idle_.push_back(std::move(window));
  states_[index] = State::kApplied;
  results_[index] = segment.header.result_digest;
  return {};
}

Status PatchApplier::make(const Segment& segment, Window& window) {
  const SegmentRange& range = segment.header.range;
  const auto new_leaves = [&] { return LeafChange(range.result_offset, range.result_offset + range.size_bytes); };
  std::optional<CellChanges> changes = begin_list(segment.header);
  LeafChange leaves = new_leaves();
  bool edits = range.base_offset == range.result_offset;
  Status made = make_cells(segment, edits, changes, leaves, window);
  if (!made.has_value() && std::exchange(edits, false)) {
    leaves = new_leaves();
    made = make_cells(segment, edits, changes, leaves, window);
  }
  WC_TRY(made);
  digest_.add(leaves);
  if (changes) {
    const std::lock_guard lock(mutex_);
    changes_[range.index] = std::move(changes);
  }
  return {};
}

Result<bool> PatchApplier::edit_listed(const Segment& segment, bool& edits, std::optional<CellChanges>& changes,
                                       LeafChange& leaves, Window& window) {
  const SegmentRange& range = segment.header.range;
  const bool is_listed = segment.header.mode == SegmentMode::kListed;
  Result<std::optional<MutableBytes>> found =
      streams_.edit_result(range, range.result_offset, range.size_bytes, window.scratch);
  edits = !found.has_value() || found->has_value();
  WC_TRY(found);
  if (!*found) return false;
  const MutableBytes cells = **found;
  CellChanges& steps = changes ? *changes : window.changes;
  steps.clear();
  if (is_listed) {
    const unsigned cell_bytes = geometry_of(range.kind).bytes;
    WC_TRY(window.listed.decode(segment, steps));
    window.old_values.resize(steps.values.size());
    std::byte* const old_values = window.old_values.data();
    const Checksum digest = apply_steps(range.kind, cells.data(), steps, old_values);
    if (digest != segment.header.result_digest) {
      steps.values.swap(window.old_values);
      write_changes(steps, cell_bytes, cells.data());
      return fail(Errc::kWrongBase, Op::kDecode,
                  fmt::format("patch segment {}: the base has other cells than it was made from", range.index));
    }
    leaves.replace(range.result_offset, cell_bytes, steps.cells, window.old_values, steps.values);
  }
  WC_TRY(streams_.commit_result(range.result_offset, cells));
  return true;
}

// Window by window: read, changed, summed and written while it is in the second-level cache.
Status PatchApplier::make_cells(const Segment& segment, bool& edits, std::optional<CellChanges>& changes,
                                LeafChange& leaves, Window& window) {
  const SegmentRange& range = segment.header.range;
  const std::uint64_t end = range.result_offset + range.size_bytes;
  const unsigned cell_bytes = geometry_of(range.kind).bytes;
  const bool may_edit = std::exchange(edits, false);
  const bool is_listed = segment.header.mode == SegmentMode::kListed || segment.header.mode == SegmentMode::kUnchanged;
  if (may_edit && is_listed && follows_) {
    WC_ASSIGN(const bool made, edit_listed(segment, edits, changes, leaves, window));
    if (made) return {};
  }
  WC_ASSIGN(SegmentDecoder decoder, SegmentDecoder::start(segment, *options_.kernels));
  if (changes) decoder.list_changes(*changes);
  // The leaves of the base have the old cells.
  const auto change_leaves = [&](std::uint64_t at, Bytes before, Bytes after) {
    if (follows_ && !before.empty()) leaves.remove(at, before);
    if (!after.empty()) leaves.add(at, after);
  };
  for (std::uint64_t at = range.result_offset; at < end;) {
    // As far as one write to a file should go, but whole cells and not beyond the end.
    const std::uint64_t in_file = offset_in_file(at);
    const std::uint64_t room =
        std::max<std::uint64_t>(options_.window_bytes - in_file % options_.window_bytes, cell_bytes);
    const auto size = static_cast<std::size_t>(std::min(room - room % cell_bytes, end - at));
    std::optional<MutableBytes> there;
    if (may_edit) {
      Result<std::optional<MutableBytes>> found = streams_.edit_result(range, at, size, window.scratch);
      edits = edits || !found.has_value() || found->has_value();
      WC_TRY(found);
      there = *found;
    }
    if (there) {
      change_leaves(at, *there, {});
      WC_TRY(decoder.next(*there, *there));
      change_leaves(at, {}, *there);
      WC_TRY(streams_.commit_result(at, *there));
      at += size;
      continue;
    }
    const MutableBytes after = window.cells(in_file, size), before = range.has_base() ? after : MutableBytes();
    if (!before.empty()) WC_TRY(streams_.read_base(range.base_offset + (at - range.result_offset), before));
    change_leaves(at, before, {});
    WC_TRY(decoder.next(before, after));
    change_leaves(at, {}, after);
    WC_TRY(streams_.write_result(at, after));
    at += size;
  }
  return decoder.finish();
}

std::optional<CellChanges> PatchApplier::begin_list(const SegmentHeader& header) {
  const bool stays = header.range.base_offset == header.range.result_offset;
  if (changes_.empty() || !stays || !SegmentDecoder::tells_changes(header.mode)) return std::nullopt;
  const std::uint64_t bytes =
      std::uint64_t{header.changed_cells} * (sizeof(std::uint32_t) + geometry_of(header.range.kind).bytes);
  const std::lock_guard lock(mutex_);
  if (bytes > options_.list_bytes_max - list_bytes_) return std::nullopt;
  list_bytes_ += bytes;
  return CellChanges();
}

std::vector<std::optional<CellChanges>> PatchApplier::take_changes() {
  const std::lock_guard lock(mutex_);
  return std::exchange(changes_, {});
}

std::uint64_t PatchApplier::offset_in_file(std::uint64_t offset) const {
  return table_.pieces(offset, 1).front().offset_bytes;
}

std::size_t PatchApplier::missing() const {
  const std::lock_guard lock(mutex_);
  return std::size_t(std::count_if(states_.begin(), states_.end(), [](State s) { return s != State::kApplied; }));
}

Result<Checksum> PatchApplier::finish(const PatchEnd& end) const {
  if (const std::size_t left = missing(); left > 0) {
    return fail(Errc::kCorrupt, Op::kDecode,
                fmt::format("{} of {} patch segments are missing; fetch them", left, plan_.size()));
  }
  WC_TRY(check_end(end, results_));
  return digest_.root();
}

}  // namespace weightcast
