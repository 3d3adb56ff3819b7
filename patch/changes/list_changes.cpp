#include "patch/changes/list_changes.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <limits>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>

#include "base/units.h"
#include "patch/changes/change_names.h"
#include "patch/changes/differing_cells.h"
#include "patch/snapshot/safetensors.h"
#include "patch/snapshot/write_file.h"

namespace weightcast {
namespace {

// What is read of a snapshot at a time.
constexpr std::uint64_t kReadBytes = 256 * kKiB;
// To read over a gap of that size takes less time than another read.
constexpr std::uint64_t kGapBytes = 4 * kKiB;

/// Merges two lists. Where both name a cell, the later value counts.
CellChanges fold_two(const CellChanges& earlier, const CellChanges& later, std::size_t cell_bytes) {
  CellChanges folded;
  folded.cells.reserve(earlier.cells.size() + later.cells.size());
  folded.values.reserve(earlier.values.size() + later.values.size());
  const auto take = [&](const CellChanges& from, std::size_t at) {
    folded.cells.push_back(from.cells[at]);
    const auto value = from.values.begin() + static_cast<std::ptrdiff_t>(at * cell_bytes);
    folded.values.insert(folded.values.end(), value, value + static_cast<std::ptrdiff_t>(cell_bytes));
  };
  std::size_t i = 0, j = 0;
  while (i < earlier.cells.size() || j < later.cells.size()) {
    const bool is_earlier = j == later.cells.size() || (i < earlier.cells.size() && earlier.cells[i] < later.cells[j]);
    if (is_earlier) {
      take(earlier, i++);
      continue;
    }
    if (i < earlier.cells.size() && earlier.cells[i] == later.cells[j]) ++i;
    take(later, j++);
  }
  return folded;
}

/// The changes of one tensor, as far as the cells have been read.
struct TensorChanges {
  const TensorInfo* tensor = nullptr;
  std::uint64_t element_bytes = 0;
  bool is_wide = false;            // of indices: some elements are beyond 32 bits
  std::vector<std::byte> indices;  // as in the file
  std::vector<std::byte> values;
  std::vector<std::byte> old;  // where they are wanted
  std::uint64_t last = 0;      // index, where `count` is not 0
  std::uint64_t count = 0;

