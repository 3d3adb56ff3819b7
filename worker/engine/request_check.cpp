#include "worker/engine/request_check.h"

#include <fmt/format.h>

#include <string>
#include <string_view>
#include <utility>

#include "worker/engine/sampling/sampler.h"

namespace weightcast {
namespace {

Error refuse(std::string why) { return fail(Errc::kInvalidArgument, Op::kConfigure, "request: " + std::move(why)); }

bool is_token(TokenId token, const ModelConfig& config) { return token >= 0 && token < config.vocab_size; }

Status check_token(TokenId token, std::string_view what, const ModelConfig& config) {
  if (is_token(token, config)) return {};
  return refuse(
      fmt::format("{} has {}, which is no token; the model's are 0 to {}", what, token, config.vocab_size - 1));
}

}  // namespace

Status check_options(const EngineOptions& options, const ModelConfig& config) {
  const auto wrong = [](std::string_view what) {
    return fail(Errc::kInvalidArgument, Op::kConfigure, fmt::format("engine: {} is 0; it is 1 at least", what));
  };
  if (options.running_max == 0) return wrong("running_max");
  if (options.waiting_max == 0) return wrong("waiting_max");
  if (options.step_tokens_max == 0) return wrong("step_tokens_max");
  if (options.threads == 0) return wrong("threads");
  for (const TokenId token : options.end_tokens) {
    if (is_token(token, config)) continue;
    return fail(Errc::kInvalidArgument, Op::kConfigure,
                fmt::format("engine: end_tokens has {}, which is no token; the model's are 0 to {}", token,
                            config.vocab_size - 1));
  }
  return {};
}

Status check_request(const EngineRequest& request, const EngineOptions& options, const ModelConfig& config,
                     std::size_t context_max) {
  if (request.prompt.empty()) return refuse("the prompt is empty; it has one token at least");
  if (request.prompt.size() >= context_max) {
    return fail(Errc::kTooLarge, Op::kConfigure,
                fmt::format("request: the prompt has {} tokens, and the context {}, one of which is the answer's",
                            request.prompt.size(), context_max));
  }
  for (const TokenId token : request.prompt) WC_TRY(check_token(token, "the prompt", config));
  WC_TRY(check_sampling(request.sampling));
  if (request.tokens_max == 0) return refuse("tokens_max is 0; an answer has one token at least");
  if (request.stop_tokens.size() > kStopTokensMax) {
    return refuse(fmt::format("it has {} stop tokens, and may have {}", request.stop_tokens.size(), kStopTokensMax));
  }
  for (const TokenId token : request.stop_tokens) WC_TRY(check_token(token, "stop_tokens", config));
  if (request.stop_strings.size() > kStopStringsMax) {
    return refuse(fmt::format("it has {} stop strings, and may have {}", request.stop_strings.size(), kStopStringsMax));
  }
  for (const std::string& string : request.stop_strings) {
    if (string.empty() || string.size() > kStopStringBytesMax) {
      return refuse(fmt::format("a stop string has {} bytes; it has 1 to {}", string.size(), kStopStringBytesMax));
    }
  }
  if (!request.stop_strings.empty() && !options.token_bytes) {
    return refuse("it has stop strings, and the engine has no tokenizer; use stop tokens");
  }
  if (request.top > kTopMax) {
    return refuse(fmt::format("it asks for {} alternatives, and may for {}", request.top, kTopMax));
  }
  return {};
}

}  // namespace weightcast
