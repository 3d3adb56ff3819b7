#include "bench/codec/packed_content.h"

#include <algorithm>
#include <array>
#include <cmath>

#include "base/parallel.h"
#include "bench/codec/trace.h"

namespace weightcast::bench {
namespace {

constexpr std::uint64_t kRowCells = 2048;
constexpr std::uint64_t kTensorRows = 2048;
constexpr float kWeightSd = 0.02f;
// Of 4 Mi normal draws one may be as far out.
constexpr float kFarthestSd = 6.5f;
constexpr float kF8Max = 448.0f;
constexpr float kGradientSd = 0x1p-19f;
// Of a first moment, over the gradients': sqrt((1 - beta1) / (1 + beta1)) with beta1 = 0.9.
constexpr float kFirstMomentSd = 0.23f;

constexpr std::array<PackedContentSpec, 4> kContents = {{
    {"bf16", CellKind::kBf16},
    {"f16", CellKind::kF16},
    {"f8", CellKind::kF8E4M3},
    {"moments", CellKind::kF32},
}};

/// Within a power of two of 1, as logarithms are uniform.
float scale_of(std::uint64_t key, std::uint64_t index, float binades) {
  return std::exp2(binades * std::clamp(normal_draw(key, index) / 2, -1.0f, 1.0f));
}

}  // namespace

std::span<const PackedContentSpec> packed_contents() { return kContents; }

std::vector<std::byte> make_packed_content(const PackedContentSpec& spec, std::uint64_t bytes, std::uint64_t seed,
                                           unsigned threads) {
  const std::uint64_t row_bytes = kRowCells * geometry_of(spec.kind).bytes;
  const std::uint64_t rows = std::max<std::uint64_t>(1, bytes / row_bytes);
  std::vector<std::byte> content(rows * row_bytes);
  const std::uint64_t tensor_key = seed * 4, row_key = seed * 4 + 1, cell_key = seed * 4 + 2;
  for_each_index(rows, threads, [&](std::size_t row) {
    std::byte* cells = content.data() + row * row_bytes;
    const std::uint64_t tensor = row / kTensorRows;
    const float tensor_sd = kWeightSd * scale_of(tensor_key, tensor, 2.0f);
    const float sd = tensor_sd * scale_of(row_key, row, 0.3f);
    const float gradient_sd = kGradientSd * scale_of(tensor_key, tensor, 3.0f) * scale_of(row_key, row, 3.0f);
    for (std::uint64_t i = 0; i < kRowCells; ++i) {
      const float normal = normal_draw(cell_key, row * kRowCells + i);
      float value = sd * normal;
      if (spec.kind == CellKind::kF8E4M3) value *= kF8Max / (kFarthestSd * tensor_sd);
      if (spec.kind == CellKind::kF32) {
        value = tensor % 2 == 0 ? gradient_sd * kFirstMomentSd * normal
                                : gradient_sd * gradient_sd * (0.25f + 0.75f * normal * normal);
      }
      store_float(spec.kind, cells, i, value);
    }
  });
  return content;
}

}  // namespace weightcast::bench