  void add_index(std::uint64_t index) {
    const std::size_t width = is_wide ? sizeof(std::uint64_t) : sizeof(std::uint32_t);
    const std::size_t at = indices.size();
    indices.resize(at + width);
    if (is_wide) {
      std::memcpy(&indices[at], &index, width);
    } else {
      const auto narrow = static_cast<std::uint32_t>(index);
      std::memcpy(&indices[at], &narrow, width);
    }
    last = index;
    ++count;
  }
  /// Of elements that are cells: the element of cell 0 of the segment would be `origin`, which wraps below 0.
  void add_elements(std::span<const std::uint32_t> cells, std::uint64_t origin, Bytes cell_values) {
    const auto append = [&]<typename Index>(Index) {
      std::size_t at = indices.size();
      indices.resize(at + cells.size() * sizeof(Index));
      for (const std::uint32_t cell : cells) {
        const auto index = static_cast<Index>(cell + origin);
        std::memcpy(&indices[at], &index, sizeof index);
        at += sizeof index;
      }
    };
    if (is_wide) append(std::uint64_t{});
    if (!is_wide) append(std::uint32_t{});
    values.insert(values.end(), cell_values.begin(), cell_values.end());
    last = cells.back() + origin;
    count += cells.size();
  }
  [[nodiscard]] std::uint64_t index_at(std::uint64_t at) const {
    std::uint64_t wide = 0;
    std::uint32_t narrow = 0;
    if (is_wide) std::memcpy(&wide, &indices[at * sizeof wide], sizeof wide);
    if (!is_wide) std::memcpy(&narrow, &indices[at * sizeof narrow], sizeof narrow);
    return is_wide ? wide : narrow;
  }
  [[nodiscard]] std::uint64_t bytes() const { return indices.size() + values.size() + old.size(); }
};

Result<TensorChanges> begin(const TensorInfo& tensor) {
  TensorChanges changes;
  changes.tensor = &tensor;
  const unsigned bits = dtype_bits(tensor.dtype);
  if (bits == 0 || bits % 8 != 0) {
    return fail(Errc::kTooFar, Op::kRead,
                fmt::format("tensor {}: elements of {} are not whole bytes", quoted_name(tensor.name),
                            quoted_name(tensor.dtype)));
  }
  changes.element_bytes = bits / 8;
  changes.is_wide = tensor.size_bytes / changes.element_bytes > std::numeric_limits<std::uint32_t>::max();
  return changes;
}

/// Adds the elements that the cell at [begin, begin + cell.size()) of the stream holds, whole or in part.
Status add_cell(TensorChanges& changes, std::uint64_t begin, Bytes cell, const ReadStream& read) {
  const TensorInfo& tensor = *changes.tensor;
  const std::uint64_t width = changes.element_bytes;
  const std::uint64_t first = (std::max(begin, tensor.offset_bytes) - tensor.offset_bytes) / width;
  const std::uint64_t end = std::min(begin + cell.size(), tensor.offset_bytes + tensor.size_bytes);
  for (std::uint64_t index = first; tensor.offset_bytes + index * width < end; ++index) {
    if (changes.count > 0 && index <= changes.last) continue;  // of a cell before this one
    const std::uint64_t at = tensor.offset_bytes + index * width;
    changes.add_index(index);
    const std::size_t to = changes.values.size();
    changes.values.resize(to + width);
    if (at >= begin && at + width <= begin + cell.size()) {
      std::memcpy(&changes.values[to], cell.data() + (at - begin), width);
    } else {
      WC_TRY(read(at, MutableBytes(changes.values).subspan(to, width)));
    }
  }
  return {};
}

/// How many of the next cells of a segment, which are `cells` and begin at `begin_bytes` of the stream, are elements of
/// the tensor, each by itself.
std::size_t elements_among(const TensorChanges& changes, std::span<const std::uint32_t> cells,
                           std::uint64_t begin_bytes, std::uint64_t cell_bytes) {
  const TensorInfo& tensor = *changes.tensor;
  if (changes.element_bytes != cell_bytes || begin_bytes < tensor.offset_bytes) return 0;
  const std::uint64_t into = begin_bytes - tensor.offset_bytes;
  if (into % cell_bytes != 0) return 0;
  // A cell of another segment may have held the first of them.
  if (changes.count > 0 && into / cell_bytes <= changes.last) return 0;
  const std::uint64_t end = cells.front() + (tensor.size_bytes - into) / cell_bytes;
  return std::size_t(std::ranges::lower_bound(cells, end) - cells.begin());
}

Result<std::vector<TensorChanges>> by_tensor(std::span<const SegmentRange> plan,
                                             std::span<const CellChanges* const> segments,
                                             std::span<const TensorInfo> tensors, const ReadStream& read) {
  std::vector<TensorChanges> all;
  auto tensor = tensors.begin();
  for (const SegmentRange& range : plan) {
    const CellChanges& changes = *segments[range.index];
    const std::size_t cell_bytes = geometry_of(range.kind).bytes;
    for (std::size_t i = 0; i < changes.cells.size();) {
      const std::uint64_t begin_bytes = range.result_offset + std::uint64_t{changes.cells[i]} * cell_bytes;
      const Bytes cell = Bytes(changes.values).subspan(i * cell_bytes, cell_bytes);
      const auto cells = std::span<const std::uint32_t>(changes.cells).subspan(i++);
      while (tensor != tensors.end() && tensor->offset_bytes + tensor->size_bytes <= begin_bytes) ++tensor;
      // A cell of bytes without a dtype may hold the end of one tensor and the beginning of the next.
      for (auto held = tensor; held != tensors.end() && held->offset_bytes < begin_bytes + cell_bytes; ++held) {
        if (held->size_bytes == 0) continue;
        if (all.empty() || all.back().tensor != &*held) {
          WC_ASSIGN(TensorChanges begun, begin(*held));
          all.push_back(std::move(begun));
        }
        TensorChanges& found = all.back();
        if (const std::size_t whole = elements_among(found, cells, begin_bytes, cell_bytes); whole > 0) {
          const std::uint64_t first = (begin_bytes - held->offset_bytes) / cell_bytes;
          found.add_elements(cells.first(whole), first - cells.front(),
                             Bytes(changes.values).subspan((i - 1) * cell_bytes, whole * cell_bytes));
          i += whole - 1;
          break;
        }
        WC_TRY(add_cell(found, begin_bytes, cell, read));
      }
    }
  }
  return all;
}

Error too_far(std::string_view why) { return fail(Errc::kTooFar, Op::kRead, std::string(why)); }

/// Tensors of a snapshot by their names.
class BaseTensors {
 public:
  explicit BaseTensors(std::span<const TensorInfo> tensors) {
    for (const TensorInfo& tensor : tensors) by_name_.emplace(tensor.name, &tensor);
  }
  /// The one that `tensor` was. Errors: kTooFar (there is none, or it has another dtype or shape).
  [[nodiscard]] Result<const TensorInfo*> like(const TensorInfo& tensor) const {
    const auto found = by_name_.find(tensor.name);
    if (found != by_name_.end() && found->second->dtype == tensor.dtype && found->second->shape == tensor.shape) {
      return found->second;
    }
    return too_far(fmt::format("tensor {} was not there, or had another dtype or shape", quoted_name(tensor.name)));
  }

