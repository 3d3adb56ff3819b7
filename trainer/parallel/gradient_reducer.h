#pragma once

#include <torch/csrc/autograd/edge.h>
#include <torch/types.h>

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "base/result.h"
#include "trainer/parallel/process_group.h"
#include "trainer/parallel/shards.h"

namespace weightcast {

/// Adds up gradients over all ranks, in the order of the ranks. It sends buckets of them while the backward pass goes
/// on: those of the last layers first. Each rank gets the sums of its own shards. Gradients of several passes add up in
/// FP32 before. Invariant: buckets are sent in one order on all ranks.
class GradientReducer {
 public:
  struct Sums {
    torch::Tensor cells;                 ///< FP32 on the host, of the rank's own shards one after the other
    std::vector<std::uint8_t> has_some;  ///< by tensor: whether any rank has a gradient for it
  };

  /// `tensors` are leaves that want gradients; hooks on them stay for their lifetime. `shards[r]` are those of rank r.
  GradientReducer(ProcessGroup& group, std::vector<torch::Tensor> tensors, std::vector<std::vector<Shard>> shards,
                  std::size_t bucket_cells = std::size_t{1} << 20);
  ~GradientReducer();
  GradientReducer(const GradientReducer&) = delete;
  GradientReducer& operator=(const GradientReducer&) = delete;

  /// The next backward pass is the last one before finish(), which wants its gradients.
  void begin_last_pass();
  /// Sends what is left, waits for all ranks, and forgets the gradients. Errors: those of ProcessGroup.
  [[nodiscard]] Result<Sums> finish();

 private:
  struct State;
  const std::shared_ptr<State> state_;               // shared with the hooks
  std::vector<torch::autograd::Edge> accumulators_;  // where the hooks are; nobody else keeps them
};

}  // namespace weightcast
