#include "transport/io/store/spare_update.h"

#include <algorithm>
#include <utility>

#include "patch/codec/cell.h"
#include "patch/codec/listed.h"

namespace weightcast {
namespace {

// All of them stay open.
constexpr std::size_t kSpareFilesMax = 256;

}  // namespace

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

std::unique_ptr<SpareUpdate> SpareUpdate::open(VersionFiles& target, Version base,
                                               const std::vector<SegmentRange>& plan, std::vector<StepRef> steps) {
  const std::vector<SnapshotFile>& files = target.table().files();
  const bool holds_base = base != kNoVersion && target.old_version() == base;
  if ((steps.empty() && !holds_base) || files.size() > kSpareFilesMax) return nullptr;
  if (!std::ranges::all_of(steps, [&](const StepRef& step) { return step->plan == plan; })) return nullptr;
  std::unique_ptr<SpareUpdate> update(new SpareUpdate(target.table(), std::move(steps)));
  for (std::size_t i = 0; i < files.size(); ++i) {
    const Result<FileEditor*> editor = target.editor(i);
    if (!editor.has_value()) return nullptr;
    update->editors_.push_back(*editor);
  }
  return update;
}

Result<std::optional<MutableBytes>> SpareUpdate::edit(const SegmentRange& range, std::uint64_t offset, std::size_t size,
                                                      std::vector<std::byte>& scratch) {
  const auto is_known = [&](const StepRef& step) { return step->segments[range.index].has_value(); };
  if (!std::ranges::all_of(steps_, is_known)) return std::optional<MutableBytes>();
  const std::vector<FilePiece> pieces = table_.pieces(offset, size);
  if (pieces.size() != 1) return std::optional<MutableBytes>();
  WC_ASSIGN(const MutableBytes window, editors_[pieces[0].file]->edit(pieces[0].offset_bytes, size, scratch));
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

Status SpareUpdate::commit(std::uint64_t offset, Bytes cells) {
  const FilePiece piece = table_.pieces(offset, cells.size()).front();
  return editors_[piece.file]->commit(piece.offset_bytes, cells);
}

}  // namespace weightcast
