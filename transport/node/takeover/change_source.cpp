#include "transport/node/takeover/change_source.h"

#include <algorithm>
#include <cstring>
#include <optional>
#include <utility>

#include "patch/changes/change_file.h"
#include "patch/changes/differing_cells.h"
#include "patch/codec/cell.h"
#include "patch/codec/listed.h"
#include "patch/snapshot/finite.h"

namespace weightcast {
namespace {

// Both windows stay in the second-level cache from the first look to the last. A multiple of all cells.
constexpr std::size_t kWindowBytes = 64 * kKiB;

// Beyond it another form of the patch is shorter than a list, and parts of what is taken over can be sent meanwhile.
constexpr double kComparedShareMax = 0.125;

template <std::size_t Width>
std::size_t first_equal(Bytes values, Bytes old_values) {
  std::size_t at = 0;
  while (at < values.size() && std::memcmp(values.data() + at, old_values.data() + at, Width) != 0) at += Width;
  return at / Width;
}

/// Keeps those of the changes that differ from the old values.
void drop_equal(CellChanges& changes, std::vector<std::byte>& old_values, std::size_t width) {
  std::size_t kept =
      with_cell_bytes(width, [&]<unsigned CellBytes>() { return first_equal<CellBytes>(changes.values, old_values); });
  for (std::size_t i = kept; i < changes.cells.size(); ++i) {
    std::byte* const value = changes.values.data() + i * width;
    if (std::equal(value, value + width, old_values.data() + i * width)) continue;
    changes.cells[kept] = changes.cells[i];
    std::copy_n(value, width, changes.values.data() + kept * width);
    std::copy_n(old_values.data() + i * width, width, old_values.data() + kept * width);
    ++kept;
  }
  changes.cells.resize(kept);
  changes.values.resize(kept * width);
  old_values.resize(kept * width);
}

class ListedChanges final : public ChangeSource {
 public:
  ListedChanges(FileRef file, std::uint64_t bytes, bool finite_only)
      : file_(std::move(file)), bytes_(bytes), finite_only_(finite_only) {}

  Status open(const SnapshotSource& base) override {
    WC_ASSIGN(changes_, ChangeFile::open(file_, bytes_, "the changes", base.tensors()));
    return {};
  }
  [[nodiscard]] std::uint64_t changed_bytes_max() const override { return changes_->value_bytes(); }
  Status apply(const SegmentRange& range, MutableBytes cells, FoundChanges& found) override {
    const unsigned width = geometry_of(range.kind).bytes;
    CellChanges& changes = found.changes;
    WC_TRY(changes_->read(range.result_offset, range.size_bytes, width, finite_only_, changes));
    found.old_values.resize(changes.values.size());
    const bool all_differ =
        exchange_cells(changes.cells, width, changes.values.data(), cells.data(), found.old_values.data());
    if (!all_differ) drop_equal(changes, found.old_values, width);
    return {};
  }
  Status finish(const LeafSums&) override { return {}; }

 private:
  const FileRef file_;
  const std::uint64_t bytes_;
  const bool finite_only_;
  std::optional<ChangeFile> changes_;
};

class ComparedSnapshot final : public ChangeSource {
 public:
  ComparedSnapshot(std::shared_ptr<const PublishedSnapshot> snapshot, bool finite_only)
      : snapshot_(std::move(snapshot)),
        header_bytes_(snapshot_->source.tensors().empty() ? snapshot_->source.size_bytes()
                                                          : snapshot_->source.tensors().front().offset_bytes),
        digest_(snapshot_->source.file_table()) {
    if (finite_only) scan_.emplace(snapshot_->source);
  }

  Status open(const SnapshotSource&) override {
    if (!snapshot_->is_region) return {};
    // Memory whose size is sealed: no access to it can fail.
    WC_ASSIGN(mapped_, snapshot_->source.mapping(0));
    return {};
  }
  [[nodiscard]] std::uint64_t changed_bytes_max() const override {
    return static_cast<std::uint64_t>(snapshot_->changed_share.value_or(1.0) * double(snapshot_->source.size_bytes()));
  }

