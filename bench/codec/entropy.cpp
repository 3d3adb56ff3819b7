#include "bench/codec/entropy.h"

#include <array>
#include <bit>
#include <cmath>
#include <cstdlib>
#include <vector>

#include "base/result.h"
#include "bench/codec/cells.h"

namespace weightcast::bench {
namespace {

constexpr unsigned kClasses = 256;
constexpr std::uint64_t kExactSteps = 256;
constexpr unsigned kLengths = 34;  // bit lengths of |step|: two 32-bit ordinals differ by less than 2^33
constexpr std::size_t kSymbols = 2 * (kExactSteps + kLengths);

struct ClassCounts {
  std::uint64_t cells = 0;
  std::uint64_t changed = 0;
  std::uint64_t raw_bits = 0;  // the lower bits of long steps
  std::array<std::uint64_t, kSymbols> steps{};
};

void count_step(std::int64_t step, ClassCounts& counts) {
  const auto distance = static_cast<std::uint64_t>(std::llabs(step));
  std::size_t symbol = distance;
  if (distance >= kExactSteps) {
    const auto length = static_cast<unsigned>(std::bit_width(distance));
    symbol = kExactSteps + length - 1;
    counts.raw_bits += length - 1;
  }
  ++counts.steps[2 * symbol + (step < 0 ? 1 : 0)];
  ++counts.changed;
}

double term(std::uint64_t count, std::uint64_t total) {
  if (count == 0) return 0;
  return -static_cast<double>(count) * std::log2(static_cast<double>(count) / static_cast<double>(total));
}

void settle(std::vector<ClassCounts>& classes, PatchEntropy& entropy) {
  for (ClassCounts& counts : classes) {
    entropy.cells += counts.cells;
    entropy.changed += counts.changed;
    entropy.position_bits += term(counts.changed, counts.cells) + term(counts.cells - counts.changed, counts.cells);
    entropy.value_bits += static_cast<double>(counts.raw_bits);
    for (const std::uint64_t count : counts.steps) entropy.value_bits += term(count, counts.changed);
    counts = {};
  }
}

template <typename Cell>
void count_tensor(CellFormat format, const std::byte* base, const std::byte* result, std::size_t cells,
                  std::vector<ClassCounts>& classes) {
  for (std::size_t i = 0; i < cells; ++i) {
    const Cell before = load_cell<Cell>(base, i);
    const Cell after = load_cell<Cell>(result, i);
    ClassCounts& counts = classes[format.exponent_class(before)];
    ++counts.cells;
    if (before == after) continue;
    const std::int64_t origin = format.ordinal(before);
    const std::int64_t step = format.ordinal(after) - origin;
    count_step(origin < 0 ? -step : step, counts);
  }
}

}  // namespace

double PatchEntropy::bits_per_changed() const {
  return changed == 0 ? 0.0 : (position_bits + value_bits) / static_cast<double>(changed);
}

PatchEntropy measure_entropy(Bytes base, Bytes result, std::span<const TensorInfo> tensors, EntropyScope scope) {
  PatchEntropy entropy;
  std::vector<ClassCounts> classes(kClasses);
  std::string_view dtype;
  for (const TensorInfo& tensor : tensors) {
    WC_CHECK(tensor.offset_bytes + tensor.size_bytes <= base.size() && base.size() == result.size());
    // Exponents of different dtypes are different classes.
    if (scope == EntropyScope::kTensor || tensor.dtype != dtype) settle(classes, entropy);
    dtype = tensor.dtype;
    const CellFormat format = cell_format(dtype);
    with_cell_type(format.bytes, [&]<typename Cell>() {
      count_tensor<Cell>(format, base.data() + tensor.offset_bytes, result.data() + tensor.offset_bytes,
                         tensor.size_bytes / sizeof(Cell), classes);
    });
  }
  settle(classes, entropy);
  return entropy;
}

}  // namespace weightcast::bench
