#include "patch/changes/change_file.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <cstring>
#include <limits>
#include <optional>
#include <string>
#include <unordered_map>
#include <utility>

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

/// That `index` is none of `elements`, as the caller wrote it: a negative one has come as a large one of the same bits.
std::string not_an_element(std::uint64_t index, std::uint64_t index_bytes, std::uint64_t elements) {
  const auto whole = static_cast<std::int64_t>(index);
  if (whole < 0) return fmt::format("index {} is not one of its {} elements", whole, elements);
  const auto narrow = static_cast<std::int32_t>(static_cast<std::uint32_t>(index));
  return fmt::format("index {} is not one of its {} elements{}", index, elements,
                     index_bytes == sizeof narrow && narrow < 0 ? fmt::format("; as int32 it is {}", narrow) : "");
}

using PieceSide = ChangeFile::PieceSide;

/// Absent where the box is not one of that shape.
std::optional<std::vector<PieceSide>> sides_of(const Box& box, const std::vector<std::uint64_t>& shape) {
  std::vector<PieceSide> sides;
  if (box.empty()) {
    std::uint64_t elements = 1;
    for (const std::uint64_t length : shape) elements *= length;
    sides.push_back({0, elements, elements});
    return sides;
  }
  if (box.size() != shape.size()) return std::nullopt;
  for (std::size_t i = 0; i < box.size(); ++i) {
    const auto& [start, length] = box[i];
    if (length > shape[i] || start > shape[i] - length) return std::nullopt;
    // A dimension that is there in full only makes the one before it longer.
    if (i > 0 && length == shape[i]) {
      PieceSide& outer = sides.back();
      outer = {outer.start * length, outer.length * length, outer.whole * length};
    } else {
      sides.push_back({start, length, shape[i]});
    }
  }
  return sides;
}

/// The element of the tensor that element `inside` of a piece is.
std::uint64_t element_of(std::span<const PieceSide> sides, std::uint64_t inside) {
  std::uint64_t element = 0, stride = 1;
  for (std::size_t i = sides.size(); i-- > 0;) {
    element += (sides[i].start + inside % sides[i].length) * stride;
    inside /= sides[i].length;
    stride *= sides[i].whole;
  }
  return element;
}

/// How many elements of a piece come before `element` of its tensor. Both count row-major, so they have one order.
std::uint64_t inside_before(std::span<const PieceSide> sides, std::uint64_t element) {
  std::uint64_t stride = 1, volume = 1;
  for (const PieceSide& side : sides) stride *= side.whole, volume *= side.length;
  if (element >= stride) return volume;
  std::uint64_t before = 0;
  for (const PieceSide& side : sides) {
    stride /= side.whole;
    volume /= side.length;
    const std::uint64_t at = element / stride;
    element %= stride;
    if (at < side.start) return before;
    if (at >= side.start + side.length) return before + side.length * volume;
    before += (at - side.start) * volume;
  }
  return before;
}

struct ByPlace {
  std::uint32_t cell;
  std::uint32_t from;  // where it stands in the lists that are merged
};

/// Makes one list of several, of which each ascends: list i begins at begins[i] of `changes`. Absent: two of them have
/// the same cell, which is given.
std::optional<std::uint32_t> merge(std::span<const std::size_t> begins, unsigned cell_bytes, CellChanges& changes) {
  std::vector<std::uint32_t>& cells = changes.cells;
  bool ascends = true;
  for (const std::size_t at : begins.subspan(1)) ascends = ascends && cells[at - 1] < cells[at];
  if (ascends) return std::nullopt;
  std::vector<ByPlace> places(cells.size());
  for (std::size_t i = 0; i < cells.size(); ++i) places[i] = {cells[i], static_cast<std::uint32_t>(i)};
  const auto bound = [&](std::size_t list) {
    return places.begin() + static_cast<std::ptrdiff_t>(list < begins.size() ? begins[list] : places.size());
  };
  for (std::size_t width = 1; width < begins.size(); width *= 2) {
    for (std::size_t list = 0; list + width < begins.size(); list += 2 * width) {
      std::inplace_merge(bound(list), bound(list + width), bound(list + 2 * width),
                         [](const ByPlace& a, const ByPlace& b) { return a.cell < b.cell; });
    }
  }
  std::vector<std::byte> values(changes.values.size());
  for (std::size_t i = 0; i < places.size(); ++i) {
    if (i > 0 && places[i].cell == cells[i - 1]) return places[i].cell;
    cells[i] = places[i].cell;
    std::memcpy(values.data() + i * cell_bytes, changes.values.data() + std::size_t{places[i].from} * cell_bytes,
                cell_bytes);
  }
  changes.values.swap(values);
  return std::nullopt;
}

}  // namespace

Error ChangeFile::refuse(const TensorInfo& tensor, std::string_view why) const { return refuse(tensor.name, why); }

Error ChangeFile::refuse(std::string_view tensor, std::string_view why) const {
  return fail(Errc::kInvalidArgument, Op::kPublish, fmt::format("{}: tensor {}: {}", name_, quoted_name(tensor), why));
}

