#include <immintrin.h>

#include <bit>

#include "patch/kernels/loops.h"

namespace weightcast {
namespace {

// AVX-512 F and BW, and only where they are faster: comparisons give masks. Weighing is AVX2's: at twice the width it
// has two ports where AVX2 has three, and was measured to be no faster. Widths without code here take the scalar loop.

__m512i load(const std::byte* at) { return _mm512_loadu_si512(at); }

template <unsigned CellBytes>
std::uint32_t diff_block(const std::byte* before, const std::byte* after) {
  if constexpr (CellBytes == 2) {
    return _mm512_cmpneq_epi16_mask(load(before), load(after));
  } else {
    return std::uint32_t(_mm512_cmpneq_epi32_mask(load(before), load(after))) |
           std::uint32_t(_mm512_cmpneq_epi32_mask(load(before + 64), load(after + 64))) << 16;
  }
}

template <unsigned CellBytes>
std::size_t diff_chunk(const std::byte* before, const std::byte* after, std::size_t count, ChangedCells& out) {
  const std::size_t blocks = count / kBlockCells;
  std::size_t changed = 0;
  for (std::size_t b = 0; b < blocks; ++b) {
    const std::size_t offset = b * kBlockCells * CellBytes;
    for (std::uint32_t mask = diff_block<CellBytes>(before + offset, after + offset); mask != 0; mask &= mask - 1) {
      out[changed++] = std::uint16_t(b * kBlockCells + std::size_t(std::countr_zero(mask)));
    }
  }
  return changed + diff_cells<CellBytes>(before, after, blocks * kBlockCells, count, out.data() + changed);
}

std::size_t diff(unsigned cell_bytes, const std::byte* before, const std::byte* after, std::size_t count,
                 ChangedCells& out) {
  switch (cell_bytes) {
    case 1: return diff_cells<1>(before, after, 0, count, out.data());
    case 2: return diff_chunk<2>(before, after, count, out);
    case 4: return diff_chunk<4>(before, after, count, out);
    default: return diff_cells<8>(before, after, 0, count, out.data());
  }
}

}  // namespace

const Kernels* avx512_kernels() {
  static const Kernels* const avx2 = avx2_kernels();
  if (avx2 == nullptr || !__builtin_cpu_supports("avx512f") || !__builtin_cpu_supports("avx512bw")) return nullptr;
  static const Kernels kernels{"avx512", avx2->weigh, diff};
  return &kernels;
}

}  // namespace weightcast
