#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <variant>
#include <vector>

#include "base/digest/checksum.h"
#include "base/result.h"
#include "trainer/optimiser/huge_pages.h"

namespace weightcast {

/// The bits of a BF16 number: the upper half of an FP32 one.
using Bf16Bits = std::uint16_t;

enum class Bf16Rounding {
  kNearest,     ///< to nearest, ties to even
  kStochastic,  ///< up with the probability of the share that is cut off, from a seed
};

struct AdamWOptions {
  double beta1 = 0.9;
  double beta2 = 0.999;
  double epsilon = 1e-8;
  double grad_norm_max = 1.0;  ///< gradients of a greater global norm are scaled down to it; 0: never
  Bf16Rounding rounding = Bf16Rounding::kNearest;
  std::uint64_t rounding_seed = 0;
  unsigned threads_max = 1;
};

/// The weights of one tensor, in the caller's memory, which stays in place as long as the optimiser lives.
/// FP32: they are the master weights. BF16: the optimiser keeps FP32 master weights of its own, and these are their
/// rounded image, which is what is published.
struct AdamWParameter {
  std::variant<std::span<float>, std::span<Bf16Bits>> weights;
  double weight_decay = 0;
  /// Of a part of a tensor: the tensor's number, and the part's first cell. What stochastic rounding draws depends on
  /// them, so that parts come to the bits of the whole. Without a number: the parameter's own.
  std::optional<std::size_t> tensor = std::nullopt;
  std::size_t first = 0;
};

/// As many cells as the parameter has, or none: then the parameter and its moments stay as they are.
using GradientCells = std::variant<std::span<const float>, std::span<const Bf16Bits>>;

struct AdamWUpdate {
  bool applied = false;       ///< false: a gradient was not finite, and nothing has changed
  double grad_norm = 0;       ///< before clipping; NaN or infinite if a gradient was
  double gradient_scale = 1;  ///< what clipping multiplied the gradients by
};

struct AdamWCounters {
  std::uint64_t applied = 0;
  std::uint64_t skipped = 0;  ///< because a gradient was not finite
};

/// An update by gradients of this global norm, counted: not applied if the norm is not finite, scaled by clipping else.
[[nodiscard]] AdamWUpdate begin_update(const AdamWOptions& options, double grad_norm, AdamWCounters& counters);

/// Cells of one tensor in the form that wc_publish_sparse() takes: `index_bytes` is 4.
struct ChangedCells {
  std::vector<std::uint32_t> indices;  ///< ascending, each once
  std::vector<std::byte> values;       ///< as many cells of the weights' type
};

/// AdamW (Loshchilov and Hutter, 2019) as torch.optim.AdamW computes it, in one pass over the memory: update, rounding
/// to BF16, and the comparison that finds changed cells. The norm for clipping takes one more read of the gradients.
/// Moments below 1.2e-38, the least normal number, are 0. The result is bit-equal for any number of threads and on any
/// processor: kernels do not contract products and sums, and the norm's order of summation is fixed. Invariant: BF16
/// weights are the rounded master weights of the last update that touched them. One thread calls it; it starts up to
/// `threads_max` - 1 others during a call.
class AdamW {
 public:
  /// Errors: kInvalidArgument (an option out of range), kTooLarge (a tensor of 2^32 cells or more).
  [[nodiscard]] static Result<AdamW> make(const AdamWOptions& options, std::vector<AdamWParameter> parameters);

  /// The norm of the gradients is the root of the sum, in their order, of these: sums of squares over blocks of
  /// kBlockCells cells of each parameter. `gradients` as for update().
  static constexpr std::size_t kBlockCells = std::size_t{1} << 16;
  [[nodiscard]] Result<std::vector<double>> sums_of_squares(std::span<const GradientCells> gradients);

  /// One update at `learning_rate`. `gradients[i]` belongs to parameter i. `grad_norm` is that of all gradients, if
  /// these are a part of them. Errors: kInvalidArgument, with nothing
  /// changed: not one gradient per parameter, one of another length, a learning rate that is negative or not finite.
  [[nodiscard]] Result<AdamWUpdate> update(double learning_rate, std::span<const GradientCells> gradients,
                                           std::optional<double> grad_norm = std::nullopt);

  [[nodiscard]] AdamWCounters counters() const { return counters_; }

  /// The cells of parameter `index` whose bits an update has changed since the last call for it, with their values now.
  /// After a single update these are exactly the cells that differ. After several, a cell that has come back to its old
  /// value is among them.
  [[nodiscard]] ChangedCells take_changes(std::size_t index);

  /// A part of the state, for a checkpoint: whoever copies the bytes of all parts and the counters, and later writes
  /// them into an optimiser of the same parameters, goes on bit-equal. The weights themselves are the caller's.
  struct StatePart {
    enum class Kind { kMaster, kMoment1, kMoment2, kChanged };
    std::size_t parameter;
    Kind kind;           ///< kMaster only for BF16 weights; kChanged is one bit per cell, in words of 64
    MutableBytes bytes;  ///< the optimiser's own memory
  };
  [[nodiscard]] std::vector<StatePart> state();
  void restore_counters(const AdamWCounters& counters) { counters_ = counters; }

 private:
  struct Tensor {
    AdamWParameter parameter;
    HugePageVector<float> master;  // empty if the weights are FP32
    HugePageVector<float> moment1, moment2;
    std::vector<std::uint64_t> changed;
    [[nodiscard]] std::size_t cells() const { return moment1.size(); }
  };
  /// What one thread does at a time: the cells of `tensor` from `first` on.
  struct Block {
    std::size_t tensor;
    std::size_t first;
    std::size_t cells;
  };

  AdamW(const AdamWOptions& options, std::vector<AdamWParameter> parameters);
  [[nodiscard]] Status check(std::span<const GradientCells> gradients) const;
  void sum_blocks(std::span<const GradientCells> gradients);

  AdamWOptions options_;
  std::vector<Tensor> parameters_;
  std::vector<Block> blocks_;
  std::vector<double> block_sums_;
  AdamWCounters counters_;
};

}  // namespace weightcast
