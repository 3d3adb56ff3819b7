#include "worker/backend/backend_protocol.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "base/json_text.h"
#include "base/text.h"
#include "trainer/tasks/trajectory/trajectory.h"
#include "worker/backend/backend_json.h"

namespace weightcast {
namespace {

using Json = nlohmann::json;

// Servers compute in FP32, where the logarithm of a probability of 1 may come out a little above 0.
constexpr double kLogProbSlack = 1e-3;
constexpr std::size_t kServerWordsMax = 300;

Errc code_of(unsigned status) {
  if (status == 429 || status >= 500) return Errc::kBusy;
  return status == 404 || status == 405 ? Errc::kUnsupported : Errc::kInvalidArgument;
}

/// The reason in an answer that is an error: OpenAI's form, FastAPI's, SGLang's, or all of it.
std::string words_of(const HttpResponse& response) {
  const Json json = parse_json(response.body);
  std::string words = response.body;
  if (json.is_object()) {
    for (const char* name : {"error", "detail", "message", "data"}) {
      const Json value = json.value(name, Json());
      if (value.is_string()) words = value.get<std::string>();
      if (value.is_object() && value.contains("message") && value["message"].is_string()) {
        words = value["message"].get<std::string>();
      }
      if (!value.is_null()) break;
    }
  }
  return printable(cut_text(words, kServerWordsMax));
}

Error nonsense(std::string why) { return fail(Errc::kCorrupt, Op::kReceive, "the server's answer: " + std::move(why)); }

}  // namespace

Status BackendProtocol::examine(const BackendCall&, const BackendNeeds&, Duration) { return {}; }
Status BackendProtocol::install(FileSystem&, const BackendCall&, Version, const std::filesystem::path&, Duration) {
  return fail(Errc::kUnsupported, Op::kInstall, "the server follows versions by itself");
}

std::unique_ptr<BackendProtocol> make_backend_protocol(BackendKind kind, BackendProtocolOptions options) {
  switch (kind) {
    case BackendKind::kVllm: return make_vllm_protocol(std::move(options));
    case BackendKind::kSglang: return make_sglang_protocol(std::move(options));
    case BackendKind::kParallax: return make_parallax_protocol(std::move(options));
    case BackendKind::kWeightcast: break;
  }
  return make_weightcast_protocol(std::move(options));
}

Result<Json> read_backend_json(std::string_view what, const Result<HttpResponse>& response) {
  if (!response.has_value()) return about(what, response.error());
  if (response->status / 100 != 2) {
    return fail(code_of(response->status), Op::kReceive,
                fmt::format("{}: the server answers {}: {}", what, response->status, words_of(*response)));
  }
  Json json = parse_json(response->body);
  if (!json.is_object()) {
    return fail(Errc::kCorrupt, Op::kReceive, fmt::format("{}: the server's answer is no JSON object", what));
  }
  return json;
}

HttpCall backend_post(std::string target, const Json& body) {
  return {.method = "POST", .target = std::move(target), .content_type = "application/json", .body = json_text(body)};
}

Version read_version_label(const Json& label) {
  if (label.is_number_unsigned()) return Version{label.get<std::uint64_t>()};
  if (!label.is_string()) return kNoVersion;
  const auto number = parse_number<std::uint64_t>(label.get_ref<const std::string&>());
  return number ? Version{*number} : kNoVersion;
}

Result<std::vector<EngineToken>> read_tokens(const Json& ids, const Json* log_probs, const EngineRequest& request,
                                             std::uint64_t vocab_size) {
  if (!ids.is_array() || ids.empty()) return nonsense("it has no token ids");
  if (ids.size() > request.tokens_max) {
    return nonsense(fmt::format("{} tokens, and {} were asked for at most", ids.size(), request.tokens_max));
  }
  if (log_probs != nullptr && (!log_probs->is_array() || log_probs->size() != ids.size())) {
    return nonsense(fmt::format("{} tokens with {} log-probabilities", ids.size(),
                                log_probs->is_array() ? std::to_string(log_probs->size()) : "no"));
  }
  std::vector<EngineToken> tokens(ids.size());
  for (std::size_t i = 0; i < ids.size(); ++i) {
    if (!ids[i].is_number_unsigned() || ids[i].get<std::uint64_t>() >= vocab_size) {
      return nonsense(fmt::format("token {} is {}; ids of this model are 0 to {}", i, json_text(ids[i]).substr(0, 40),
                                  vocab_size - 1));
    }
    tokens[i].token = ids[i].get<TokenId>();
    if (log_probs == nullptr) continue;
    const Json& one = (*log_probs)[i];
    const double value = one.is_number() ? one.get<double>() : NAN;
    if (!(value >= TrajectoryRules::kLogprobMin && value <= kLogProbSlack)) {
      return nonsense(fmt::format("the log-probability of token {} is {}", i, printable(json_text(one).substr(0, 40))));
    }
    tokens[i].log_prob = static_cast<float>(std::min(value, 0.0));
  }
  return tokens;
}

Result<FinishReason> read_finish_reason(const Json& reason) {
  if (reason == "stop") return FinishReason::kStopToken;
  if (reason == "length") return FinishReason::kLength;
  if (reason == "abort") return fail(Errc::kBusy, Op::kReceive, "the server ended the answer: somebody aborted it");
  return nonsense("finish_reason is " + printable(json_text(reason).substr(0, 40)));
}

Status read_version_spans(const Json& spans, std::vector<EngineToken>& tokens) {
  std::size_t next = 0;
  for (const Json& span : spans) {
    const bool fits = span.is_object() && span.value("start", Json()).is_number_unsigned() &&
                      span.value("end", Json()).is_number_unsigned() && span["start"] == next &&
                      span["end"] >= span["start"] && span["end"] <= tokens.size();
    if (!fits) return nonsense(fmt::format("weight_versions does not divide its {} tokens", tokens.size()));
    const Version version = read_version_label(span.value("version", Json()));
    for (const std::size_t end = span["end"].get<std::size_t>(); next < end; ++next) tokens[next].version = version;
  }
  if (next == tokens.size()) return {};
  return nonsense(fmt::format("weight_versions covers {} of {} tokens", next, tokens.size()));
}

Status check_answer_length(const BackendAnswer& answer, const EngineRequest& request, std::uint64_t positions_max,
                           std::string_view flag) {
  const std::size_t tokens = answer.tokens.size();
  if (answer.finished != FinishReason::kLength || tokens == request.tokens_max) return {};
  if (positions_max != 0 && request.prompt.size() + tokens >= positions_max) return {};
  return nonsense(
      fmt::format("it was cut after {} of {} tokens, behind a prompt of {}: the server's context is too "
                  "short; start it with {}",
                  tokens, request.tokens_max, request.prompt.size(), flag));
}

Status check_served_model(const BackendCall& call, const std::string& model, const BackendNeeds& needs,
                          std::string_view flag, Duration limit) {
  WC_ASSIGN(const Json json, read_backend_json("/v1/models", call({.target = "/v1/models"}, limit)));
  const Json models = json.value("data", Json());
  std::string names;
  for (const Json& one : models) {
    const Json name = one.is_object() ? one.value("id", Json()) : Json();
    if (!name.is_string()) continue;
    names += (names.empty() ? "" : ", ") + name.get<std::string>();
    if (!model.empty() && name != model) continue;
    const Json context = one.value("max_model_len", Json());
    if (!context.is_number_unsigned() || context.get<std::uint64_t>() >= needs.context_tokens) return {};
    return fail(Errc::kInvalidArgument, Op::kConfigure,
                fmt::format("its context is {} tokens, and a rollout of this run has up to {}; start it with {} {}",
                            context.get<std::uint64_t>(), needs.context_tokens, flag, needs.context_tokens));
  }
  if (names.empty()) return nonsense("/v1/models names no model");
  return fail(Errc::kInvalidArgument, Op::kConfigure,
              fmt::format("it has no model {}; set backend_model to what it has: {}", printable(model),
                          printable(cut_text(names, kServerWordsMax))));
}

Status check_quantisation(const Json& quantisation, const BackendNeeds& needs) {
  if (quantisation.is_null() || quantisation == "" || !needs.log_probs) return {};
  return fail(Errc::kInvalidArgument, Op::kConfigure,
              fmt::format("it quantises the model ({}), so its log-probabilities are not the learner's; start it "
                          "without --quantization, or set behaviour_logprobs = \"recompute\" at the learner",
                          printable(json_text(quantisation).substr(0, 40))));
}

bool is_uncut(const SamplingOptions& sampling) {
  return sampling.top_p == 1 && sampling.top_k == 0 && sampling.min_p == 0;
}

HttpCall completions_call(const EngineRequest& request, std::uint64_t seed, const std::string& model, bool log_probs) {
  // All that a server may take from its model's generation_config.json is said.
  Json body = {{"prompt", request.prompt},
               {"max_tokens", request.tokens_max},
               {"temperature", request.sampling.temperature},
               {"top_p", request.sampling.top_p},
               {"top_k", request.sampling.top_k == 0 ? -1 : request.sampling.top_k},
               {"min_p", request.sampling.min_p},
               {"repetition_penalty", request.sampling.repetition_penalty},
               {"seed", seed},
               {"n", 1},
               {"stop_token_ids", request.stop_tokens},
               {"ignore_eos", true},
               {"return_token_ids", true}};
  if (log_probs) body["logprobs"] = 0;
  if (!model.empty()) body["model"] = model;
  return backend_post("/v1/completions", body);
}

Result<Json> read_choice(std::string_view route, const HttpResponse& response) {
  WC_ASSIGN(Json json, read_backend_json(route, response));
  Json choices = json.value("choices", Json());
  if (!choices.is_array() || choices.size() != 1 || !choices[0].is_object()) return nonsense("it has not one choice");
  return std::move(choices[0]);
}

Result<BackendAnswer> read_choice_tokens(const Json& choice, const EngineRequest& request, std::uint64_t vocab_size,
                                         bool log_probs) {
  BackendAnswer answer;
  WC_ASSIGN(answer.finished, read_finish_reason(choice.value("finish_reason", Json())));
  const Json all = choice.value("logprobs", Json());
  const Json values = all.is_object() ? all.value("token_logprobs", Json()) : Json();
  WC_ASSIGN(answer.tokens,
            read_tokens(choice.value("token_ids", Json()), log_probs ? &values : nullptr, request, vocab_size));
  return answer;
}

}  // namespace weightcast