  // The trainer's memory may be written to meanwhile, which nobody should do: then the sums tell, or the new cells are
  // a mixture that somebody has published.
  Status apply(const SegmentRange& range, MutableBytes cells, FoundChanges& found) override {
    const unsigned width = geometry_of(range.kind).bytes;
    bool all_differ = true;
    found.changes.clear();
    found.old_values.clear();
    LeafChange leaves(range.result_offset, range.result_offset + range.size_bytes);
    for (std::size_t at = 0; at < range.size_bytes; at += kWindowBytes) {
      const std::uint64_t offset = range.result_offset + at;
      WC_ASSIGN(const Bytes now, window_at(offset, std::min(kWindowBytes, range.size_bytes - at), found.window));
      if (scan_) WC_TRY(scan_->scan(offset, now));
      leaves.add(offset, now);
      const MutableBytes window = cells.subspan(at, now.size());
      all_differ = take_over(window, now, width, static_cast<std::uint32_t>(at / width), found) && all_differ;
    }
    if (!all_differ) drop_equal(found.changes, found.old_values, width);
    digest_.add(leaves);
    return {};
  }

  Status finish(const LeafSums& leaves) override {
    WC_TRY(snapshot_->source.check_unchanged());
    if (scan_) WC_TRY(check_finite(*scan_, *snapshot_));
    if (leaves == digest_.leaves()) return {};
    return fail(Errc::kCorrupt, Op::kPublish, "what it was compared with has not the digest that it should have");
  }

 private:
  Result<Bytes> window_at(std::uint64_t offset, std::size_t size, std::vector<std::byte>& scratch) const {
    // The header is what was checked, whatever stands there now.
    const bool is_mapped = offset >= header_bytes_ && offset + size <= mapped_.size();
    if (is_mapped) return mapped_.subspan(offset, size);
    scratch.resize(size);
    WC_TRY(snapshot_->source.read_at(offset, scratch));
    return Bytes(scratch);
  }

  /// Turns a window, whose first cell is cell `first` of the range, into `now`, and appends what differed. Returns
  /// whether all of that still did when it was read a second time.
  static bool take_over(MutableBytes window, Bytes now, unsigned width, std::uint32_t first, FoundChanges& found) {
    std::vector<std::uint32_t>& differing = found.window_cells;
    differing.clear();
    append_differing_cells(window, now, width, 0, differing);
    CellChanges& changes = found.changes;
    const std::size_t known_bytes = changes.values.size(), bytes = known_bytes + differing.size() * width;
    changes.values.resize(bytes);
    found.old_values.resize(bytes);
    std::byte* const values = changes.values.data() + known_bytes;
    read_cells(differing, width, now.data(), values);
    for (const std::uint32_t cell : differing) changes.cells.push_back(first + cell);
    return exchange_cells(differing, width, values, window.data(), found.old_values.data() + known_bytes);
  }

  const std::shared_ptr<const PublishedSnapshot> snapshot_;
  const std::uint64_t header_bytes_;
  Bytes mapped_;           // the region; empty of files
  SnapshotDigest digest_;  // of what was given
  std::optional<NonFiniteScan> scan_;
};

}  // namespace

std::unique_ptr<ChangeSource> listed_changes(FileRef file, std::uint64_t bytes, bool finite_only) {
  return std::make_unique<ListedChanges>(std::move(file), bytes, finite_only);
}

std::unique_ptr<ChangeSource> compared_snapshot(std::shared_ptr<const PublishedSnapshot> snapshot, bool finite_only) {
  return std::make_unique<ComparedSnapshot>(std::move(snapshot), finite_only);
}

bool is_worth_comparing(const PublishedSnapshot& snapshot) {
  if (!snapshot.changed_share || *snapshot.changed_share > kComparedShareMax) return false;
  // A listed change takes about as much as the cell.
  return *snapshot.changed_share * double(snapshot.source.size_bytes()) < double(kListedPatchBytesMax);
}

}  // namespace weightcast
