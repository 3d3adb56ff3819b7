#pragma once

#include <torch/types.h>

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/result.h"
#include "trainer/model/config.h"
#include "trainer/model/lora_config.h"
#include "trainer/model/model_files.h"

namespace weightcast {

struct DecoderOptions {
  /// What parameters are kept and computed in: at::kFloat or at::kBFloat16.
  torch::ScalarType dtype = at::kFloat;
  torch::Device device = at::kCPU;
  /// Keep only each layer's input for the backward pass, and compute the layer again there: a third more work, and
  /// memory for the activations of one layer instead of all. The decoder must then outlive the backward pass.
  bool activation_checkpointing = false;
};

/// A tensor that training changes, by its name in Hugging Face's safetensors.
struct Parameter {
  std::string name;
  torch::Tensor tensor;
};

/// A decoder as transformers defines it, of one of the families of Architecture. Computes hidden states; the
/// product with head() is the caller's, since logits of all tokens rarely fit. Token ids are below vocab_size: who
/// takes them from outside checks that. One thread at a time.
class Decoder {
 public:
  /// Random weights as transformers initialises them: normal with initializer_range, biases 0, norms 1. The seed
  /// determines them. Errors: kTooLarge (the memory does not suffice).
  [[nodiscard]] static Result<Decoder> random(const ModelConfig& config, std::uint64_t seed,
                                              const DecoderOptions& options = {});
  /// Reads the weights and rounds them to the dtype of `options`. Errors: those of reading; kInvalidArgument, which
  /// names a tensor with a NaN or an infinity, and a tied model's head that is not its embedding; kTooLarge.
  [[nodiscard]] static Result<Decoder> load(const ModelFiles& files, const DecoderOptions& options = {});

  /// A decoder of the same tensors, without the adapter: what changes one changes the other.
  [[nodiscard]] Decoder of_same_parameters() const;

  Decoder(Decoder&&) noexcept;
  Decoder& operator=(Decoder&&) noexcept;
  ~Decoder();

  [[nodiscard]] const ModelConfig& config() const;
  [[nodiscard]] const DecoderOptions& options() const;

  /// In the order of tensor_specs(). Writing to them changes the model. None requires gradients at first.
  [[nodiscard]] const std::vector<Parameter>& parameters() const;
  /// What training changes: the adapter's matrices, or all parameters where there is no adapter.
  [[nodiscard]] const std::vector<Parameter>& trained_parameters() const;
  /// Of trained_parameters(); the others never do.
  void set_requires_grad(bool requires_grad);

  /// Adds a low-rank adapter, which at first changes nothing: A is uniform as PEFT initialises it, B is 0. `seed`
  /// determines A. Errors: those of check_lora_config(); kAlreadyExists (there is an adapter).
  [[nodiscard]] Status add_adapter(const LoraConfig& config, std::uint64_t seed);
  [[nodiscard]] const std::optional<LoraConfig>& adapter() const;
  /// The adapter's matrices by PEFT's names: A and B for each of lora_targets(). Empty without an adapter.
  [[nodiscard]] const std::vector<Parameter>& adapter_parameters() const;
  /// parameters() with the adapter added to them: a plain model that computes the same. Matrices with an adapter are
  /// new tensors, the others are shared.
  [[nodiscard]] std::vector<Parameter> merged_parameters() const;
  /// The adapter's dropout in hidden(): what it leaves out follows from `seed`, so a caller gives another one for each
  /// pass. Without a seed, as at first, nothing is left out.
  void set_dropout(std::optional<std::uint64_t> seed);

  /// Hidden states after the last norm, [tokens, hidden_size], of sequences that lie one after the other.
  /// `ids` and `positions` are INT64 [tokens]; sequence i is the tokens from `sequence_starts[i]` to the next start.
  [[nodiscard]] torch::Tensor hidden(const torch::Tensor& ids, const torch::Tensor& positions,
                                     std::span<const std::int64_t> sequence_starts) const;
  /// The same with positions that count from 0 in each sequence.
  [[nodiscard]] torch::Tensor hidden(const torch::Tensor& ids, std::span<const std::int64_t> sequence_starts) const;

  /// [vocab_size, hidden_size]; the embedding, if tied.
  [[nodiscard]] torch::Tensor head() const;

 private:
  struct Network;
  explicit Decoder(std::unique_ptr<Network> network);

  std::unique_ptr<Network> network_;
};

}  // namespace weightcast
