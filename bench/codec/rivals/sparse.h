#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <vector>

#include "bench/codec/cells.h"
#include "bench/codec/codec.h"
#include "bench/codec/rivals/streams.h"

// The frame that the sparse rivals share: u32 changed tensors, then for each u32 tensor, u32 changed cells, body.

namespace weightcast::bench {

/// The changed cells of one tensor, in order.
template <typename Cell>
struct Changes {
  std::vector<std::uint32_t> positions;
  std::vector<Cell> values;
};

/// Replaces `changes` by the cells in which `result` differs from `base`.
template <typename Cell>
void find_changes(Bytes base, Bytes result, Changes<Cell>& changes) {
  constexpr std::size_t kCellsPerWord = sizeof(std::uint64_t) / sizeof(Cell);
  changes.positions.clear();
  changes.values.clear();
  const std::size_t cells = base.size() / sizeof(Cell);
  const auto check = [&](std::size_t i) {
    const Cell value = load_cell<Cell>(result.data(), i);
    if (value == load_cell<Cell>(base.data(), i)) return;
    changes.positions.push_back(static_cast<std::uint32_t>(i));
    changes.values.push_back(value);
  };
  // Almost every word is equal, so whole words are compared and looked into only where they differ.
  std::size_t i = 0;
  for (; i + kCellsPerWord <= cells; i += kCellsPerWord) {
    const auto before = load_cell<std::uint64_t>(base.data() + i * sizeof(Cell), 0);
    const auto after = load_cell<std::uint64_t>(result.data() + i * sizeof(Cell), 0);
    if (before == after) continue;
    for (std::size_t lane = 0; lane < kCellsPerWord; ++lane) check(i + lane);
  }
  for (; i < cells; ++i) check(i);
}

[[nodiscard]] inline Error corrupt_patch() {
  return fail(Errc::kCorrupt, Op::kDecode, "patch: its contents contradict each other");
}

/// Encodes with `body.operator()<Cell>(tensor, base bytes of the tensor, changes, writer)`.
template <typename Body>
[[nodiscard]] std::vector<std::byte> write_sparse(Bytes base, Bytes result, std::span<const TensorInfo> tensors,
                                                  Body body) {
  ByteWriter writer;
  writer.put(std::uint32_t{0});
  std::uint32_t changed_tensors = 0;
  const auto write_tensors = [&]<typename Cell>(std::span<const TensorInfo> run, std::size_t first) {
    Changes<Cell> changes;
    for (std::size_t t = 0; t < run.size(); ++t) {
      const TensorInfo& tensor = run[t];
      const Bytes before = base.subspan(tensor.offset_bytes, tensor.size_bytes);
      find_changes(before, result.subspan(tensor.offset_bytes, tensor.size_bytes), changes);
      if (changes.positions.empty()) continue;
      ++changed_tensors;
      writer.put(static_cast<std::uint32_t>(first + t));
      writer.put(static_cast<std::uint32_t>(changes.positions.size()));
      body.template operator()<Cell>(tensor, before, changes, writer);
    }
  };
  // Runs of one cell width share their buffers.
  for (std::size_t first = 0; first < tensors.size();) {
    const unsigned cell_bytes = cell_bytes_of(tensors[first].dtype);
    std::size_t last = first + 1;
    while (last < tensors.size() && cell_bytes_of(tensors[last].dtype) == cell_bytes) ++last;
    with_cell_type(cell_bytes, [&]<typename Cell>() {
      write_tensors.template operator()<Cell>(tensors.subspan(first, last - first), first);
    });
    first = last;
  }
  std::memcpy(writer.bytes().data(), &changed_tensors, sizeof changed_tensors);
  return std::move(writer.bytes());
}

/// Decodes with `body.operator()<Cell>(tensor, base bytes of the tensor, changed cells, reader, target)`, which returns
/// a Status.
template <typename Body>
[[nodiscard]] Status read_sparse(Bytes patch, Bytes base, std::span<const TensorInfo> tensors, MutableBytes target,
                                 Body body) {
  ByteReader reader(patch);
  for (auto left = reader.get<std::uint32_t>(); left > 0; --left) {
    const auto t = reader.get<std::uint32_t>();
    const std::size_t changed = reader.get<std::uint32_t>();
    if (reader.failed() || t >= tensors.size()) return corrupt_patch();
    const TensorInfo& tensor = tensors[t];
    WC_TRY(with_cell_type(cell_bytes_of(tensor.dtype), [&]<typename Cell>() -> Status {
      if (changed > tensor.size_bytes / sizeof(Cell)) return corrupt_patch();
      return body.template operator()<Cell>(tensor, base.subspan(tensor.offset_bytes, tensor.size_bytes), changed,
                                            reader, target.subspan(tensor.offset_bytes, tensor.size_bytes));
    }));
  }
  if (reader.failed() || reader.left() != 0) return corrupt_patch();
  return {};
}

/// The most that a sparse rival's content can take for these tensors: a position and a value per byte, and headers.
[[nodiscard]] inline std::uint64_t sparse_bytes_max(std::span<const TensorInfo> tensors) {
  std::uint64_t bytes = 64;
  for (const TensorInfo& tensor : tensors) bytes += 12 * tensor.size_bytes + 8192;
  return bytes;
}

}  // namespace weightcast::bench