Status ChangeFile::pair(const TensorInfo& indices, const TensorInfo& values, const TensorInfo& tensor, const Box& box) {
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
  std::optional<std::vector<PieceSide>> sides = sides_of(box, tensor.shape);
  if (!sides) return refuse(tensor, fmt::format("{} is no piece of it", quoted_name(values.name)));
  changed.sides = *std::move(sides);
  changed.elements = 1;
  for (const PieceSide& side : changed.sides) changed.elements *= side.length;
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

  std::unordered_map<std::string, const TensorInfo*> indices;
  std::vector<std::pair<ChangeName, const TensorInfo*>> values;
  for (const TensorInfo& tensor : header.tensors) {
    if (const auto of_indices = parse_change_name(kIndicesPrefix, tensor.name)) {
      indices.emplace(change_name(kValuesPrefix, of_indices->box, of_indices->tensor), &tensor);
    } else if (auto of_values = parse_change_name(kValuesPrefix, tensor.name)) {
      values.emplace_back(*std::move(of_values), &tensor);
    } else {
      return changes.refuse(tensor, fmt::format("neither {}NAME nor {}NAME", kIndicesPrefix, kValuesPrefix));
    }
  }
  std::unordered_map<std::string_view, const TensorInfo*> by_name;
  for (const TensorInfo& tensor : tensors) by_name.emplace(tensor.name, &tensor);
  for (const auto& [is_of, given] : values) {
    const auto tensor = by_name.find(is_of.tensor);
    const auto found = indices.find(change_name(kValuesPrefix, is_of.box, is_of.tensor));
    if (found == indices.end()) return changes.refuse(*given, "it has no indices");
    if (tensor == by_name.end()) {
      return changes.refuse(is_of.tensor, "the version that is changed has no such tensor; publish this version whole");
    }
    WC_TRY(changes.pair(*found->second, *given, *tensor->second, is_of.box));
    indices.erase(found);
  }
  if (!indices.empty()) return changes.refuse(*indices.begin()->second, "it has no values");
  std::ranges::sort(changes.changed_, {}, [](const Changed& changed) {
    return std::pair(changed.tensor->offset_bytes, element_of(changed.sides, 0));
  });
  WC_TRY(changes.check_counts());
  return changes;
}

// So that pieces which overlap take no more memory than those which do not.
Status ChangeFile::check_counts() const {
  std::uint64_t count = 0;
  const TensorInfo* tensor = nullptr;
  for (const Changed& changed : changed_) {
    if (std::exchange(tensor, changed.tensor) != changed.tensor) count = 0;
    count += changed.count;
    if (count * changed.element_bytes > tensor->size_bytes) {
      return refuse(*tensor, "its pieces have more changes than it has elements; give pieces that do not overlap");
    }
  }
  return {};
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
  CellChanges merged;
  std::vector<std::size_t> begins;
  while (at != changed_.end() && at->tensor->offset_bytes < end) {
    const TensorInfo& tensor = *at->tensor;
    begins.clear();
    // Straight into `out` where the tensor has one list, as it mostly has.
    const bool is_alone = std::next(at) == changed_.end() || std::next(at)->tensor != &tensor;
    CellChanges& into = is_alone ? out : merged;
    merged.clear();
    for (; at != changed_.end() && at->tensor == &tensor; ++at) {
      const std::size_t before = into.cells.size();
      WC_TRY(read_piece(*at, offset, size, cell_bytes, finite_only, into));
      if (into.cells.size() > before) begins.push_back(before);
    }
    if (is_alone || begins.empty()) continue;
    if (const auto twice = merge(begins, cell_bytes, merged)) {
      return refuse(tensor, fmt::format("two pieces change element {}; give pieces that do not overlap",
                                        (offset + std::uint64_t{*twice} * cell_bytes - tensor.offset_bytes) /
                                            (dtype_bits(tensor.dtype) / 8)));
    }
    out.cells.insert(out.cells.end(), merged.cells.begin(), merged.cells.end());
    out.values.insert(out.values.end(), merged.values.begin(), merged.values.end());
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

// Appends the changes of one piece that lie in the range.
Status ChangeFile::read_piece(const Changed& changed, std::uint64_t offset, std::uint32_t size, unsigned cell_bytes,
                              bool finite_only, CellChanges& out) const {
  const TensorInfo& tensor = *changed.tensor;
  const std::uint64_t from = std::max(offset, tensor.offset_bytes) - tensor.offset_bytes;
  const std::uint64_t to = std::min(offset + size, tensor.offset_bytes + tensor.size_bytes) - tensor.offset_bytes;
  // Elements of the piece, whose first and last one the range may hold in part.
  const std::uint64_t begin = inside_before(changed.sides, from / changed.element_bytes);
  const std::uint64_t end = inside_before(changed.sides, (to + changed.element_bytes - 1) / changed.element_bytes);
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
  // Elements of the piece up to `row_end` stand as far from their place in the tensor as the one at hand.
  const std::uint64_t row = changed.sides.back().length;
  std::uint64_t row_end = 0, shift = 0;
  out.cells.reserve(out.cells.size() + count * cells);
  for (std::size_t i = 0; i < count; ++i) {
    const std::uint64_t index = load_index(indices.data() + i * changed.index_bytes, changed.index_bytes);
    if (index >= changed.elements) {
      return refuse(tensor, not_an_element(index, changed.index_bytes, changed.elements));
    }
    if (index < next || index >= end) {
      return refuse(tensor, fmt::format("index {} stands where one from {} on is due; sort them, and give each once",
                                        index, next));
    }
    next = index + 1;
    if (index >= row_end) {
      row_end = (index / row + 1) * row;
      shift = element_of(changed.sides, index) - index;
    }
    const std::uint64_t place = tensor.offset_bytes + (index + shift) * changed.element_bytes;
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
    const auto first_value = out.values.begin() + static_cast<std::ptrdiff_t>(values_begin);
    out.values.erase(first_value, first_value + static_cast<std::ptrdiff_t>(before * cell_bytes));
  }
  // Drop the cells beyond the range, of an element that it holds in part.
  while (!out.cells.empty() && std::uint64_t{out.cells.back()} * cell_bytes >= size) {
    out.cells.pop_back();
    out.values.resize(out.values.size() - cell_bytes);
  }
  return {};
}

}  // namespace weightcast
