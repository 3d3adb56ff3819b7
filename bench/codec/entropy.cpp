#include "bench/codec/entropy.h"

#include <array>
#include <bit>
#include <cmath>
#include <vector>

#include "base/result.h"
#include "patch/codec/cell.h"

namespace weightcast::bench {
namespace {

constexpr unsigned kClasses = 256;
constexpr std::uint64_t kExactSteps = 256;
constexpr unsigned kLengths = 64;  // bit lengths of |step|
constexpr std::size_t kSymbols = 2 * (kExactSteps + kLengths);

struct ClassCounts {
  std::uint64_t cells = 0;
  std::uint64_t changed = 0;
  std::uint64_t raw_bits = 0;  // the lower bits of long steps
  std::array<std::uint64_t, kSymbols> steps{};
};

void count_step(std::int64_t step, ClassCounts& counts) {
  const std::uint64_t distance = step < 0 ? 0 - static_cast<std::uint64_t>(step) : static_cast<std::uint64_t>(step);
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

template <CellKind Kind>
void count_tensor(Bytes base, Bytes result, std::vector<ClassCounts>& classes) {
  using Ops = CellOps<Kind>;
  for (std::size_t at = 0; at + sizeof(typename Ops::Cell) <= base.size(); at += sizeof(typename Ops::Cell)) {
    const auto before = Ops::load(base.data() + at), after = Ops::load(result.data() + at);
    ClassCounts& counts = classes[Ops::key(before)];
    ++counts.cells;
    if (before != after) count_step(static_cast<typename Ops::SignedCell>(Ops::step(before, after)), counts);
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
    with_cell_kind(cell_kind_of(dtype), [&]<CellKind Kind>() {
      count_tensor<Kind>(base.subspan(tensor.offset_bytes, tensor.size_bytes),
                         result.subspan(tensor.offset_bytes, tensor.size_bytes), classes);
    });
  }
  settle(classes, entropy);
  return entropy;
}

}  // namespace weightcast::bench
