#include "trainer/update/policy.h"

#include <fmt/format.h>

#include <array>
#include <nlohmann/json.hpp>

#include "base/digest/checksum.h"
#include "base/draws.h"
#include "base/text.h"
#include "patch/snapshot/adapter_names.h"
#include "patch/snapshot/sidecar.h"
#include "trainer/model/device.h"
#include "trainer/model/lora_config.h"
#include "trainer/model/model_files.h"
#include "trainer/model/tokenizer/tokenizer.h"
#include "trainer/model/weights.h"

namespace weightcast {
namespace {

const std::string kModelFile = "model.safetensors";
const std::string kOptimizerFile = "optimizer.safetensors";
const std::string kBaseFile = "base.checksum";
const std::string kHeadFile = "value_head.safetensors";
const std::string kHeadOptimizerFile = "value_head_optimizer.safetensors";
constexpr std::uint64_t kAdapterStream = 8;

torch::ScalarType dtype_of(const LearnerConfig& config) {
  return config.dtype == WeightDtype::kBfloat16 ? at::kBFloat16 : at::kFloat;
}

/// What a model's directory may have besides: how other tools generate with it.
constexpr std::array kOtherFiles{"generation_config.json", "tokenizer_config.json", "special_tokens_map.json",
                                 "chat_template.jinja"};

/// config.json of a Qwen3 with the tokenizer of bytes. An answer ends with either of two tokens, as in PromptCodec.
std::string init_config_json(const LearnerConfig& c, const Tokenizer& tokenizer) {
  const nlohmann::json json = {
      {"architectures", {"Qwen3ForCausalLM"}},
      {"model_type", "qwen3"},
      {"vocab_size", tokenizer.vocab_size()},
      {"hidden_size", c.init_hidden_size},
      {"intermediate_size", c.init_intermediate_size},
      {"num_hidden_layers", c.init_num_hidden_layers},
      {"num_attention_heads", c.init_num_attention_heads},
      {"num_key_value_heads", c.init_num_key_value_heads},
      {"head_dim", c.init_hidden_size / c.init_num_attention_heads},
      {"hidden_act", "silu"},
      {"max_position_embeddings", 4096},
      {"rms_norm_eps", 1e-6},
      {"rope_theta", 10000.0},
      {"initializer_range", 0.02},
      {"attention_bias", false},
      {"tie_word_embeddings", true},
      {"eos_token_id", {*tokenizer.added_token("<|endoftext|>"), *tokenizer.added_token("<|im_end|>")}},
      {"torch_dtype", to_string<WeightDtype>(c.dtype)}};
  return json.dump(2) + "\n";
}

std::vector<double> weight_decays(const Decoder& decoder, const LearnerConfig& config) {
  if (decoder.adapter()) return std::vector<double>(decoder.trained_parameters().size(), config.weight_decay);
  std::vector<double> decays;
  for (const TensorSpec& spec : tensor_specs(decoder.config())) {
    const bool is_matrix = spec.kind == TensorSpec::Kind::kMatrix || spec.kind == TensorSpec::Kind::kEmbedding;
    decays.push_back(is_matrix ? config.weight_decay : 0);
  }
  return decays;
}

AdamWOptions optimiser_options(const LearnerConfig& config) {
  AdamWOptions options;
  options.beta1 = config.adam_beta1;
  options.beta2 = config.adam_beta2;
  options.epsilon = config.adam_epsilon;
  options.grad_norm_max = config.max_grad_norm;
  options.rounding = config.stochastic_rounding ? Bf16Rounding::kStochastic : Bf16Rounding::kNearest;
  options.rounding_seed = config.seed;
  options.threads_max = static_cast<unsigned>(config.threads);
  return options;
}

std::string checksum_of_tensors(const std::vector<Parameter>& tensors) {
  ChecksumStream checksum;
  for (const Parameter& parameter : tensors) {
    const torch::Tensor host = parameter.tensor.detach().to(at::kCPU).contiguous();
    checksum.update(bytes_of(host));
  }
  return checksum.digest().hex();
}

Result<std::string_view> text_in(const Checkpoint& checkpoint, const std::string& name) {
  const auto found = checkpoint.texts.find(name);
  if (found != checkpoint.texts.end()) return std::string_view(found->second);
  return fail(Errc::kCorrupt, Op::kRead, fmt::format("checkpoint: {} is missing", name));
}

Result<std::span<const StoredTensor>> tensors_in(const Checkpoint& checkpoint, const std::string& name) {
  const auto found = checkpoint.tensors.find(name);
  if (found != checkpoint.tensors.end()) return std::span<const StoredTensor>(found->second);
  return fail(Errc::kCorrupt, Op::kRead, fmt::format("checkpoint: {} is missing", name));
}

}  // namespace

Result<InitialModel> make_initial_model(FileSystem& files, const LearnerConfig& config) {
  DecoderOptions options;
  WC_ASSIGN(options.device, open_device(config.device, config.tf32));
  options.dtype = dtype_of(config);
  options.activation_checkpointing = config.activation_checkpointing;
  if (config.model.empty()) {
    std::string tokenizer_json = byte_tokenizer_json();
    WC_ASSIGN(const Tokenizer tokenizer, Tokenizer::parse(tokenizer_json));
    std::string config_json = init_config_json(config, tokenizer);
    WC_ASSIGN(const ModelConfig model, parse_model_config(config_json));
    WC_ASSIGN(Decoder decoder, Decoder::random(model, config.seed, options));
    return InitialModel{std::move(decoder),
                        {{"config.json", std::move(config_json)}, {"tokenizer.json", std::move(tokenizer_json)}}};
  }
  const std::filesystem::path directory = config.model;
  WC_ASSIGN(const ModelFiles model, ModelFiles::open(files, directory));
  WC_ASSIGN(Decoder decoder, Decoder::load(model, options));
  InitialModel initial{std::move(decoder), {}};
  for (const char* name : {"config.json", "tokenizer.json"}) {
    WC_ASSIGN(initial.files[name], read_file(files, directory / name, kSidecarBytesMax));
  }
  for (const char* name : kOtherFiles) {
    Result<std::string> text = read_file(files, directory / name, kSidecarBytesMax);
    if (text.has_value()) {
      initial.files[name] = std::move(*text);
    } else if (text.error().code != Errc::kNotFound) {
      return std::move(text).error();
    }
  }
  return initial;
}

Policy::Policy(Decoder decoder, TrainedTensors trained, const LearnerConfig& config, ProcessGroup* group)
    : group_(group), decoder_(std::move(decoder)), trained_(std::move(trained)) {
  if (!decoder_.adapter()) return;
  base_model_ = config.model;
  base_checksum_ = checksum_of_tensors(decoder_.parameters());
  if (!publishes_adapter(config)) merged_.emplace();
}

Result<Policy> Policy::make(Decoder decoder, const LearnerConfig& config, ProcessGroup* group) {
  WC_ASSIGN(const std::optional<LoraConfig> lora, lora_config(config));
  if (lora) WC_TRY(decoder.add_adapter(*lora, drawn(config.seed, kAdapterStream, 0)));
  std::vector<Parameter> learning = decoder.trained_parameters();
  std::vector<double> decays = weight_decays(decoder, config);
  WC_ASSIGN(TrainedTensors trained,
            TrainedTensors::make(std::move(learning), std::move(decays), optimiser_options(config), group));
  Policy policy(std::move(decoder), std::move(trained), config, group);
  if (has_value_head(config)) {
    policy.head_ = ValueHead::zeros(policy.decoder_.config().hidden_size, policy.decoder_.options().device);
    WC_ASSIGN(policy.head_trained_,
              TrainedTensors::make({{"weight", policy.head_->weight}, {"bias", policy.head_->bias}},
                                   {config.weight_decay, 0}, optimiser_options(config), group));
  }
  return policy;
}

Status Policy::reset_optimiser() { return trained_.reset(); }

void Policy::backward(const torch::Tensor& loss, bool is_last) {
  // The head's few gradients go at its update: ranks would send them among the others at different times.
  if (is_last) trained_.begin_last_pass();
  loss.backward();
  trained_.handle_backward();
  if (head_trained_) head_trained_->handle_backward();
}

Result<AdamWUpdate> Policy::update(double learning_rate) { return trained_.update(learning_rate); }

Result<AdamWUpdate> Policy::update_value_head(double learning_rate) { return head_trained_->update(learning_rate); }

std::vector<PublishedTensor> Policy::published() {
  if (merged_) merged_->refresh(decoder_);
  std::vector<PublishedTensor> tensors;
  for (const Parameter& parameter : merged_ ? merged_->tensors() : trained_.learning_tensors()) {
    tensors.push_back({parameter.name, std::string(dtype_name(parameter.tensor.scalar_type())),
                       shape_of(parameter.tensor), parameter.tensor.nbytes()});
  }
  return tensors;
}

void Policy::read_published(std::size_t index, MutableBytes into) const {
  const torch::Tensor& tensor = (merged_ ? merged_->tensors() : trained_.learning_tensors())[index].tensor;
  WC_CHECK(into.size() == tensor.nbytes());
  // From a device straight into the memory that is published.
  torch::from_blob(into.data(), tensor.sizes(), at::TensorOptions(tensor.scalar_type())).copy_(tensor);
}

ChangedCells Policy::take_changes(std::size_t index) {
  return merged_ ? merged_->take_changes(index) : trained_.take_changes(index);
}

std::uint64_t Policy::published_bytes() const {
  std::uint64_t bytes = 0;
  for (const Parameter& parameter : merged_ ? decoder_.parameters() : trained_.tensors()) {
    bytes += parameter.tensor.nbytes();
  }
  return bytes;
}

std::string Policy::adapter_json() const { return lora_config_json(*decoder_.adapter(), base_model_); }

Status Policy::save(Checkpoint& checkpoint) {
  // Together with the other ranks, which do nothing else here.
  WC_ASSIGN(checkpoint.tensors[kOptimizerFile], trained_.save_optimiser());
  if (head_trained_) {
    WC_ASSIGN(checkpoint.tensors[kHeadOptimizerFile], head_trained_->save_optimiser());
  }
  checkpoint.tensors[decoder_.adapter() ? kAdapterFile : kModelFile] = copy_tensors(trained_.learning_tensors());
  if (decoder_.adapter()) {
    checkpoint.texts[kAdapterConfigFile] = adapter_json();
    checkpoint.texts[kBaseFile] = base_text();
    // Others need the weights below to read it, and random ones lie nowhere else.
    if (base_model_.empty()) checkpoint.tensors[kModelFile] = copy_tensors(decoder_.parameters());
  }
  if (head_trained_) checkpoint.tensors[kHeadFile] = copy_tensors(head_trained_->learning_tensors());
  return {};
}

Status Policy::share() {
  WC_TRY(trained_.share());
  return head_trained_ ? head_trained_->share() : Status();
}

Status Policy::receive() {
  WC_TRY(share());
  WC_TRY(trained_.load_optimiser({}));
  return head_trained_ ? head_trained_->load_optimiser({}) : Status();
}

Status Policy::load(const Checkpoint& checkpoint) {
  const bool has_adapter = decoder_.adapter().has_value();
  if (has_adapter != (checkpoint.texts.count(kAdapterConfigFile) != 0)) {
    return fail(Errc::kInvalidArgument, Op::kConfigure,
                fmt::format("the run began {} an adapter; use the lora_rank that it had, or another output_dir",
                            has_adapter ? "without" : "with"));
  }
  if (has_adapter) WC_TRY(load_base(checkpoint));
  if (head_trained_ && checkpoint.tensors.count(kHeadFile) == 0) {
    return fail(Errc::kInvalidArgument, Op::kConfigure,
                "the run began without a value head; use the advantage_estimator that it had, or another output_dir");
  }
  WC_ASSIGN(const auto weights, tensors_in(checkpoint, decoder_.adapter() ? kAdapterFile : kModelFile));
  WC_ASSIGN(const auto optimiser, tensors_in(checkpoint, kOptimizerFile));
  WC_TRY(set_tensors(trained_.learning_tensors(), weights));
  trained_.handle_learning_changed();
  if (head_trained_) {
    WC_ASSIGN(const auto head, tensors_in(checkpoint, kHeadFile));
    WC_TRY(set_tensors(head_trained_->learning_tensors(), head));
    head_trained_->handle_learning_changed();
  }
  WC_TRY(share());
  WC_TRY(trained_.load_optimiser(optimiser));
  if (!head_trained_) return {};
  WC_ASSIGN(const auto head_optimiser, tensors_in(checkpoint, kHeadOptimizerFile));
  return head_trained_->load_optimiser(head_optimiser);
}

Status Policy::load_base(const Checkpoint& checkpoint) {
  WC_ASSIGN(const std::string_view adapter, text_in(checkpoint, kAdapterConfigFile));
  WC_ASSIGN(const LoraConfig stored, parse_lora_config(adapter));
  if (lora_config_json(stored, "") != lora_config_json(*decoder_.adapter(), "")) {
    return fail(Errc::kInvalidArgument, Op::kConfigure,
                "the checkpoint has an adapter of another form; use the lora keys that the run began with, or another "
                "output_dir");
  }
  if (base_model_.empty()) {
    WC_ASSIGN(const auto base, tensors_in(checkpoint, kModelFile));
    return set_tensors(decoder_.parameters(), base);
  }
  WC_ASSIGN(const std::string_view checksum, text_in(checkpoint, kBaseFile));
  if (checksum == base_text()) return {};
  return fail(Errc::kInvalidArgument, Op::kConfigure,
              fmt::format("the weights in {} are not those that the run's adapter is for; put them back, or use "
                          "another output_dir",
                          printable(base_model_)));
}

std::string Policy::base_text() const { return base_checksum_ + "\n"; }

Result<Decoder> twin_of(const Decoder& decoder) {
  if (!decoder.adapter()) return Decoder::random(decoder.config(), 0, decoder.options());
  Decoder twin = decoder.of_same_parameters();
  WC_TRY(twin.add_adapter(*decoder.adapter(), 0));
  return twin;
}

std::vector<StoredTensor> copy_weights(const Decoder& decoder) { return copy_tensors(decoder.trained_parameters()); }

Status share_weights(ProcessGroup& group, const Decoder& decoder) {
  const at::NoGradGuard no_grad;
  for (const Parameter& parameter : decoder.trained_parameters()) {
    const torch::Tensor host = parameter.tensor.detach().to(at::kCPU);
    WC_TRY(group.broadcast(bytes_of(host), 0));
    if (parameter.tensor.device() != at::kCPU) parameter.tensor.detach().copy_(host);
  }
  return {};
}

Status set_weights(const Decoder& decoder, std::span<const StoredTensor> weights) {
  return set_tensors(decoder.trained_parameters(), weights);
}

}  // namespace weightcast
