#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string_view>
#include <vector>

#include "worker/engine/version_source.h"
#include "worker/engine/weights.h"

namespace weightcast {

/// The cells in which a version differs from the weights in memory.
struct WeightChanges {
  struct Tensor {
    std::size_t index = 0;
    Bytes cells;   ///< their indices, of 32 bits each
    Bytes values;  ///< of the cells; or all of the tensor's bytes, if there are no cells
  };
  std::vector<Tensor> tensors;
  std::shared_ptr<const void> owner;  ///< of their arrays
  std::uint64_t cells = 0;            ///< that differ
  std::uint64_t bytes = 0;            ///< to be written
};

/// One copy of a model's weights in memory, which versions change in place. A version costs memory for what changes.
class ResidentWeights {
 public:
  /// Errors: those of EngineWeights::open(); kTooLarge (no memory).
  [[nodiscard]] static Result<std::unique_ptr<ResidentWeights>> read(ModelFiles files);

  [[nodiscard]] const ModelConfig& config() const { return config_; }
  /// Over the memory as it is now. Norms and biases are copies, so after apply() older ones are of no use.
  [[nodiscard]] std::shared_ptr<const EngineWeights> weights() const { return weights_; }

  /// What leads from the memory to the version in `files`. Reads the memory: apply() does not run meanwhile, steps
  /// may. Errors: those of EngineWeights::open(); kInvalidArgument (another model, or other dtypes).
  [[nodiscard]] Result<WeightChanges> compare(ModelFiles files) const;
  /// The same from a list of what leads there from the version in memory, without a look at the rest. The result has
  /// the list's own arrays, and shares their owner. Errors: kInvalidArgument (a tensor or an element that the memory
  /// has not; a value that is NaN or infinite), kTooFar (a tensor of more elements than 32 bits count).
  [[nodiscard]] Result<WeightChanges> take(const VersionList& list) const;
  /// Writes the cells. Between two steps of the engine, which goes on with weights().
  void apply(const WeightChanges& changes);

 private:
  ResidentWeights() = default;
  [[nodiscard]] Status build();
  /// The index of the tensor with that name and dtype, if there is one.
  [[nodiscard]] std::optional<std::size_t> find(std::string_view name, std::string_view dtype) const;

  ModelConfig config_;
  std::vector<NamedTensor> tensors_;  // over memory_
  std::shared_ptr<std::byte> memory_;
  std::shared_ptr<const EngineWeights> weights_;
};

}  // namespace weightcast
