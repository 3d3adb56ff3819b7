#include "patch/changes/change_file.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <limits>
#include <unordered_map>

#include "patch/codec/segment.h"
#include "patch/snapshot/finite.h"
#include "patch/snapshot/mapped_file.h"
#include "patch/snapshot/safetensors.h"

namespace weightcast {
namespace {

std::uint64_t load_index(const std::byte* at, std::uint64_t index_bytes) {
  std::uint64_t index = 0;
  if (index_bytes == sizeof(std::uint32_t)) {
    std::uint32_t narrow;
    std::memcpy(&narrow, at, sizeof narrow);
    index = narrow;
  } else {
    std::memcpy(&index, at, sizeof index);
  }
  return index;
}

/// The names of both files carry the tensor's own behind a prefix.
std::string_view name_behind(std::string_view prefix, const std::string& name) {
  return std::string_view(name).substr(prefix.size());
}

}  // namespace

Error ChangeFile::refuse(const TensorInfo& tensor, std::string_view why) const {
  return fail(Errc::kInvalidArgument, Op::kPublish,
              fmt::format("{}: tensor {}: {}", name_, quoted_name(tensor.name), why));
}

Status ChangeFile::pair(const TensorInfo& indices, const TensorInfo& values, const TensorInfo& tensor) {
  const std::uint64_t bits = dtype_bits(tensor.dtype);
  if (bits == 0 || bits % 8 != 0) {
    return refuse(tensor, fmt::format("elements of {} are not whole bytes; publish this version whole", tensor.dtype));
  }
  if (values.dtype != tensor.dtype) {
    return refuse(
        tensor, fmt::format("its values are of dtype {}, its elements of {}", quoted_name(values.dtype), tensor.dtype));
  }
  if (indices.dtype != "U32" && indices.dtype != "U64") {
    return refuse(tensor, fmt::format("its indices are of dtype {}; give U32 or U64", quoted_name(indices.dtype)));
  }
  Changed changed;
  changed.tensor = &tensor;
  changed.element_bytes = bits / 8;
  changed.elements = tensor.size_bytes / changed.element_bytes;
  changed.index_bytes = dtype_bits(indices.dtype) / 8;
  changed.count = indices.size_bytes / changed.index_bytes;
  changed.indices_at = indices.offset_bytes;
  changed.values_at = values.offset_bytes;
  if (indices.shape.size() != 1 || values.shape != indices.shape) {
    return refuse(tensor, fmt::format("{} values for {} indices; give two rows of one length",
                                      values.size_bytes / changed.element_bytes, changed.count));
  }
  if (changed.count > changed.elements) {
    return refuse(tensor,
                  fmt::format("{} changes of {} elements; give each index once", changed.count, changed.elements));
  }
  count_ += changed.count;
  value_bytes_ += changed.count * changed.element_bytes;
  if (changed.count > 0) changed_.push_back(changed);
  return {};
}

Result<ChangeFile> ChangeFile::open(FileRef file, std::uint64_t size_bytes, std::string name,
                                    std::span<const TensorInfo> tensors) {
  ChangeFile changes(std::move(file), size_bytes, std::move(name));
  WC_ASSIGN(const FileInfo info, changes.file_->info());
  if (size_bytes > info.size_bytes) {
    return fail(Errc::kInvalidArgument, Op::kPublish,
                fmt::format("{}: it has {} bytes, and {} are said to be the changes", changes.name_, info.size_bytes,
                            size_bytes));
  }
  std::vector<std::byte> prefix(std::min<std::uint64_t>(8, size_bytes));
  WC_TRY(changes.read_bytes(0, prefix));
  WC_ASSIGN(const std::uint64_t data_at, safetensors_data_offset(prefix, size_bytes, changes.name_));
  // The length again: it may have changed since.
  prefix.resize(data_at);
  WC_TRY(changes.read_bytes(8, MutableBytes(prefix).subspan(8)));
  WC_ASSIGN(const SafetensorsHeader header, parse_safetensors_header(prefix, size_bytes, changes.name_));

  std::unordered_map<std::string_view, const TensorInfo*> indices;
  std::vector<std::pair<std::string_view, const TensorInfo*>> values;
  for (const TensorInfo& tensor : header.tensors) {
    if (tensor.name.starts_with(kIndicesPrefix)) {
      indices.emplace(name_behind(kIndicesPrefix, tensor.name), &tensor);
    } else if (tensor.name.starts_with(kValuesPrefix)) {
      values.emplace_back(name_behind(kValuesPrefix, tensor.name), &tensor);
    } else {
      return changes.refuse(tensor, fmt::format("neither {}NAME nor {}NAME", kIndicesPrefix, kValuesPrefix));
    }
  }
  std::unordered_map<std::string_view, const TensorInfo*> by_name;
  for (const TensorInfo& tensor : tensors) by_name.emplace(tensor.name, &tensor);
  for (const auto& [tensor_name, given] : values) {
    const auto tensor = by_name.find(tensor_name);
    const auto found = indices.find(tensor_name);
    if (found == indices.end()) return changes.refuse(*given, "it has no indices");
    if (tensor == by_name.end()) {
      return changes.refuse(*given, "the version that is changed has no such tensor; publish this version whole");
    }
    WC_TRY(changes.pair(*found->second, *given, *tensor->second));
    indices.erase(found);
  }
  if (!indices.empty()) return changes.refuse(*indices.begin()->second, "it has no values");
  std::ranges::sort(changes.changed_, {}, [](const Changed& changed) { return changed.tensor->offset_bytes; });
  return changes;
}

Status ChangeFile::read_bytes(std::uint64_t offset, MutableBytes into) const {
  return read_source_file(*file_, offset, into, name_, size_bytes_);
}

Status ChangeFile::read(std::uint64_t offset, std::uint32_t size, unsigned cell_bytes, bool finite_only,
                        CellChanges& out) const {
  WC_CHECK(size <= kSegmentBytesMax);
  out.clear();
  const std::uint64_t end = offset + size;
  auto at = std::ranges::partition_point(changed_, [&](const Changed& changed) {
    return changed.tensor->offset_bytes + changed.tensor->size_bytes <= offset;
  });
  for (; at != changed_.end() && at->tensor->offset_bytes < end; ++at) {
    const std::uint64_t tensor_at = at->tensor->offset_bytes;
    const std::uint64_t from = std::max(offset, tensor_at) - tensor_at;
    const std::uint64_t to = std::min(end, tensor_at + at->tensor->size_bytes) - tensor_at;
    const std::uint64_t last = (to + at->element_bytes - 1) / at->element_bytes;
    WC_TRY(read_tensor(*at, from / at->element_bytes, last, offset, cell_bytes, finite_only, out));
    // Drop the cells beyond the range, of an element that it holds in part.
    while (!out.cells.empty() && std::uint64_t{out.cells.back()} * cell_bytes >= size) {
      out.cells.pop_back();
      out.values.resize(out.values.size() - cell_bytes);
    }
  }
  return {};
}

// Whatever the indices are, searches for the same element end at the same place, and those for a greater one not before
// it. So ranges of elements that adjoin see adjoining parts of the list, and together all of it: what is wrong with it
// is found in one of them.
Result<std::uint64_t> ChangeFile::count_before(const Changed& changed, std::uint64_t element) const {
  if (element == 0) return 0;
  if (element >= changed.elements) return changed.count;
  std::uint64_t low = 0, high = changed.count;
  while (low < high) {
    const std::uint64_t middle = low + (high - low) / 2;
    std::array<std::byte, 8> bytes{};
    WC_TRY(
        read_bytes(changed.indices_at + middle * changed.index_bytes, MutableBytes(bytes).first(changed.index_bytes)));
    if (load_index(bytes.data(), changed.index_bytes) < element) {
      low = middle + 1;
    } else {
      high = middle;
    }
  }
  return low;
}

// Elements [begin, end) of a tensor.
Status ChangeFile::read_tensor(const Changed& changed, std::uint64_t begin, std::uint64_t end, std::uint64_t offset,
                               unsigned cell_bytes, bool finite_only, CellChanges& out) const {
  const TensorInfo& tensor = *changed.tensor;
  WC_ASSIGN(const std::uint64_t first, count_before(changed, begin));
  WC_ASSIGN(const std::uint64_t last, count_before(changed, end));
  // It may be written to meanwhile.
  if (first >= last) return {};
  // Ascending indices of so many elements are no more than those. Checked here, so that others take no memory.
  if (last - first > end - begin) {
    return refuse(tensor, fmt::format("its indices do not ascend within those of elements {} to {}", begin, end));
  }
  const auto count = static_cast<std::size_t>(last - first);
  std::vector<std::byte> indices(count * changed.index_bytes);
  WC_TRY(read_bytes(changed.indices_at + first * changed.index_bytes, indices));
  const std::size_t values_begin = out.values.size();
  const auto value_bytes = static_cast<std::size_t>(count * changed.element_bytes);
  out.values.resize(values_begin + value_bytes);
  WC_TRY(read_bytes(changed.values_at + first * changed.element_bytes, MutableBytes(out.values).subspan(values_begin)));
  if (finite_only && count_non_finite(tensor.dtype, Bytes(out.values).subspan(values_begin)) > 0) {
    return refuse(tensor, "a new value is NaN or infinite; publish with WC_ALLOW_NONFINITE if that is meant");
  }

  const std::uint64_t cells = changed.element_bytes / cell_bytes;
  WC_CHECK(cells * cell_bytes == changed.element_bytes);
  // Those of the first element that stand before the range.
  std::size_t before = 0;
  std::uint64_t next = begin;
  out.cells.reserve(out.cells.size() + count * cells);
  for (std::size_t i = 0; i < count; ++i) {
    const std::uint64_t index = load_index(indices.data() + i * changed.index_bytes, changed.index_bytes);
    if (index >= changed.elements) {
      return refuse(tensor, fmt::format("index {} is not one of its {} elements", index, changed.elements));
    }
    if (index < next || index >= end) {
      return refuse(tensor, fmt::format("index {} stands where one from {} on is due; sort them, and give each once",
                                        index, next));
    }
    next = index + 1;
    const std::uint64_t place = tensor.offset_bytes + index * changed.element_bytes;
    for (std::uint64_t cell = 0; cell < cells; ++cell) {
      const std::uint64_t at = place + cell * cell_bytes;
      if (at < offset) {
        ++before;
      } else {
        out.cells.push_back(static_cast<std::uint32_t>((at - offset) / cell_bytes));
      }
    }
  }
  if (before > 0) {
    const auto from = out.values.begin() + static_cast<std::ptrdiff_t>(values_begin);
    out.values.erase(from, from + static_cast<std::ptrdiff_t>(before * cell_bytes));
  }
  return {};
}

}  // namespace weightcast
