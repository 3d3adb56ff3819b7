#include "trainer/rollouts/completion.h"

#include <limits>

#include "trainer/model/weights.h"

namespace weightcast {
namespace {

/// The decoder's weights as the engine takes them. They stay where they are, but for what an adapter is added to, and
/// what is not on the CPU.
Result<std::shared_ptr<const EngineWeights>> engine_weights(const Decoder& decoder) {
  const auto parameters = std::make_shared<std::vector<Parameter>>(decoder.merged_parameters());
  std::vector<NamedTensor> tensors;
  for (Parameter& parameter : *parameters) {
    parameter.tensor = parameter.tensor.detach().to(at::kCPU).contiguous();
    tensors.push_back({parameter.name,
                       std::string(dtype_name(parameter.tensor.scalar_type())),
                       {static_cast<const std::byte*>(parameter.tensor.data_ptr()), parameter.tensor.nbytes()}});
  }
  return EngineWeights::make(decoder.config(), tensors, parameters);
}

}  // namespace

Completer::Completer(CompletionOptions options, std::unique_ptr<Engine> engine)
    : options_(std::move(options)), engine_(std::move(engine)) {}
Completer::Completer(Completer&&) noexcept = default;
Completer::~Completer() = default;

Result<Completer> Completer::make(const Decoder& decoder, CompletionOptions options) {
  EngineOptions engine_options;
  engine_options.cache_bytes_max = options.cache_bytes_max;
  engine_options.context_max = options.context_max;
  engine_options.running_max = options.sequences_max;
  engine_options.waiting_max = std::numeric_limits<std::size_t>::max();
  engine_options.end_tokens = {options.end_token};
  engine_options.threads = options.threads;
  WC_ASSIGN(auto weights, engine_weights(decoder));
  Result<std::unique_ptr<Engine>> made = Engine::make(std::move(weights), kNoVersion, engine_options);
  if (!made.has_value()) {
    made.error().detail += "; lower generator_batch_size or max_new_tokens";
    return std::move(made).error();
  }
  return Completer(std::move(options), *std::move(made));
}

Result<std::vector<Completion>> Completer::complete(std::span<const CompletionRequest> requests) {
  std::vector<Completion> completions(requests.size());
  for (std::size_t i = 0; i < requests.size(); ++i) {
    EngineRequest request;
    request.prompt = requests[i].prompt;
    request.sampling.temperature = options_.temperature;
    request.sampling.top_p = options_.top_p;
    request.seed = requests[i].seed;
    request.tokens_max = options_.tokens_max;
    request.tag = i;
    WC_TRY(engine_->add(std::move(request)));
  }
  while (engine_->busy()) {
    if (options_.check) WC_TRY(options_.check());
    for (const EngineEvent& event : engine_->step()) {
      if (event.finished == FinishReason::kFailed) {
        return fail(Errc::kInvalidArgument, Op::kVerify, "the model: its logits are not finite; it has diverged");
      }
      for (const EngineToken& token : event.tokens) {
        completions[event.tag].tokens.push_back(token.token);
        completions[event.tag].log_probs.push_back(token.log_prob);
      }
    }
  }
  return completions;
}

EngineStatus Completer::status() const { return engine_->status(); }

}  // namespace weightcast
