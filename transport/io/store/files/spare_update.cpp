#include "transport/io/store/files/spare_update.h"

#include <algorithm>
#include <utility>

#include "patch/codec/cell.h"
#include "patch/codec/listed.h"

namespace weightcast {

std::vector<StepRef> steps_between(const std::deque<StepRef>& steps, Version from, Version to) {
  std::vector<StepRef> way;
  for (const StepRef& step : steps) {
    if (from == to) break;
    if (step->from != from) continue;
    way.push_back(step);
    from = step->to;
  }
  if (from != to) way.clear();
  return way;
}

StepRef step_of(const PatchIdentity& identity, std::vector<SegmentRange> plan,
                std::vector<std::optional<CellChanges>> segments) {
  auto step = std::make_shared<StepChanges>();
  step->from = identity.base_version;
  step->to = identity.version;
  step->from_digest = identity.base_digest;
  step->plan = std::move(plan);
  step->segments = std::move(segments);
  for (const auto& changes : step->segments) {
    if (changes) step->bytes += changes->cells.size() * sizeof(changes->cells[0]) + changes->values.size();
  }
  return step;
}

std::unique_ptr<SpareUpdate> SpareUpdate::open(VersionFiles& target, Version to, const std::vector<SegmentRange>& plan,
                                               std::vector<StepRef> steps) {
  const bool is_there = to != kNoVersion && target.old_version() == to;
  if (steps.empty() && !is_there) return nullptr;
  if (!std::ranges::all_of(steps, [&](const StepRef& step) { return step->plan == plan; })) return nullptr;
  return std::unique_ptr<SpareUpdate>(new SpareUpdate(target, std::move(steps)));
}

Result<std::optional<MutableBytes>> SpareUpdate::edit(const SegmentRange& range, std::uint64_t offset, std::size_t size,
                                                      std::vector<std::byte>& scratch) {
  const auto is_known = [&](const StepRef& step) { return step->segments[range.index].has_value(); };
  if (!std::ranges::all_of(steps_, is_known)) return std::optional<MutableBytes>();
  WC_ASSIGN(const MutableBytes window, edit_stream(target_, offset, size, scratch));
  const unsigned cell_bytes = geometry_of(range.kind).bytes;
  for (const StepRef& step : steps_) {
    const CellChanges& changes = *step->segments[range.index];
    if (size == range.size_bytes) {
      write_changes(changes, cell_bytes, window.data());
    } else {
      change_cells(changes, cell_bytes, (offset - range.result_offset) / cell_bytes, window);
    }
  }
  return std::optional(window);
}

Result<bool> SpareUpdate::write(const SegmentRange& range) {
  // Else the pages that nothing changes would be written out, too.
  const auto changes_nothing = [&](const StepRef& step) {
    const auto& changes = step->segments[range.index];
    return changes && changes->cells.empty();
  };
  if (std::ranges::all_of(steps_, changes_nothing)) return true;
  std::vector<std::byte> scratch;
  WC_ASSIGN(const std::optional<MutableBytes> cells, edit(range, range.result_offset, range.size_bytes, scratch));
  if (!cells) return false;
  WC_TRY(commit(range.result_offset, *cells));
  return true;
}

}  // namespace weightcast
