// vLLM 0.32.0 started with VLLM_SERVER_DEV_MODE=1: vllm/entrypoints/{rl/online,serve/dev/*,serve/instrumentator,
// scale_out/token_in_token_out}/api_router.py, vllm/entrypoints/openai/completion/protocol.py, and of
// adapters python/weightcast/vllm.
#include <fmt/format.h>

#include <charconv>
#include <optional>
#include <string>
#include <utility>

#include "base/json_text.h"
#include "base/steady_clock.h"
#include "base/text.h"
#include "worker/backend/backend_json.h"

namespace weightcast {
namespace {

using Json = nlohmann::json;

constexpr const char* kGenerate = "/inference/v1/generate";
constexpr const char* kContextFlagOfVllm = "--max-model-len";
struct Release {
  int major = 0, minor = 0;
  auto operator<=>(const Release&) const = default;
};
constexpr Release kOldest{0, 27};            // /weight_info, /update_weight_version
constexpr Release kVersionsOfTokens{0, 32};  // weight_versions in the answers of kGenerate

/// "0.32.0+cpu". Absent for builds between releases, which have no such number: "0.1.dev1+g12ab", "dev".
std::optional<Release> parse_release(std::string_view text) {
  Release release;
  const char* end = text.data() + text.size();
  const auto major = std::from_chars(text.data(), end, release.major);
  if (major.ec != std::errc() || major.ptr == end || *major.ptr != '.') return std::nullopt;
  const auto minor = std::from_chars(major.ptr + 1, end, release.minor);
  if (minor.ec != std::errc() || text.find("dev") != std::string_view::npos) return std::nullopt;
  return release;
}

std::string text_of(const Json& json, const char* name) {
  const Json value = json.is_object() ? json.value(name, Json()) : Json();
  return value.is_string() ? value.get<std::string>() : "";
}

/// vllm/v1/sample/sampler.py: raw values are log softmax(logits), before temperature and cuts; processed ones are of
/// what is drawn from, which a cut has scaled to a sum of 1 again.
Status check_log_probs(const std::string& mode, const SamplingOptions& sampling) {
  const auto refuse = [](std::string why) { return fail(Errc::kInvalidArgument, Op::kConfigure, std::move(why)); };
  const bool raw_fits = (sampling.temperature == 1 || sampling.temperature == 0) && sampling.repetition_penalty == 1;
  const bool processed_fits = is_uncut(sampling) || sampling.temperature == 0;
  if ((mode == "raw_logprobs" && raw_fits) || (mode == "processed_logprobs" && processed_fits)) return {};
  if (raw_fits || processed_fits) {
    return refuse(fmt::format(
        "its log-probabilities are {}; a run at temperature {} and top_p {} needs it started with "
        "--logprobs-mode {}",
        printable(mode), sampling.temperature, sampling.top_p, processed_fits ? "processed_logprobs" : "raw_logprobs"));
  }
  return refuse(
      fmt::format("vLLM has no log-probabilities over the whole vocabulary at temperature {} with top_p {}; set "
                  "top_p = 1, temperature = 1 or behaviour_logprobs = \"recompute\" at the learner",
                  sampling.temperature, sampling.top_p));
}

class VllmProtocol final : public BackendProtocol {
 public:
  explicit VllmProtocol(BackendProtocolOptions options) : options_(std::move(options)) {}

  Status examine(const BackendCall& call, const BackendNeeds& needs, Duration limit) override {
    const Instant deadline = steady_now() + limit;
    const auto get = [&](const char* target) {
      return explained(read_backend_json(target, call({.target = target}, deadline - steady_now())));
    };
    WC_ASSIGN(const Json version, get("/version"));
    const std::string name = text_of(version, "version");
    const std::optional<Release> release = parse_release(name);
    if (release && *release < kOldest) {
      return fail(Errc::kUnsupported, Op::kConfigure,
                  fmt::format("it is vLLM {}, and 0.27 is the first that says which weights it has", printable(name)));
    }
    WC_TRY(get("/weight_info"));
    const HttpCall status{.target = "/weightcast/status"};
    WC_ASSIGN(const HttpResponse follows, call(status, deadline - steady_now()));
    if (follows.status == 404) {
      return fail(Errc::kUnsupported, Op::kConfigure,
                  "it does not follow this host's daemon; start it with VLLM_PLUGINS=weightcast, as docs/VLLM.md says");
    }
    // An adapter has no name there before its first version.
    WC_TRY(check_served_model(call, options_.is_adapter ? "" : options_.model, needs, kContextFlagOfVllm,
                              deadline - steady_now()));
    WC_ASSIGN(const Json info, get("/server_info?config_format=json"));
    const Json config = info.value("vllm_config", Json());
    const Json model = config.is_object() ? config.value("model_config", Json()) : Json();
    if (!model.is_object()) {
      return fail(Errc::kCorrupt, Op::kReceive, "/server_info: the server's answer has no vllm_config.model_config");
    }
    WC_TRY(check_quantisation(model.value("quantization", Json()), needs));
    if (needs.log_probs) WC_TRY(check_log_probs(text_of(model, "logprobs_mode"), needs.sampling));
    // GET is not one of the route's methods.
    WC_ASSIGN(const HttpResponse route, call({.target = kGenerate}, deadline - steady_now()));
    const bool generates = route.status != 404 && (!release || *release >= kVersionsOfTokens);
    if (!generates && generates_ == true) {
      return fail(Errc::kUnsupported, Op::kConfigure,
                  fmt::format("vLLM {} does not say under which weights it sampled a token any more; start it with "
                              "--enable-scale-out, as before",
                              printable(name)));
    }
    if (!generates_) generates_ = generates;
    return {};
  }