 private:
  std::unordered_map<std::string_view, const TensorInfo*> by_name_;
};

/// Reads what the listed elements were.
Status read_old(TensorChanges& changes, const TensorInfo& before, const ReadStream& read) {
  const std::uint64_t width = changes.element_bytes;
  changes.old.resize(changes.values.size());
  std::vector<std::byte> window(kReadBytes);
  for (std::uint64_t at = 0; at < changes.count;) {
    // As many as one read gives.
    const std::uint64_t first = changes.index_at(at);
    std::uint64_t end = at + 1, last = first;
    for (; end < changes.count; ++end) {
      const std::uint64_t next = changes.index_at(end);
      if ((next - last) * width > kGapBytes || (next - first + 1) * width > kReadBytes) break;
      last = next;
    }
    const auto bytes = MutableBytes(window).first((last - first + 1) * width);
    WC_TRY(read(before.offset_bytes + first * width, bytes));
    for (; at < end; ++at) {
      std::memcpy(&changes.old[at * width], &bytes[(changes.index_at(at) - first) * width], width);
    }
  }
  return {};
}

/// The elements of a tensor that differ from what they were. Errors: kTooFar (they take more than `bytes_max`).
Result<TensorChanges> compare_tensor(const TensorInfo& tensor, const ReadStream& read, const TensorInfo& before,
                                     const ReadStream& read_base, const CompareOptions& options,
                                     std::uint64_t bytes_max) {
  // An element lies in one window; that is a multiple of each width.
  std::vector<std::byte> now(std::min(kReadBytes, tensor.size_bytes)), then(now.size());
  std::vector<std::uint32_t> cells;
  TensorChanges changes;
  for (std::uint64_t at = 0; at < tensor.size_bytes; at += now.size()) {
    if (options.go_on) WC_TRY(options.go_on());
    const std::size_t size = std::min<std::uint64_t>(now.size(), tensor.size_bytes - at);
    WC_TRY(read(tensor.offset_bytes + at, MutableBytes(now).first(size)));
    WC_TRY(read_base(before.offset_bytes + at, MutableBytes(then).first(size)));
    if (std::memcmp(now.data(), then.data(), size) == 0) continue;
    if (changes.tensor == nullptr) {
      WC_ASSIGN(changes, begin(tensor));
    }
    const std::uint64_t width = changes.element_bytes;
    cells.clear();
    append_differing_cells(Bytes(then).first(size), Bytes(now).first(size), width, 0, cells);
    for (const std::uint32_t cell : cells) changes.add_index(at / width + cell);
    const auto add = [&](std::vector<std::byte>& to, const std::vector<std::byte>& from) {
      const std::size_t had = to.size();
      to.resize(had + cells.size() * width);
      for (std::size_t i = 0; i < cells.size(); ++i) {
        std::memcpy(&to[had + i * width], &from[cells[i] * width], width);
      }
    };
    add(changes.values, now);
    if (options.old_values) add(changes.old, then);
    if (changes.bytes() > bytes_max) return too_far("the changes take too large a part of it");
  }
  return changes;
}

Result<ListedChanges> write_changes(std::span<const TensorChanges> all, File& out) {
  ListedChanges listed;
  std::vector<TensorInfo> infos;
  std::vector<Bytes> data;
  for (const TensorChanges& changes : all) {
    const auto add = [&](std::string_view prefix, std::string dtype, Bytes bytes) {
      TensorInfo& info = infos.emplace_back();
      info.name.append(prefix).append(changes.tensor->name);
      info.dtype = std::move(dtype);
      info.shape = {changes.count};
      info.size_bytes = bytes.size();
      data.push_back(bytes);
    };
    add(kIndicesPrefix, changes.is_wide ? "U64" : "U32", changes.indices);
    add(kValuesPrefix, changes.tensor->dtype, changes.values);
    if (!changes.old.empty()) add(kOldPrefix, changes.tensor->dtype, changes.old);
    listed.elements += changes.count;
  }
  WC_ASSIGN(const SafetensorsLayout layout, lay_out_safetensors(infos));
  FileWriter writer(out, "the changes");
  WC_TRY(write_safetensors(writer, layout, data));
  listed.bytes = layout.file_bytes;
  return listed;
}

}  // namespace

const CellChanges& fold_changes(std::span<const CellChanges* const> steps, std::size_t cell_bytes,
                                CellChanges& folded) {
  folded = {};
  const CellChanges* all = &folded;
  for (const CellChanges* step : steps) {
    if (step->cells.empty()) continue;
    if (all->cells.empty()) {
      all = step;
    } else {
      folded = fold_two(*all, *step, cell_bytes);
      all = &folded;
    }
  }
  return *all;
}

Result<ListedChanges> list_changes(std::span<const SegmentRange> plan, std::span<const CellChanges* const> segments,
                                   std::span<const TensorInfo> tensors, const ReadStream& read, const ChangesBase* base,
                                   File& out) {
  WC_ASSIGN(std::vector<TensorChanges> all, by_tensor(plan, segments, tensors, read));
  if (base != nullptr) {
    const BaseTensors known(base->tensors);
    for (TensorChanges& changes : all) {
      WC_ASSIGN(const TensorInfo* const before, known.like(*changes.tensor));
      WC_TRY(read_old(changes, *before, base->read));
    }
  }
  return write_changes(all, out);
}

Result<ListedChanges> compare_changes(std::span<const TensorInfo> tensors, const ReadStream& read,
                                      const ChangesBase& base, const CompareOptions& options, File& out) {
  const BaseTensors known(base.tensors);
  if (tensors.size() != base.tensors.size()) return too_far("the snapshots have other tensors");
  std::vector<TensorChanges> all;
  std::uint64_t bytes_left = options.bytes_max;
  for (const TensorInfo& tensor : tensors) {
    WC_ASSIGN(const TensorInfo* const before, known.like(tensor));
    WC_ASSIGN(TensorChanges changes, compare_tensor(tensor, read, *before, base.read, options, bytes_left));
    bytes_left -= changes.bytes();
    if (changes.count > 0) all.push_back(std::move(changes));
  }
  return write_changes(all, out);
}

}  // namespace weightcast
