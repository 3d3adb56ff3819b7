#pragma once

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "trainer/checkpoint/checkpoint.h"
#include "trainer/config/config.h"
#include "trainer/loss/value_loss.h"
#include "trainer/model/decoder.h"
#include "trainer/publish/publisher.h"
#include "trainer/update/merged_weights.h"
#include "trainer/update/trained_tensors.h"

namespace weightcast {

/// What a decoder's weights are before training, and the files that come with them.
struct InitialModel {
  Decoder decoder;
  /// By name, as Hugging Face's layout has them: config.json, tokenizer.json, and what else tells how it generates.
  std::map<std::string, std::string> files;
};

/// Reads config.model, or makes random weights of config.init_* with the tokenizer of bytes.
/// Errors: those of ModelFiles::open() and Decoder::load(); kNotFound (no tokenizer.json).
[[nodiscard]] Result<InitialModel> make_initial_model(FileSystem& files, const LearnerConfig& config);

/// What learns: the decoder, or its low-rank adapter alone, and the value head if there is one. With gradients and
/// optimisers. With a process group all ranks call the functions together that say so.
class Policy {
 public:
  /// Adds what the configuration wants to `decoder`: an adapter, a value head. Errors: those of the optimisers and of
  /// Decoder::add_adapter().
  [[nodiscard]] static Result<Policy> make(Decoder decoder, const LearnerConfig& config, ProcessGroup* group = nullptr);

  [[nodiscard]] const Decoder& decoder() const { return decoder_; }
  /// Null without one.
  [[nodiscard]] const ValueHead* value_head() const { return head_ ? &*head_ : nullptr; }
  /// Null in a learner of one process.
  [[nodiscard]] ProcessGroup* group() const { return group_; }

  /// What the adapter leaves out in passes from now on; nothing without a seed.
  void set_dropout(std::optional<std::uint64_t> seed) { decoder_.set_dropout(seed); }
  /// Adds the gradients of `loss` to those that wait. `is_last`: update() follows.
  void backward(const torch::Tensor& loss, bool is_last);
  /// One update with the gradients that wait, which are none then. A gradient that is not finite skips it. All ranks.
  [[nodiscard]] Result<AdamWUpdate> update(double learning_rate);
  /// The same for the value head, which there is. All ranks.
  [[nodiscard]] Result<AdamWUpdate> update_value_head(double learning_rate);
  /// Forgets moments and counters, as at the beginning of another kind of training.
  [[nodiscard]] Status reset_optimiser();

  /// What is published: the weights, merged with the adapter, or the adapter's alone. What the two functions below give
  /// belongs to the last call.
  [[nodiscard]] std::vector<PublishedTensor> published();
  /// Copies published tensor `index` to memory of its size, from whichever device it is on.
  void read_published(std::size_t index, MutableBytes into) const;
  /// The cells of published tensor `index` that have changed since the last call for it.
  [[nodiscard]] ChangedCells take_changes(std::size_t index);
  [[nodiscard]] std::uint64_t published_bytes() const;

  /// The adapter_config.json of a policy with an adapter.
  [[nodiscard]] std::string adapter_json() const;

  /// Puts copies of what learns and of the optimisers' state into a checkpoint, and takes them from one. All ranks;
  /// the others than rank 0 neither give nor get a checkpoint: receive() is their load().
  /// Errors of load: kCorrupt, which names a tensor that is missing or of another size; kInvalidArgument if the
  /// checkpoint is one with another adapter, on other weights, or without a value head.
  [[nodiscard]] Status save(Checkpoint& checkpoint);
  [[nodiscard]] Status load(const Checkpoint& checkpoint);
  [[nodiscard]] Status receive();
  /// All ranks get the weights of rank 0. All ranks.
  [[nodiscard]] Status share();

 private:
  Policy(Decoder decoder, TrainedTensors trained, const LearnerConfig& config, ProcessGroup* group);
  [[nodiscard]] std::string base_text() const;
  /// Of a policy with an adapter: checks that it is the checkpoint's, on the same weights.
  [[nodiscard]] Status load_base(const Checkpoint& checkpoint);

  ProcessGroup* group_;
  Decoder decoder_;
  TrainedTensors trained_;
  std::optional<ValueHead> head_;
  std::optional<TrainedTensors> head_trained_;
  std::optional<MergedWeights> merged_;  // with an adapter that is published merged
  std::string base_model_;               // what the adapter is for; empty: random weights
  std::string base_checksum_;            // of the weights below an adapter
};

/// A decoder of the same form whose trained weights are its own, for those of other versions. It shares what does not
/// learn.
[[nodiscard]] Result<Decoder> twin_of(const Decoder& decoder);

/// Copies of a decoder's trained weights, and back into a decoder of the same form.
[[nodiscard]] std::vector<StoredTensor> copy_weights(const Decoder& decoder);
[[nodiscard]] Status set_weights(const Decoder& decoder, std::span<const StoredTensor> weights);

/// All ranks get the trained weights of rank 0's decoder. All ranks. Errors: those of ProcessGroup.
[[nodiscard]] Status share_weights(ProcessGroup& group, const Decoder& decoder);

}  // namespace weightcast