  bool says_versions() const override { return options_.is_adapter || generates_.value_or(false); }

  HttpCall completion(const EngineRequest& request) const override {
    // Seeds are numbers of 64 bits with a sign.
    if (generates_ != true) return completions_call(request, request.seed >> 1, options_.model, true);
    Json body = {{"token_ids", request.prompt},
                 {"sampling_params",
                  {{"max_tokens", request.tokens_max},
                   {"temperature", request.sampling.temperature},
                   {"top_p", request.sampling.top_p},
                   {"top_k", request.sampling.top_k},
                   {"min_p", request.sampling.min_p},
                   {"repetition_penalty", request.sampling.repetition_penalty},
                   {"seed", request.seed >> 1},
                   {"stop_token_ids", request.stop_tokens},
                   {"ignore_eos", true},
                   {"logprobs", 0},
                   {"detokenize", false}}}};
    if (!options_.model.empty()) body["model"] = options_.model;
    return backend_post(kGenerate, body);
  }

  Result<BackendAnswer> read_completion(const HttpResponse& response, const EngineRequest& request) const override {
    // The name of an adapter that has no version yet.
    if (options_.is_adapter && response.status == 404) {
      return fail(Errc::kBusy, Op::kReceive, fmt::format("the server has no version of {} yet", options_.model));
    }
    WC_ASSIGN(BackendAnswer answer,
              generates_ == true ? read_generated(response, request) : read_text(response, request));
    if (options_.is_adapter) {
      const Version version = adapter_version(text_of(parse_json(response.body), "model"));
      for (EngineToken& token : answer.tokens) token.version = version;
    }
    WC_TRY(check_answer_length(answer, request, options_.positions_max, kContextFlagOfVllm));
    return answer;
  }

  Result<Version> installed(const BackendCall& call, Duration limit) override {
    if (options_.is_adapter) {
      WC_ASSIGN(const Json json, read_backend_json("/v1/models", call({.target = "/v1/models"}, limit)));
      for (const Json& model : json.value("data", Json())) {
        if (text_of(model, "id") == options_.model) return adapter_version(text_of(model, "root"));
      }
      return kNoVersion;
    }
    WC_ASSIGN(const Json json, explained(read_backend_json("/weight_info", call({.target = "/weight_info"}, limit))));
    return read_version_label(json.value("weight_version", Json()));
  }

 private:
  /// "math@7-1f2e3d4c5b6a" as Version 7; kNoVersion for another adapter's, or none.
  [[nodiscard]] Version adapter_version(std::string_view name) const {
    if (!name.starts_with(options_.model)) return kNoVersion;
    name.remove_prefix(options_.model.size());
    const std::size_t end = name.find('-');
    if (!name.starts_with('@') || end == std::string_view::npos) return kNoVersion;
    return read_version_label(std::string(name.substr(1, end - 1)));
  }

  static Result<Json> explained(Result<Json> result) {
    if (result.has_value() || result.error().code != Errc::kUnsupported) return result;
    Error error = result.error();
    error.detail += "; start vLLM 0.27 or later with VLLM_SERVER_DEV_MODE=1";
    return error;
  }

  Result<BackendAnswer> read_text(const HttpResponse& response, const EngineRequest& request) const {
    WC_ASSIGN(const Json choice, read_choice("/v1/completions", response));
    return read_choice_tokens(choice, request, options_.vocab_size, true);
  }

  Result<BackendAnswer> read_generated(const HttpResponse& response, const EngineRequest& request) const {
    WC_ASSIGN(const Json choice, read_choice(kGenerate, response));
    BackendAnswer answer;
    WC_ASSIGN(answer.finished, read_finish_reason(choice.value("finish_reason", Json())));
    const Json all = choice.value("logprobs", Json());
    const Json content = all.is_object() ? all.value("content", Json()) : Json();
    Json values = Json::array();
    for (const Json& one : content) values.push_back(one.is_object() ? one.value("logprob", Json()) : Json());
    WC_ASSIGN(answer.tokens, read_tokens(choice.value("token_ids", Json()), &values, request, options_.vocab_size));
    WC_TRY(read_version_spans(choice.value("weight_versions", Json()), answer.tokens));
    return answer;
  }

  const BackendProtocolOptions options_;
  std::optional<bool> generates_;  // kGenerate is there; from the first examine() on
};

}  // namespace

std::unique_ptr<BackendProtocol> make_vllm_protocol(BackendProtocolOptions options) {
  return std::make_unique<VllmProtocol>(std::move(options));
}

}  // namespace weightcast
