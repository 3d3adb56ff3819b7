#pragma once

#include <filesystem>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "model/decoder.h"
#include "trainer/learner/checkpoint.h"
#include "trainer/learner/config.h"
#include "trainer/learner/publisher.h"
#include "trainer/optimiser/adamw.h"

namespace weightcast {

/// What a decoder's weights are before training, and the files that come with them.
struct InitialModel {
  Decoder decoder;
  std::string config_json;
  std::string tokenizer_json;
};

/// Reads config.model, or makes random weights of config.init_* with the tokenizer of bytes.
/// Errors: those of ModelFiles::open() and Decoder::load(); kNotFound (no tokenizer.json).
[[nodiscard]] Result<InitialModel> make_initial_model(FileSystem& files, const LearnerConfig& config);

/// The decoder that learns, its gradients, and its optimiser. Gradients of several micro-batches add up in FP32.
class Policy {
 public:
  [[nodiscard]] static Result<Policy> make(Decoder decoder, const LearnerConfig& config);

  [[nodiscard]] const Decoder& decoder() const { return decoder_; }
  [[nodiscard]] AdamW& optimiser() { return optimiser_; }
  [[nodiscard]] const AdamW& optimiser() const { return optimiser_; }

  /// Adds the gradients of `loss` to those that wait.
  void backward(const torch::Tensor& loss);
  /// One update with the gradients that wait, which are none then. A gradient that is not finite skips it.
  [[nodiscard]] Result<AdamWUpdate> update(double learning_rate);
  /// Forgets moments and counters, as at the beginning of another kind of training.
  [[nodiscard]] Status reset_optimiser(const LearnerConfig& config);

  /// The weights where they are, and how many bytes they have.
  [[nodiscard]] std::vector<PublishedTensor> published() const;
  [[nodiscard]] std::uint64_t weight_bytes() const;

  /// Puts copies of the weights and of the optimiser's state into a checkpoint, and takes them from one.
  /// Errors of load: kCorrupt, which names a tensor that is missing or of another size.
  void save(Checkpoint& checkpoint) const;
  [[nodiscard]] Status load(const Checkpoint& checkpoint);

 private:
  Policy(Decoder decoder, AdamW optimiser);

  Decoder decoder_;
  mutable AdamW optimiser_;                 // its state() gives its own memory, for reading too
  std::vector<torch::Tensor> accumulated_;  // FP32 gradients of BF16 weights
};

/// Copies of a decoder's weights, in their order, and back into a decoder of the same sizes.
[[nodiscard]] std::vector<StoredTensor> copy_weights(const Decoder& decoder);
[[nodiscard]] Status set_weights(const Decoder& decoder, std::span<const StoredTensor> weights);

}  // namespace weightcast
