#pragma once

#include <torch/types.h>

#include <cstddef>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "base/result.h"
#include "trainer/optimiser/adamw.h"

namespace weightcast {

/// Cells of a tensor that learn: FP32 or BF16, flat and contiguous, in the caller's memory, which stays in place.
struct LearningCells {
  torch::Tensor cells;
  double weight_decay = 0;
  std::size_t tensor = 0;  ///< the number of the whole tensor, and the first of these cells in it: as AdamWParameter
  std::size_t first = 0;
};

/// AdamW over LibTorch's tensors, whichever device has them: AdamW's rules and state, so that a checkpoint of one is a
/// checkpoint of the other. One thread.
class TensorOptimiser {
 public:
  using State = AdamW::StatePart::Kind;

  virtual ~TensorOptimiser() = default;
  /// One update. `gradients[i]` is FP32, flat and contiguous, on the device of the cells, or undefined: then these
  /// cells stay as they are. `grad_norm` is that of all gradients, if these are a part of them. Errors: as
  /// AdamW::update().
  [[nodiscard]] virtual Result<AdamWUpdate> update(double learning_rate, std::span<const torch::Tensor> gradients,
                                                   std::optional<double> grad_norm) = 0;
  /// AdamW::sums_of_squares(): the root of their sum is the norm of these gradients.
  [[nodiscard]] virtual Result<std::vector<double>> sums_of_squares(std::span<const torch::Tensor> gradients) = 0;
  /// Cells of part `index` that differ from what the last call for it left; see AdamW::take_changes().
  [[nodiscard]] virtual ChangedCells take_changes(std::size_t index) = 0;

  /// One kind of state in the host's memory, one part after the other; kChanged of each is whole words of 64.
  [[nodiscard]] virtual std::vector<std::byte> read_state(State kind) const = 0;
  /// The reverse, of as many bytes. The weights are there already.
  virtual void write_state(State kind, Bytes bytes) = 0;
  [[nodiscard]] virtual AdamWCounters counters() const = 0;
  virtual void restore_counters(const AdamWCounters& counters) = 0;
};

/// For cells in the host's memory: AdamW itself. Errors: those of AdamW::make().
[[nodiscard]] Result<std::unique_ptr<TensorOptimiser>> make_host_optimiser(const AdamWOptions& options,
                                                                           std::vector<LearningCells> parts);

/// By LibTorch's operations, where the cells are: masters, moments and a copy of the cells as they were published stay
/// there, and only changed cells come to the host. It rounds as AdamW does, up to the order of sums and, of stochastic
/// rounding, what is drawn. Errors: those of AdamW::make(); kTooLarge (the device's memory does not suffice).
[[nodiscard]] Result<std::unique_ptr<TensorOptimiser>> make_device_optimiser(const AdamWOptions& options,
                                                                             std::vector<LearningCells> parts);

}  // namespace weightcast
