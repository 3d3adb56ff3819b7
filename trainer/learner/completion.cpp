#include "trainer/learner/completion.h"

#include <algorithm>
#include <memory>

#include "model/weights.h"
#include "worker/engine/engine.h"

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

Result<std::vector<Completion>> complete(const Decoder& decoder, std::span<const CompletionRequest> requests,
                                         const CompletionOptions& options) {
  std::vector<Completion> completions(requests.size());
  if (requests.empty()) return completions;
  std::size_t longest = 0;
  for (const CompletionRequest& request : requests) longest = std::max(longest, request.prompt.size());
  EngineOptions engine_options;
  engine_options.cache_bytes_max = options.cache_bytes_max;
  engine_options.context_max = longest + options.tokens_max;
  engine_options.running_max = requests.size();
  engine_options.waiting_max = requests.size();
  engine_options.end_tokens = {options.end_token};
  engine_options.threads = options.threads;
  WC_ASSIGN(auto weights, engine_weights(decoder));
  Result<std::unique_ptr<Engine>> made = Engine::make(std::move(weights), kNoVersion, engine_options);
  if (!made.has_value()) {
    made.error().detail += "; lower generator_batch_size or max_new_tokens";
    return std::move(made).error();
  }
  const std::unique_ptr<Engine> engine = *std::move(made);
  for (std::size_t i = 0; i < requests.size(); ++i) {
    EngineRequest request;
    request.prompt = requests[i].prompt;
    request.sampling.temperature = options.temperature;
    request.sampling.top_p = options.top_p;
    request.seed = requests[i].seed;
    request.tokens_max = options.tokens_max;
    request.tag = i;
    WC_TRY(engine->add(std::move(request)));
  }
  while (engine->busy()) {
    if (options.check) WC_TRY(options.check());
    for (const EngineEvent& event : engine->step()) {
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

}  // namespace weightcast
