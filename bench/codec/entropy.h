#pragma once

#include <cstdint>
#include <span>

#include "base/digest/checksum.h"
#include "patch/snapshot/tensor.h"

namespace weightcast::bench {

/// What a patch must cost a coder that knows, for each exponent of the old cell, how likely such a cell changes and by
/// how many representable numbers it then moves, and that takes cells as independent given that. Positions: the binary
/// entropy of "changed" in each class, over all its cells. Values: the entropy in each class, over its changed cells,
/// of the signed step: how many representable numbers the cell moved away from zero (negative: towards it), which
/// counts least because both ends know the old sign. The model's own parameters are not counted.
struct PatchEntropy {
  std::uint64_t cells = 0;
  std::uint64_t changed = 0;
  double position_bits = 0;
  double value_bits = 0;

  /// Zero when nothing changed.
  [[nodiscard]] double bits_per_changed() const;
};

enum class EntropyScope {
  kSnapshot,  ///< one model for the whole snapshot: the figure that the bench calls entropy
  kTensor,    ///< a model for each tensor: what a coder can gain from tensors that behave differently
};

/// Steps of up to 255 are told apart; longer ones are counted by sign and bit length, their lower bits as
/// incompressible (exact for BF16 in practice; for F32, where almost every step is long and unique, the only count that
/// means anything). `base` and `result` are as long as the tensors say; cells of other dtypes than floats are of one
/// class.
[[nodiscard]] PatchEntropy measure_entropy(Bytes base, Bytes result, std::span<const TensorInfo> tensors,
                                           EntropyScope scope);

}  // namespace weightcast::bench
