#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "base/units.h"
#include "trainer/model/config.h"
#include "trainer/model/lora_config.h"
#include "trainer/model/model_files.h"

namespace weightcast {

/// A tensor where somebody keeps it: in a mapped file, or in a learner's memory.
struct NamedTensor {
  std::string name;
  std::string dtype;  ///< "F32", "BF16" or "F16"
  Bytes bytes;
};

/// The tensors of a model's files, in the memory that its files are mapped to.
struct MappedModel {
  ModelConfig config;
  std::vector<NamedTensor> tensors;
  std::shared_ptr<const void> owner;
};

/// Maps the files of a snapshot, which outlives the result. Reads all of them, and refuses what is not finite. The
/// files must not shrink meanwhile. Errors: those of SnapshotSource::mapping(); kInvalidArgument (a NaN or an
/// infinity).
[[nodiscard]] Result<std::vector<NamedTensor>> map_tensors(const SnapshotSource& snapshot);

/// map_tensors() of a model. Reads all of it, so that no step waits for the disk. Errors: those of map_tensors().
[[nodiscard]] Result<MappedModel> map_model(ModelFiles files);

/// A matrix of [outputs, inputs], row by row. The memory belongs to somebody else.
struct WeightMatrix {
  const void* data = nullptr;
  bool is_bfloat16 = false;  ///< otherwise FP32
  std::int64_t outputs = 0;
  std::int64_t inputs = 0;

  [[nodiscard]] std::uint64_t bytes() const {
    return static_cast<std::uint64_t>(outputs * inputs) * (is_bfloat16 ? 2 : 4);
  }
};

/// W x + bias + scale B (A x): the last of a low-rank adapter (LoRA, arXiv 2106.09685).
struct WeightLinear {
  WeightMatrix matrix;
  std::vector<float> bias;      ///< empty: none
  WeightMatrix adapter_a = {};  ///< [rank, inputs]; without data: none
  WeightMatrix adapter_b = {};  ///< [outputs, rank]
  float adapter_scale = 0;
};

struct WeightFeedForward {
  WeightLinear gate;
  WeightLinear up;
  WeightLinear down;
};

struct WeightLayer {
  std::vector<float> input_norm;
  std::vector<float> feed_forward_norm;
  std::vector<float> query_norm;  ///< empty: none
  std::vector<float> key_norm;
  WeightLinear query;
  WeightLinear key;
  WeightLinear value;
  WeightLinear output;
  WeightFeedForward dense;                 ///< either this one,
  std::vector<WeightFeedForward> experts;  ///< or these, which `router` chooses among
  WeightLinear router;
};

/// The weights of one version, as the engine computes with them. Matrices stay where they are, unless they are F16 or
/// not aligned: then they are copied, the former to FP32. Norms and biases are always copied. Immutable, so any thread
/// may prepare the next version while the engine uses this one.
class EngineWeights {
 public:
  /// `tensors` are those of tensor_specs(config), and may have a tied head; `owner` keeps their memory, and may be null
  /// where somebody else does. With an `adapter` its lora_targets() are among them. Errors: kInvalidArgument, which
  /// names a tensor that is missing or has another size.
  [[nodiscard]] static Result<std::shared_ptr<const EngineWeights>> make(const ModelConfig& config,
                                                                         std::span<const NamedTensor> tensors,
                                                                         std::shared_ptr<const void> owner,
                                                                         const LoraConfig* adapter = nullptr);
  /// make() over map_model(). `owner` is kept as long as the weights, as a pin of the files is; it may be null.
  /// Errors: those of both.
  [[nodiscard]] static Result<std::shared_ptr<const EngineWeights>> open(ModelFiles files,
                                                                         std::shared_ptr<const void> owner = nullptr);

  [[nodiscard]] const ModelConfig& config() const { return config_; }
  [[nodiscard]] const WeightMatrix& embedding() const { return embedding_; }
  [[nodiscard]] const WeightMatrix& head() const { return head_; }
  [[nodiscard]] const std::vector<float>& norm() const { return norm_; }
  [[nodiscard]] const std::vector<WeightLayer>& layers() const { return layers_; }
  /// Of all tensors as they are kept, whoever owns them.
  [[nodiscard]] std::uint64_t bytes() const { return bytes_; }
  /// What a step reads of them for one token, with the head: of experts, the chosen ones.
  [[nodiscard]] std::uint64_t bytes_per_token() const;

 private:
  class Builder;
  EngineWeights() = default;

  ModelConfig config_;
  WeightMatrix embedding_;
  WeightMatrix head_;
  std::vector<float> norm_;
  std::vector<WeightLayer> layers_;
  std::vector<std::vector<float>> copies_;
  std::shared_ptr<const void> owner_;
  std::uint64_t bytes_ = 0;
};

/// Errors: kInvalidArgument, which names what differs, if a sequence of one could not go on with the other: sizes,
/// heads, layers, experts, position embeddings.
[[nodiscard]] Status check_same_model(const ModelConfig& running, const ModelConfig& next);

}  // namespace weightcast
