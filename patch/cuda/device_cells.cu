#include <cuda_runtime.h>

#include <limits>
#include <memory>
#include <string>

#include "patch/cuda/device_cells.h"

namespace weightcast {
namespace {

constexpr unsigned kThreads = 256;
// One block looks at this many cells, so that its changes can be put in order by their place alone.
constexpr unsigned kTileCells = 4096;
static_assert(kTileCells % kThreads == 0);

Error cuda_error(cudaError_t error, Op op, const char* what) {
  const Errc code = error == cudaErrorMemoryAllocation ? Errc::kNoSpace : Errc::kIo;
  return fail(code, op, std::string(what) + " on the CUDA device: " + cudaGetErrorString(error));
}

template <typename T>
struct DeviceFree {
  void operator()(T* memory) const { cudaFree(memory); }
};
template <typename T>
using DeviceArray = std::unique_ptr<T, DeviceFree<T>>;

template <typename T>
Result<DeviceArray<T>> allocate(std::size_t count) {
  void* memory = nullptr;
  if (const cudaError_t error = cudaMalloc(&memory, (count == 0 ? 1 : count) * sizeof(T)); error != cudaSuccess) {
    return cuda_error(error, Op::kRead, "allocation");
  }
  return DeviceArray<T>(static_cast<T*>(memory));
}

template <typename Cell>
__global__ void count_changes(const Cell* before, const Cell* after, std::size_t count, std::uint32_t* tile_changes) {
  const std::size_t begin = std::size_t{blockIdx.x} * kTileCells;
  unsigned changes = 0;
  for (unsigned i = threadIdx.x; i < kTileCells; i += kThreads) {
    const std::size_t cell = begin + i;
    // Every thread takes part in the vote, whether its cell exists or not.
    changes += unsigned(__syncthreads_count(cell < count && before[cell] != after[cell]));
  }
  if (threadIdx.x == 0) tile_changes[blockIdx.x] = changes;
}

// `tile_begins`: where each tile's changes go.
template <typename Cell>
__global__ void compact_changes(const Cell* before, const Cell* after, std::size_t count,
                                const std::uint32_t* tile_begins, std::uint32_t* indices, Cell* cells) {
  __shared__ unsigned warp_changes[kThreads / 32];
  const std::size_t begin = std::size_t{blockIdx.x} * kTileCells;
  const unsigned warp = threadIdx.x / 32, lane = threadIdx.x % 32;
  std::uint32_t place = tile_begins[blockIdx.x];
  for (unsigned i = threadIdx.x; i < kTileCells; i += kThreads) {
    const std::size_t cell = begin + i;
    const bool changed = cell < count && before[cell] != after[cell];
    const unsigned votes = __ballot_sync(0xffffffffu, changed);
    if (lane == 0) warp_changes[warp] = unsigned(__popc(votes));
    __syncthreads();
    unsigned earlier = 0, all = 0;
    for (unsigned w = 0; w < kThreads / 32; ++w) {
      if (w < warp) earlier += warp_changes[w];
      all += warp_changes[w];
    }
    if (changed) {
      const std::uint32_t at = place + earlier + unsigned(__popc(votes & ((1u << lane) - 1)));
      indices[at] = std::uint32_t(cell);
      cells[at] = after[cell];
    }
    place += all;
    __syncthreads();  // before the next round overwrites warp_changes
  }
}

template <typename Cell>
__global__ void write_changes(Cell* cells, const std::uint32_t* indices, const Cell* values, std::size_t count) {
  const std::size_t i = std::size_t{blockIdx.x} * kThreads + threadIdx.x;
  if (i < count) cells[indices[i]] = values[i];
}

template <typename Cell>
Result<DeviceChanges> find_changes(const Cell* before, const Cell* after, std::size_t count) {
  DeviceChanges changes;
  if (count == 0) return changes;
  const auto tiles = unsigned((count + kTileCells - 1) / kTileCells);
  WC_ASSIGN(const DeviceArray<std::uint32_t> tile_counts, allocate<std::uint32_t>(tiles));
  count_changes<<<tiles, kThreads>>>(before, after, count, tile_counts.get());
  std::vector<std::uint32_t> begins(tiles);
  cudaError_t error = cudaMemcpy(begins.data(), tile_counts.get(), tiles * sizeof begins[0], cudaMemcpyDeviceToHost);
  if (error != cudaSuccess) return cuda_error(error, Op::kRead, "comparison");
  // A prefix sum over one number per 4096 cells: not worth a kernel of its own.
  std::uint32_t total = 0;
  for (std::uint32_t& begin : begins) {
    const std::uint32_t tile = begin;
    begin = total;
    total += tile;
  }
  if (total == 0) return changes;
  WC_ASSIGN(const DeviceArray<std::uint32_t> indices, allocate<std::uint32_t>(total));
  WC_ASSIGN(const DeviceArray<Cell> cells, allocate<Cell>(total));
  error = cudaMemcpy(tile_counts.get(), begins.data(), tiles * sizeof begins[0], cudaMemcpyHostToDevice);
  if (error != cudaSuccess) return cuda_error(error, Op::kWrite, "offsets");
  compact_changes<<<tiles, kThreads>>>(before, after, count, tile_counts.get(), indices.get(), cells.get());
  changes.indices.resize(total);
  changes.cells.resize(std::size_t{total} * sizeof(Cell));
  error = cudaMemcpy(changes.indices.data(), indices.get(), total * sizeof(std::uint32_t), cudaMemcpyDeviceToHost);
  if (error == cudaSuccess)
    error = cudaMemcpy(changes.cells.data(), cells.get(), changes.cells.size(), cudaMemcpyDeviceToHost);
  if (error != cudaSuccess) return cuda_error(error, Op::kRead, "compaction");
  return changes;
}

template <typename Cell>
Status apply_changes(Cell* target, const DeviceChanges& changes) {
  const std::size_t count = changes.indices.size();
  WC_ASSIGN(const DeviceArray<std::uint32_t> indices, allocate<std::uint32_t>(count));
  WC_ASSIGN(const DeviceArray<Cell> cells, allocate<Cell>(count));
  cudaError_t error =
      cudaMemcpy(indices.get(), changes.indices.data(), count * sizeof(std::uint32_t), cudaMemcpyHostToDevice);
  if (error == cudaSuccess)
    error = cudaMemcpy(cells.get(), changes.cells.data(), changes.cells.size(), cudaMemcpyHostToDevice);
  if (error != cudaSuccess) return cuda_error(error, Op::kWrite, "copy of the changes");
  write_changes<<<unsigned((count + kThreads - 1) / kThreads), kThreads>>>(target, indices.get(), cells.get(), count);
  error = cudaDeviceSynchronize();
  if (error != cudaSuccess) return cuda_error(error, Op::kWrite, "apply");
  return {};
}

Error unknown_width() {
  return fail(Errc::kInvalidArgument, Op::kRead,
              "cells on the device are 1, 2, 4 or 8 bytes wide, fewer than 2^32 at a time");
}

}  // namespace

bool cuda_available() {
  int devices = 0;
  return cudaGetDeviceCount(&devices) == cudaSuccess && devices > 0;
}

Result<DeviceChanges> find_changes_on_device(const void* before, const void* after, std::size_t count,
                                             unsigned cell_bytes) {
  if (count > std::numeric_limits<std::uint32_t>::max()) return unknown_width();
  const auto find = [&]<typename Cell>(Cell) {
    return find_changes(static_cast<const Cell*>(before), static_cast<const Cell*>(after), count);
  };
  switch (cell_bytes) {
    case 1: return find(std::uint8_t{});
    case 2: return find(std::uint16_t{});
    case 4: return find(std::uint32_t{});
    case 8: return find(std::uint64_t{});
    default: return unknown_width();
  }
}

Status apply_changes_on_device(void* cells, std::size_t count, unsigned cell_bytes, const DeviceChanges& changes) {
  if (changes.cells.size() != changes.indices.size() * cell_bytes) {
    return fail(Errc::kInvalidArgument, Op::kWrite, "as many changed cells are needed as indices");
  }
  for (const std::uint32_t index : changes.indices) {
    if (index >= count) return fail(Errc::kInvalidArgument, Op::kWrite, "a changed cell lies beyond the last");
  }
  if (changes.indices.empty()) return {};
  const auto apply = [&]<typename Cell>(Cell) { return apply_changes(static_cast<Cell*>(cells), changes); };
  switch (cell_bytes) {
    case 1: return apply(std::uint8_t{});
    case 2: return apply(std::uint16_t{});
    case 4: return apply(std::uint32_t{});
    case 8: return apply(std::uint64_t{});
    default: return unknown_width();
  }
}

}  // namespace weightcast
