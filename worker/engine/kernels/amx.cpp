// Products with BF16 weights by AMX, the processor's unit for matrices. All else is AVX-512's.

#include <immintrin.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "worker/engine/kernels/kernels.h"

namespace weightcast::kernels {
namespace {

// A tile has 16 rows of 64 bytes: 32 numbers of BF16, or 16 of FP32.
constexpr std::size_t kRows = 16;
constexpr std::size_t kDepth = 32;
constexpr std::size_t kTileCells = kRows * kDepth;

struct alignas(64) TileConfig {
  std::uint8_t palette = 1;
  std::uint8_t start_row = 0;
  std::uint8_t reserved[14] = {};
  std::uint16_t row_bytes[16] = {64, 64, 64, 64, 64, 64, 64, 64};
  std::uint8_t rows[16] = {16, 16, 16, 16, 16, 16, 16, 16};
};

/// Memory that grows, for one thread.
struct Scratch {
  std::uint16_t* cells = nullptr;
  std::size_t count = 0;
  std::uint16_t* of(std::size_t wanted) {
    if (wanted > count) {
      __builtin_free(cells);
      count = wanted;
      cells = static_cast<std::uint16_t*>(::aligned_alloc(64, (wanted * 2 + 63) / 64 * 64));
      if (cells == nullptr) __builtin_trap();
    }
    return cells;
  }
  ~Scratch() { __builtin_free(cells); }
};

inline std::uint16_t nearest(float value) {
  const std::uint32_t bits = __builtin_bit_cast(std::uint32_t, value);
  if ((bits & 0x7fffffff) > 0x7f800000) return static_cast<std::uint16_t>(bits >> 16 | 0x40);
  return static_cast<std::uint16_t>((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
}

inline float wide(std::uint16_t bits) { return __builtin_bit_cast(float, static_cast<std::uint32_t>(bits) << 16); }

/// Rows of FP32 as sums of two numbers of BF16, which keeps 16 bits of each. Tile t of 16 rows has, for each 32 inputs,
/// a tile of the greater parts and then one of the lesser: [pair of inputs][row][2].
void split(const LinearTask& task, std::uint16_t* out) {
  const std::size_t tiles = (task.rows + kRows - 1) / kRows;
  __builtin_memset(out, 0, tiles * task.size / kDepth * 2 * kTileCells * 2);
  for (std::size_t row = 0; row < task.rows; ++row) {
    const float* const x = task.x + row * task.x_stride;
    std::uint16_t* const tile = out + row / kRows * (task.size / kDepth) * 2 * kTileCells;
    for (std::size_t k = 0; k < task.size; ++k) {
      const std::uint16_t high = nearest(x[k]);
      std::uint16_t* const cell =
          tile + k / kDepth * 2 * kTileCells + k % kDepth / 2 * kDepth + row % kRows * 2 + k % 2;
      cell[0] = high;
      cell[kTileCells] = nearest(x[k] - wide(high));
    }
  }
}

void add_bias_and_place(const LinearTask& task, const float* sums, std::size_t row, std::size_t rows,
                        std::size_t output, std::size_t outputs) {
  for (std::size_t i = 0; i < rows; ++i) {
    float* const y = task.y + (row + i) * task.y_stride + output;
    for (std::size_t j = 0; j < outputs; ++j) {
      y[j] = sums[j * kRows + i] + (task.bias == nullptr ? 0.0F : task.bias[output + j]);
    }
  }
}

/// 32 outputs and 32 rows: the two halves of each share what is loaded. `b1` may be `b0`, if there are no more rows.
inline void multiply(const std::uint16_t* a0, const std::uint16_t* a1, std::size_t stride, const std::uint16_t* b0,
                     const std::uint16_t* b1, std::size_t size, const std::uint16_t* next, float (*sums)[256]) {
  _tile_zero(0);
  _tile_zero(1);
  _tile_zero(2);
  _tile_zero(3);
  for (std::size_t k = 0; k < size; k += kDepth) {
    _tile_loadd(4, a0 + k, static_cast<long>(stride * 2));
    _tile_loadd(5, a1 + k, static_cast<long>(stride * 2));
    if (next != nullptr) {
      for (std::size_t row = 0; row < 2 * kRows; ++row) _mm_prefetch(next + row * stride + k, _MM_HINT_T1);
    }
    for (int part = 0; part < 2; ++part) {
      _tile_loadd(6, b0, 64);
      _tile_dpbf16ps(0, 4, 6);
      _tile_dpbf16ps(2, 5, 6);
      if (b1 != b0) {
        _tile_loadd(7, b1, 64);
        _tile_dpbf16ps(1, 4, 7);
        _tile_dpbf16ps(3, 5, 7);
      }
      b0 += kTileCells;
      b1 += kTileCells;
    }
  }
  _tile_stored(0, sums[0], 64);
  _tile_stored(1, sums[1], 64);
  _tile_stored(2, sums[2], 64);
  _tile_stored(3, sums[3], 64);
}

void linear_bfloat16(const LinearTask& task) {
  // The matrix alone decides, so that rows and shares of it are computed alike.
  if (task.size % kDepth != 0) return avx512().linear_bfloat16(task);
  const TileConfig config;
  // Each time: other code of this thread may use tiles, too.
  _tile_loadconfig(&config);
  static thread_local Scratch x_scratch;
  static thread_local Scratch weight_scratch;
  const std::size_t row_tiles = (task.rows + kRows - 1) / kRows;
  const std::size_t tile_cells = task.size / kDepth * 2 * kTileCells;
  std::uint16_t* const x = x_scratch.of(row_tiles * tile_cells);
  split(task, x);
  alignas(64) float sums[4][256];
  const auto* const weights = static_cast<const std::uint16_t*>(task.weight);
  for (std::size_t output = task.output_begin; output < task.output_end; output += 2 * kRows) {
    const std::size_t left = task.output_end - output;
    const std::uint16_t* a = weights + output * task.weight_stride;
    std::size_t stride = task.weight_stride;
    if (left < 2 * kRows) {
      // Tiles are loaded whole, and behind the last row nothing may be read.
      std::uint16_t* const padded = weight_scratch.of(2 * kRows * task.size);
      __builtin_memset(padded, 0, 2 * kRows * task.size * 2);
      for (std::size_t i = 0; i < left; ++i) {
        __builtin_memcpy(padded + i * task.size, a + i * stride, task.size * 2);
      }
      a = padded;
      stride = task.size;
    }
    const std::uint16_t* const next = left >= 4 * kRows ? a + 2 * kRows * stride : nullptr;
    for (std::size_t tile = 0; tile < row_tiles; tile += 2) {
      const std::uint16_t* const b0 = x + tile * tile_cells;
      const std::uint16_t* const b1 = tile + 1 < row_tiles ? b0 + tile_cells : b0;
      multiply(a, a + kRows * stride, stride, b0, b1, task.size, tile == 0 ? next : nullptr, sums);
      for (std::size_t half = 0; half < (b1 == b0 ? 1 : 2); ++half) {
        const std::size_t row = (tile + half) * kRows;
        const std::size_t rows = task.rows - row < kRows ? task.rows - row : kRows;
        add_bias_and_place(task, sums[half], row, rows, output, left < kRows ? left : kRows);
        if (left > kRows) {
          add_bias_and_place(task, sums[2 + half], row, rows, output + kRows, left < 2 * kRows ? left - kRows : kRows);
        }
      }
    }
  }
  _tile_release();
}

}  // namespace

bool allow_amx() {
  constexpr long kRequestPermission = 0x1023;  // ARCH_REQ_XCOMP_PERM
  constexpr long kTileData = 18;
  return ::syscall(SYS_arch_prctl, kRequestPermission, kTileData) == 0;
}

const Kernels& amx() {
  static const Kernels kKernels = [] {
    Kernels kernels = avx512();
    kernels.name = "amx";
    kernels.linear_bfloat16 = linear_bfloat16;
    return kernels;
  }();
  return kKernels;
}

}  // namespace weightcast::kernels
