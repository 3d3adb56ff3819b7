#include "worker/engine/resident_weights.h"

#include <fmt/format.h>
#include <sys/mman.h>

#include <algorithm>
#include <cstring>
#include <limits>

#include "patch/changes/differing_cells.h"
#include "patch/snapshot/finite.h"

namespace weightcast {
namespace {

// Tensors begin at whole lines of the cache.
constexpr std::uint64_t kAlignment = 64;
// So many bytes are compared before the list's length is looked at.
constexpr std::size_t kCompareBytes = 1 << 20;
// Above this share of changed cells a tensor is written whole: a list would take more memory.
constexpr std::uint64_t kListedShare = 4;

std::uint64_t aligned(std::uint64_t bytes) { return (bytes + kAlignment - 1) / kAlignment * kAlignment; }

std::size_t cell_bytes(const NamedTensor& tensor) { return tensor.dtype == "F32" ? 4 : 2; }

/// What compare() finds in one tensor. Without cells, `values` is the whole tensor.
struct FoundChanges {
  std::vector<std::uint32_t> cells;
  std::vector<std::byte> values;
};

FoundChanges changes_of(const NamedTensor& old_tensor, const NamedTensor& new_tensor) {
  FoundChanges changes;
  const std::size_t size = cell_bytes(old_tensor);
  const std::byte* const a = old_tensor.bytes.data();
  const std::byte* const b = new_tensor.bytes.data();
  const std::size_t bytes = old_tensor.bytes.size();
  const std::uint64_t cells = bytes / size;
  for (std::size_t first = 0; first < bytes; first += kCompareBytes) {
    const std::size_t count = std::min(kCompareBytes, bytes - first);
    if (cells <= std::numeric_limits<std::uint32_t>::max()) {
      append_differing_cells(old_tensor.bytes.subspan(first, count), new_tensor.bytes.subspan(first, count), size,
                             static_cast<std::uint32_t>(first / size), changes.cells);
      if (changes.cells.size() <= cells / kListedShare) continue;
    } else if (std::memcmp(a + first, b + first, count) == 0) {
      continue;
    }
    changes.cells.clear();
    changes.values.assign(b, b + bytes);
    return changes;
  }
  changes.values.resize(changes.cells.size() * size);
  for (std::size_t i = 0; i < changes.cells.size(); ++i) {
    std::memcpy(&changes.values[i * size], b + std::size_t{changes.cells[i]} * size, size);
  }
  return changes;
}

std::uint32_t cell_at(Bytes cells, std::size_t i) {
  std::uint32_t cell = 0;
  std::memcpy(&cell, &cells[i * sizeof cell], sizeof cell);
  return cell;
}

/// Of `count` cells, each greater than the one before, below `end`.
bool are_cells(Bytes cells, std::size_t count, std::uint64_t end) {
  for (std::size_t i = 1; i < count; ++i) {
    if (cell_at(cells, i) <= cell_at(cells, i - 1)) return false;
  }
  return count == 0 || cell_at(cells, count - 1) < end;
}

/// `width` is a constant for the compiler.
template <std::size_t width>
void write_cells(std::byte* to, const WeightChanges::Tensor& changed) {
  const std::size_t count = changed.cells.size() / sizeof(std::uint32_t);
  for (std::size_t i = 0; i < count; ++i) {
    std::memcpy(to + std::size_t{cell_at(changed.cells, i)} * width, &changed.values[i * width], width);
  }
}

}  // namespace

Result<std::unique_ptr<ResidentWeights>> ResidentWeights::read(ModelFiles files) {
  WC_ASSIGN(const MappedModel model, map_model(std::move(files)));
  std::unique_ptr<ResidentWeights> result(new ResidentWeights);
  result->config_ = model.config;
  std::uint64_t bytes = 0;
  for (const NamedTensor& tensor : model.tensors) bytes += aligned(tensor.bytes.size());
  void* const memory = ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (memory == MAP_FAILED) {
    return fail(Errc::kTooLarge, Op::kInstall, fmt::format("the weights: the system has no {} bytes", bytes));
  }
  static_cast<void>(::madvise(memory, bytes, MADV_HUGEPAGE));  // advice
  result->memory_.reset(static_cast<std::byte*>(memory), [bytes](std::byte* m) { ::munmap(m, bytes); });
  std::byte* place = result->memory_.get();
  for (const NamedTensor& tensor : model.tensors) {
    std::memcpy(place, tensor.bytes.data(), tensor.bytes.size());
    result->tensors_.push_back({tensor.name, tensor.dtype, {place, tensor.bytes.size()}});
    place += aligned(tensor.bytes.size());
  }
  WC_TRY(result->build());
  return result;
}

Status ResidentWeights::build() {
  WC_ASSIGN(weights_, EngineWeights::make(config_, tensors_, memory_));
  return {};
}

std::optional<std::size_t> ResidentWeights::find(std::string_view name, std::string_view dtype) const {
  const auto found = std::ranges::find(tensors_, name, &NamedTensor::name);
  if (found == tensors_.end() || found->dtype != dtype) return std::nullopt;
  return static_cast<std::size_t>(found - tensors_.begin());
}

Result<WeightChanges> ResidentWeights::compare(ModelFiles files) const {
  WC_ASSIGN(const MappedModel model, map_model(std::move(files)));
  WC_TRY(check_same_model(config_, model.config));
  WeightChanges changes;
  const auto arrays = std::make_shared<std::vector<FoundChanges>>();
  changes.owner = arrays;
  for (const NamedTensor& tensor : model.tensors) {
    const std::optional<std::size_t> index = find(tensor.name, tensor.dtype);
    if (!index || tensors_[*index].bytes.size() != tensor.bytes.size()) {
      return fail(Errc::kInvalidArgument, Op::kInstall,
                  fmt::format("tensor {}: it is not what the version in use has by that name; restart the worker",
                              quoted_name(tensor.name)));
    }
    FoundChanges changed = changes_of(tensors_[*index], tensor);
    if (changed.values.empty()) continue;
    changes.cells += changed.cells.empty() ? tensor.bytes.size() / cell_bytes(tensor) : changed.cells.size();
    changes.bytes += changed.values.size();
    // The arrays stay where they are when their vectors move.
    changes.tensors.push_back({*index, std::as_bytes(std::span(changed.cells)), changed.values});
    arrays->push_back(std::move(changed));
  }
  return changes;
}

Result<WeightChanges> ResidentWeights::take(const VersionList& list) const {
  WeightChanges changes;
  changes.owner = list.owner;
  for (const ListedTensor& listed : list.tensors) {
    const auto refuse = [&](Errc code, std::string_view why) {
      return fail(code, Op::kInstall, fmt::format("tensor {}: {}", quoted_name(listed.name), why));
    };
    const std::optional<std::size_t> index = find(listed.name, listed.dtype);
    if (!index) {
      return refuse(Errc::kInvalidArgument, "the version in use has none of that name and dtype; restart the worker");
    }
    if (listed.index_bytes != sizeof(std::uint32_t)) return refuse(Errc::kTooFar, "its list is too wide");
    const NamedTensor& tensor = tensors_[*index];
    const std::size_t size = cell_bytes(tensor), count = listed.indices.size() / sizeof(std::uint32_t);
    if (listed.values.size() != count * size || !are_cells(listed.indices, count, tensor.bytes.size() / size)) {
      return refuse(Errc::kInvalidArgument, "its list does not fit it");
    }
    if (const std::uint64_t wrong = count_non_finite(listed.dtype, listed.values); wrong != 0) {
      return refuse(Errc::kInvalidArgument, fmt::format("{} of its new elements are NaN or infinite", wrong));
    }
    if (count == 0) continue;
    changes.cells += count;
    changes.bytes += listed.values.size();
    changes.tensors.push_back({*index, listed.indices.first(count * sizeof(std::uint32_t)), listed.values});
  }
  return changes;
}

void ResidentWeights::apply(const WeightChanges& changes) {
  for (const WeightChanges::Tensor& changed : changes.tensors) {
    const NamedTensor& tensor = tensors_[changed.index];
    // The memory is ours; views of it are for reading.
    auto* const cells = const_cast<std::byte*>(tensor.bytes.data());
    if (changed.cells.empty()) {
      std::memcpy(cells, changed.values.data(), changed.values.size());
      continue;
    }
    if (cell_bytes(tensor) == 2) {
      write_cells<2>(cells, changed);
    } else {
      write_cells<4>(cells, changed);
    }
  }
  WC_CHECK(build().has_value());  // the same names and sizes as before
}

}  // namespace weightcast
