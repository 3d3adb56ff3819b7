#include "patch/changes/list_changes.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <limits>

#include "patch/changes/change_names.h"
#include "patch/snapshot/safetensors.h"
#include "patch/snapshot/write_file.h"

namespace weightcast {
namespace {

using ReadStream = std::function<Status(std::uint64_t offset_bytes, MutableBytes out)>;

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
  std::uint64_t last = 0;  // index, where `count` is not 0
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
};

Result<TensorChanges> begin(const TensorInfo& tensor) {
  TensorChanges changes;
  changes.tensor = &tensor;
  const unsigned bits = dtype_bits(tensor.dtype);
  if (bits == 0 || bits % 8 != 0) {
    return fail(Errc::kTooFar, Op::kRead,
                fmt::format("tensor {}: elements of {} are not whole bytes; load it whole", quoted_name(tensor.name),
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

Result<std::vector<TensorChanges>> by_tensor(std::span<const SegmentRange> plan,
                                             std::span<const CellChanges* const> segments,
                                             std::span<const TensorInfo> tensors, const ReadStream& read) {
  std::vector<TensorChanges> all;
  auto tensor = tensors.begin();
  for (const SegmentRange& range : plan) {
    const CellChanges& changes = *segments[range.index];
    const std::size_t cell_bytes = geometry_of(range.kind).bytes;
    for (std::size_t i = 0; i < changes.cells.size(); ++i) {
      const std::uint64_t begin_bytes = range.result_offset + std::uint64_t{changes.cells[i]} * cell_bytes;
      const Bytes cell = Bytes(changes.values).subspan(i * cell_bytes, cell_bytes);
      while (tensor != tensors.end() && tensor->offset_bytes + tensor->size_bytes <= begin_bytes) ++tensor;
      // A cell of bytes without a dtype may hold the end of one tensor and the beginning of the next.
      for (auto held = tensor; held != tensors.end() && held->offset_bytes < begin_bytes + cell_bytes; ++held) {
        if (held->size_bytes == 0) continue;
        if (all.empty() || all.back().tensor != &*held) {
          WC_ASSIGN(TensorChanges begun, begin(*held));
          all.push_back(std::move(begun));
        }
        WC_TRY(add_cell(all.back(), begin_bytes, cell, read));
      }
    }
  }
  return all;
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
                                   std::span<const TensorInfo> tensors, const ReadStream& read, File& out) {
  WC_ASSIGN(const std::vector<TensorChanges> all, by_tensor(plan, segments, tensors, read));
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
    listed.elements += changes.count;
  }
  WC_ASSIGN(const SafetensorsLayout layout, lay_out_safetensors(infos));
  FileWriter writer(out, "the changes");
  WC_TRY(write_safetensors(writer, layout, data));
  listed.bytes = layout.file_bytes;
  return listed;
}

}  // namespace weightcast
