#include "patch/apply/patch_applier.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

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

/// Room for one window of old cells and one of new ones, or one for both.
class PatchApplier::Window {
 public:
  explicit Window(const ApplyOptions& options)
      // A cell may be longer than what is left of a window.
      : room_bytes_(kPageBytes + options.window_bytes + sizeof(std::uint64_t)),
        after_(new (kAlignment) std::byte[room_bytes_]),
        before_(options.keeps_before ? new (kAlignment) std::byte[room_bytes_] : nullptr) {}

  /// `size` bytes that stand at the same place in a page as they do in the file.
  [[nodiscard]] MutableBytes after(std::uint64_t in_file, std::size_t size) const {
    return {after_.get() + in_file % kPageBytes, size};
  }
  /// The same memory, unless old cells are kept.
  [[nodiscard]] MutableBytes before(std::uint64_t in_file, std::size_t size) const {
    return before_ ? MutableBytes(before_.get() + in_file % kPageBytes, size) : after(in_file, size);
  }
  std::vector<std::byte> scratch;  // for ApplyStreams::edit_result()

 private:
  // The kernel copies fast where source and target stand at the same place in their pages.
  static constexpr std::size_t kPageBytes = 4096;
  static constexpr std::align_val_t kAlignment{kPageBytes};
  struct Free {
    void operator()(std::byte* bytes) const { ::operator delete[](bytes, kAlignment); }
  };

  std::size_t room_bytes_;
  std::unique_ptr<std::byte[], Free> after_, before_;
};

PatchApplier::PatchApplier(std::vector<SegmentRange> plan, FileTable table, ApplyStreams& streams, ApplyOptions options)
    : plan_(std::move(plan)),
      table_(std::move(table)),
      streams_(streams),
      options_(options),
      leaves_(table_.size_bytes()),
      states_(plan_.size(), State::kMissing),
      results_(plan_.size()),
      digest_(table_),
      changes_(options.list_bytes_max > 0 ? plan_.size() : 0) {}

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
  const std::uint64_t end = range.result_offset + range.size_bytes;
  std::optional<ChecksumStream> leaf = options_.hashes ? leaves_.take(range.result_offset) : std::nullopt;
  const bool is_late = options_.hashes && !leaf;
  std::optional<CellChanges> changes = begin_list(segment.header);
  bool edits = range.base_offset == range.result_offset && !options_.keeps_before;
  Status made = make_cells(segment, edits, changes, leaf, window);
  if (!made.has_value() && std::exchange(edits, false)) {
    if (options_.hashes && !is_late) {
      WC_ASSIGN(leaf, hash_again(range.result_offset, window));
    } else {
      leaf.reset();
    }
    made = make_cells(segment, edits, changes, leaf, window);
  }
  WC_TRY(made);
  if (leaf) WC_TRY(go_on(end, std::move(*leaf), window));
  if (is_late) WC_TRY(catch_up(range.result_offset, std::min(end, leaf_end(range.result_offset)), window));
  if (changes) {
    const std::lock_guard lock(mutex_);
    changes_[range.index] = std::move(changes);
  }
  return {};
}

// Window by window: read, changed, hashed and written while it is in the second-level cache.
Status PatchApplier::make_cells(const Segment& segment, bool& edits, std::optional<CellChanges>& changes,
                                std::optional<ChecksumStream>& leaf, Window& window) {
  const SegmentRange& range = segment.header.range;
  const std::uint64_t end = range.result_offset + range.size_bytes;
  const unsigned cell_bytes = geometry_of(range.kind).bytes;
  WC_ASSIGN(SegmentDecoder decoder, SegmentDecoder::start(segment, *options_.kernels));
  if (changes) decoder.list_changes(*changes);
  const bool may_edit = std::exchange(edits, false);
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
      WC_TRY(decoder.next(*there, *there));
      if (options_.hashes) hash(at, *there, leaf);
      WC_TRY(streams_.commit_result(at, *there));
      at += size;
      continue;
    }
    const MutableBytes before = window.before(in_file, range.has_base() ? size : 0),
                       after = window.after(in_file, size);
    if (range.has_base()) WC_TRY(streams_.read_base(range.base_offset + (at - range.result_offset), before));
    WC_TRY(decoder.next(before, after));
    if (options_.hashes) hash(at, after, leaf);
    WC_TRY(streams_.write_result(at, options_.keeps_before ? Bytes(before) : Bytes(), after));
    at += size;
  }
  return decoder.finish();
}

Result<ChecksumStream> PatchApplier::hash_again(std::uint64_t offset, Window& window) {
  ChecksumStream leaf;
  for (std::uint64_t at = offset / kDigestBlockBytes * kDigestBlockBytes; at < offset;) {
    const MutableBytes bytes = window.after(0, std::min<std::uint64_t>(offset - at, options_.window_bytes));
    WC_TRY(streams_.read_result(at, bytes));
    leaf.update(bytes);
    at += bytes.size();
  }
  return leaf;
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

std::uint64_t PatchApplier::leaf_end(std::uint64_t offset) const {
  return std::min((offset / kDigestBlockBytes + 1) * kDigestBlockBytes, table_.size_bytes());
}

// Goes on with the leaf's digest by the bytes that stand at `offset`, and with the next leaf's. Nothing is to be done
// with a leaf of which the bytes before are not known.
void PatchApplier::hash(std::uint64_t offset, Bytes bytes, std::optional<ChecksumStream>& leaf) {
  while (!bytes.empty()) {
    if (offset % kDigestBlockBytes == 0) leaf.emplace();
    const Bytes part = bytes.first(std::min<std::uint64_t>(bytes.size(), leaf_end(offset) - offset));
    if (leaf) leaf->update(part);
    if (leaf && offset + part.size() == leaf_end(offset)) {
      const std::lock_guard lock(mutex_);
      digest_.set_leaf(offset / kDigestBlockBytes, leaf->digest());
      leaf.reset();
    }
    offset += part.size();
    bytes = bytes.subspan(part.size());
  }
}

// Goes on with the digest of a leaf that is hashed as far as `at`: by reading back what stands there already, because
// it was made before this was known, then by leaving it to whoever makes what follows.
Status PatchApplier::go_on(std::uint64_t at, ChecksumStream digest, Window& window) {
  for (std::optional<ChecksumStream> leaf = std::move(digest); leaf;) {
    std::uint64_t end = 0;
    {
      const std::lock_guard lock(mutex_);
      const auto found = unhashed_.extract(at);
      if (found.empty()) {
        leaves_.put(at, std::move(*leaf));
        return {};
      }
      end = found.mapped();
    }
    while (at < end) {
      const MutableBytes bytes = window.after(0, std::min<std::uint64_t>(end - at, options_.window_bytes));
      WC_TRY(streams_.read_result(at, bytes));
      hash(at, bytes, leaf);
      at += bytes.size();
    }
  }
  return {};
}

// [begin, end) of a leaf is written, but was not hashed, because what stands before it was not: now it is, or whoever
// makes it goes on.
Status PatchApplier::catch_up(std::uint64_t begin, std::uint64_t end, Window& window) {
  std::optional<ChecksumStream> leaf;
  {
    const std::lock_guard lock(mutex_);
    unhashed_.emplace(begin, end);
    leaf = leaves_.take(begin);
  }
  return leaf ? go_on(begin, std::move(*leaf), window) : Status();
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
  return options_.hashes ? digest_.root() : Checksum{};
}

}  // namespace weightcast
