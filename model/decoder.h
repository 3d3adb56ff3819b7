#pragma once

#include <torch/types.h>

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/result.h"
#include "model/config.h"
#include "model/lora_config.h"
#include "model/model_files.h"

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

/// Keys and values of a batch of sequences that are being generated. A row is one sequence. Rows have lengths of their
/// own, and positions count from 0 in each.
class KvCache {
 public:
  /// Room for `positions_max` positions in each of `rows` rows.
  KvCache(const ModelConfig& config, std::int64_t rows, std::int64_t positions_max, const DecoderOptions& options);

  [[nodiscard]] std::int64_t rows() const { return static_cast<std::int64_t>(lengths_.size()); }
  [[nodiscard]] std::int64_t positions_max() const { return positions_max_; }
  /// Positions that each row holds.
  [[nodiscard]] const std::vector<std::int64_t>& lengths() const { return lengths_; }
  /// Bytes of keys and values, used or not.
  [[nodiscard]] std::int64_t bytes() const;

  /// Keeps these rows, in this order; a row may be named several times, as for samples that share a prompt.
  void keep(std::span<const std::int64_t> rows);
  /// Forgets what a row holds beyond `length` positions.
  void shorten(std::int64_t row, std::int64_t length);

 private:
  friend class Decoder;
  std::int64_t positions_max_;
  std::vector<std::int64_t> lengths_;
  // By layer, [rows, positions_max, key-value heads, head_dim].
  std::vector<torch::Tensor> keys_;
  std::vector<torch::Tensor> values_;
};

/// A decoder of the Qwen family as transformers defines it: Qwen2, Qwen3, Qwen3-MoE. Computes hidden states; the
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
  /// pass. Without a seed, as at first, nothing is left out. hidden_cached() never leaves anything out.
  void set_dropout(std::optional<std::uint64_t> seed);

  /// Hidden states after the last norm, [tokens, hidden_size], of sequences that lie one after the other.
  /// `ids` and `positions` are INT64 [tokens]; sequence i is the tokens from `sequence_starts[i]` to the next start.
  [[nodiscard]] torch::Tensor hidden(const torch::Tensor& ids, const torch::Tensor& positions,
                                     std::span<const std::int64_t> sequence_starts) const;
  /// The same with positions that count from 0 in each sequence.
  [[nodiscard]] torch::Tensor hidden(const torch::Tensor& ids, std::span<const std::int64_t> sequence_starts) const;

  /// Hidden states of new tokens, [rows, n, hidden_size]. `ids` is INT64 [rows, n]; row r has `counts[r]` new tokens,
  /// and the rest of its ids is padding, whose hidden states mean nothing. Adds the new tokens to `cache`, which has
  /// room for n positions more in each row. Without gradients.
  [[nodiscard]] torch::Tensor hidden_cached(const torch::Tensor& ids, std::span<const std::int64_t> counts,
                                            KvCache& cache) const;

  /// [vocab_size, hidden_size]; the embedding, if tied.
  [[nodiscard]] torch::Tensor head() const;

 private:
  struct Network;
  explicit Decoder(std::unique_ptr<Network> network);

  std::unique_ptr<Network> network_;
};

}  // namespace weightcast
