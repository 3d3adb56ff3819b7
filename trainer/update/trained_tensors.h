#pragma once

#include <memory>
#include <string>
#include <vector>

#include "trainer/checkpoint/checkpoint.h"
#include "trainer/model/decoder.h"
#include "trainer/optimiser/tensor_optimiser.h"
#include "trainer/parallel/gradient_reducer.h"

namespace weightcast {

/// Tensors that learn, their gradients, and their optimiser. Gradients of several micro-batches add up in FP32. The
/// optimiser works where the tensors are; with a process group in the host's memory, where tensors on another device
/// then have copies.
/// With a process group each rank has all tensors, and the optimiser's state of its shards alone. Then all ranks call
/// the functions that say so together. One process is a group of one.
class TrainedTensors {
 public:
  /// `weight_decay[i]` belongs to tensor i. The tensors require gradients from now on, and are of one type. `group` may
  /// be null, and outlives the object. Errors: those of AdamW::make().
  [[nodiscard]] static Result<TrainedTensors> make(std::vector<Parameter> tensors, std::vector<double> weight_decay,
                                                   const AdamWOptions& options, ProcessGroup* group = nullptr);

  [[nodiscard]] const std::vector<Parameter>& tensors() const { return tensors_; }
  /// The same as the optimiser works on them: their own memory, or the copies in the host's.
  [[nodiscard]] const std::vector<Parameter>& learning_tensors() const { return learning_; }
  [[nodiscard]] AdamWCounters counters() const { return optimiser_->counters(); }
  /// AdamW::take_changes() of a whole tensor; of a group on rank 0 alone.
  [[nodiscard]] ChangedCells take_changes(std::size_t index);

  /// The next backward pass is the last one before update().
  void begin_last_pass();
  /// Adds the gradients that a backward pass has left to those that wait.
  void handle_backward();
  /// One update with the gradients that wait, which are none then. A gradient that is not finite skips it. All ranks.
  [[nodiscard]] Result<AdamWUpdate> update(double learning_rate);
  /// Forgets moments and counters, as at the beginning of another kind of training.
  [[nodiscard]] Status reset();

  /// Copies of the optimiser's state: on rank 0 all of it, whatever the number of ranks, and elsewhere nothing. All
  /// ranks.
  [[nodiscard]] Result<std::vector<StoredTensor>> save_optimiser();
  /// The reverse: rank 0 has all of it. All ranks. Errors: kCorrupt, which names a tensor that is missing or of another
  /// size; then the others are left to fail, as rank 0 ends.
  [[nodiscard]] Status load_optimiser(std::span<const StoredTensor> parts);
  /// All ranks get the values that rank 0's learning_tensors() have. All ranks.
  [[nodiscard]] Status share();
  /// The values of learning_tensors() were changed.
  void handle_learning_changed();

 private:
  TrainedTensors(std::vector<Parameter> tensors, std::vector<double> weight_decay, const AdamWOptions& options,
                 ProcessGroup* group, std::vector<std::vector<Shard>> shards);

  [[nodiscard]] std::uint32_t rank() const { return group_ == nullptr ? 0 : group_->rank(); }
  [[nodiscard]] const std::vector<Shard>& own() const { return shards_[rank()]; }
  [[nodiscard]] Result<AdamWUpdate> update_own(double learning_rate, std::span<const torch::Tensor> gradients);
  [[nodiscard]] Status share_shards();
  /// The rank's own bytes of one kind of state, one shard after the other, and all ranks' on rank 0.
  [[nodiscard]] Result<std::vector<std::byte>> gather(AdamW::StatePart::Kind kind);
  [[nodiscard]] Status scatter(AdamW::StatePart::Kind kind, std::vector<std::byte> all);

  std::vector<Parameter> tensors_;
  std::vector<Parameter> learning_;
  std::vector<double> weight_decay_;
  AdamWOptions options_;
  ProcessGroup* group_;
  std::vector<std::vector<Shard>> shards_;      // by rank
  std::unique_ptr<TensorOptimiser> optimiser_;  // over the own ones
  std::vector<torch::Tensor> accumulated_;    // without a group: FP32 gradients of tensors that are not; else undefined
  std::unique_ptr<GradientReducer> reducer_;  // with a group
  std::vector<std::vector<std::uint64_t>> changed_;  // on rank 0 of a group: cells of others' shards, a bit each
};

/// Copies of tensors in the host's memory, and of a file's tensors back into them. Errors: as load_optimiser().
[[nodiscard]] std::vector<StoredTensor> copy_tensors(std::span<const Parameter> tensors);
[[nodiscard]] Status set_tensors(std::span<const Parameter> tensors, std::span<const StoredTensor> stored);

/// The bytes of a contiguous tensor in the host's memory, and its shape.
[[nodiscard]] MutableBytes bytes_of(const torch::Tensor& tensor);
[[nodiscard]] std::vector<std::uint64_t> shape_of(const torch::Tensor& tensor);

}  // namespace weightcast
