// SGLang: docs/advanced_features/sglang_for_rl.md, docs/basic_usage/native_api.md,
// python/sglang/srt/managers/io_struct.py and layers/sampler.py, August 2026. Its log-probabilities are log
// softmax(logits / temperature) over the whole vocabulary, whatever is cut, unless SGLANG_RETURN_ORIGINAL_LOGPROB is
// set.
#include <fmt/format.h>

#include <string>
#include <utility>

#include "base/json_text.h"
#include "base/steady_clock.h"
#include "worker/backend/backend_json.h"

namespace weightcast {
namespace {

using Json = nlohmann::json;

constexpr const char* kContextFlagOfSglang = "--context-length";

class SglangProtocol final : public BackendProtocol {
 public:
  explicit SglangProtocol(BackendProtocolOptions options) : options_(std::move(options)) {}

  Status examine(const BackendCall& call, const BackendNeeds& needs, Duration limit) override {
    const Instant deadline = steady_now() + limit;
    WC_TRY(check_served_model(call, "", needs, kContextFlagOfSglang, deadline - steady_now()));
    WC_ASSIGN(const Json info, get_either(call, "/server_info", "/get_server_info", deadline - steady_now()));
    WC_TRY(check_quantisation(info.value("quantization", Json()), needs));
    if (needs.log_probs && needs.sampling.repetition_penalty != 1) {
      return fail(Errc::kInvalidArgument, Op::kConfigure,
                  "SGLang's log-probabilities are of penalised logits; set repetition_penalty = 1");
    }
    return {};
  }

  bool says_versions() const override { return true; }

  HttpCall completion(const EngineRequest& request) const override {
    const Json sampling = {{"temperature", request.sampling.temperature},
                           {"top_p", request.sampling.top_p},
                           {"top_k", request.sampling.top_k == 0 ? -1 : request.sampling.top_k},
                           {"min_p", request.sampling.min_p},
                           {"repetition_penalty", request.sampling.repetition_penalty},
                           {"max_new_tokens", request.tokens_max},
                           {"stop_token_ids", request.stop_tokens},
                           {"ignore_eos", true},
                           {"no_stop_trim", true},
                           // Counts with --enable-deterministic-inference.
                           {"sampling_seed", request.seed >> 33}};
    return backend_post(
        "/generate",
        {{"input_ids", request.prompt}, {"sampling_params", sampling}, {"return_logprob", true}, {"stream", false}});
  }

  Result<BackendAnswer> read_completion(const HttpResponse& response, const EngineRequest& request) const override {
    WC_ASSIGN(const Json json, read_backend_json("/generate", response));
    const Json meta = json.value("meta_info", Json());
    if (!meta.is_object()) return fail(Errc::kCorrupt, Op::kReceive, "the server's answer has no meta_info");
    const Json pairs = meta.value("output_token_logprobs", Json());
    Json ids = Json::array(), log_probs = Json::array();
    for (const Json& pair : pairs) {
      if (!pair.is_array() || pair.size() < 2) {
        return fail(Errc::kCorrupt, Op::kReceive, "the server's answer: output_token_logprobs are no pairs");
      }
      log_probs.push_back(pair[0]);
      ids.push_back(pair[1]);
    }
    BackendAnswer answer;
    const Json reason = meta.value("finish_reason", Json());
    WC_ASSIGN(answer.finished, read_finish_reason(reason.is_object() ? reason.value("type", Json()) : reason));
    WC_ASSIGN(answer.tokens, read_tokens(ids, &log_probs, request, options_.vocab_size));
    const Json spans = meta.value("weight_versions", Json());
    if (spans.is_array() && !spans.empty()) {
      WC_TRY(read_version_spans(spans, answer.tokens));
    } else {
      const Version version = read_version_label(meta.value("weight_version", Json()));
      for (EngineToken& token : answer.tokens) token.version = version;
    }
    WC_TRY(check_answer_length(answer, request, options_.positions_max, kContextFlagOfSglang));
    return answer;
  }

  Result<Version> installed(const BackendCall& call, Duration limit) override {
    // Later releases have the first alone.
    WC_ASSIGN(const Json json, get_either(call, "/model_info", "/get_weight_version", limit));
    return read_version_label(json.value("weight_version", Json()));
  }

 private:
  /// By the second route where the first is not there.
  static Result<Json> get_either(const BackendCall& call, const char* target, const char* older, Duration limit) {
    Result<Json> json = read_backend_json(target, call({.target = target}, limit));
    if (json.has_value() || json.error().code != Errc::kUnsupported) return json;
    return read_backend_json(older, call({.target = older}, limit));
  }

  const BackendProtocolOptions options_;
};

}  // namespace

std::unique_ptr<BackendProtocol> make_sglang_protocol(BackendProtocolOptions options) {
  return std::make_unique<SglangProtocol>(std::move(options));
}

}  // namespace weightcast
