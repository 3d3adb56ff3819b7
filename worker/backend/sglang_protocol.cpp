// SGLang: docs/advanced_features/sglang_for_rl.md, docs/basic_usage/native_api.md,
// python/sglang/srt/managers/io_struct.py and layers/sampler.py, August 2026. Its log-probabilities are log
// softmax(logits / temperature) over the whole vocabulary, whatever is cut, unless SGLANG_RETURN_ORIGINAL_LOGPROB is
// set: InstallCheck finds that.
#include <fmt/format.h>

#include <atomic>
#include <string>
#include <utility>

#include "base/json_text.h"
#include "base/steady_clock.h"
#include "base/text.h"
#include "worker/backend/backend_json.h"

namespace weightcast {
namespace {

using Json = nlohmann::json;

constexpr const char* kContextFlagOfSglang = "--context-length";

class SglangProtocol final : public BackendProtocol {
 public:
  explicit SglangProtocol(BackendProtocolOptions options) : options_(std::move(options)) {}

  Result<BackendServer> examine(const BackendCall& call, const BackendNeeds& needs, Duration limit) override {
    const Instant deadline = steady_now() + limit;
    WC_TRY(check_served_model(call, "", needs, kContextFlagOfSglang, deadline - steady_now()));
    WC_ASSIGN(const Json info, get_either(call, "/server_info", "/get_server_info", deadline - steady_now()));
    WC_TRY(check_quantisation(info.value("quantization", Json()), needs));
    if (needs.log_probs && needs.sampling.repetition_penalty != 1) {
      return fail(Errc::kInvalidArgument, Op::kConfigure,
                  "SGLang's log-probabilities are of penalised logits; set repetition_penalty = 1");
    }
    const auto text = [&](const char* name) {
      const Json value = info.value(name, Json());
      return value.is_string() ? value.get<std::string>() : std::string();
    };
    start_model_ = text("model_path");
    const std::string dtype = text("dtype");
    return BackendServer{"SGLang " + text("version"), dtype == "auto" ? "" : dtype, start_model_};
  }

  bool says_versions() const override { return true; }

  HttpCall completion(const EngineRequest& request, const std::string&) const override {
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
    Json body = {
        {"input_ids", request.prompt}, {"sampling_params", sampling}, {"return_logprob", true}, {"stream", false}};
    // Where keys and values of the version before stay, new prompts must not find theirs among them.
    if (const std::uint64_t salt = salt_; salt != 0) body["extra_key"] = std::to_string(salt);
    return backend_post("/generate", body);
  }

  Result<BackendAnswer> read_completion(const HttpResponse& response, const EngineRequest& request,
                                        const std::string&) const override {
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

  Result<Version> install(FileSystem&, const BackendCall& call, const BackendInstall& order, Duration limit) override {
    // retract: what is under way goes back to the queue, and its keys and values are computed again. in_place: they
    // stay.
    const bool keeps = order.on_switch == BackendSwitch::kKeep;
    const char* mode = keeps ? "in_place" : goes_on(order.on_switch) ? "retract" : "abort";
    WC_TRY(
        load(call, mode, order.directory.string(), std::to_string(order.version.value), !keeps, steady_now() + limit));
    salt_ = keeps ? order.version.value : 0;
    return order.version;
  }

  Result<Version> installed(const BackendCall& call, Duration limit) override {
    // Later releases have the first alone.
    WC_ASSIGN(const Json json, get_either(call, "/model_info", "/get_weight_version", limit));
    return read_version_label(json.value("weight_version", Json()));
  }

  Status hold(const BackendCall& call, Duration limit) override {
    return read_backend_ok("/pause_generation", call(backend_post("/pause_generation", {{"mode", "abort"}}), limit));
  }

  Status restore(const BackendCall& call, Duration limit) override {
    return load(call, "abort", start_model_, "default", true, steady_now() + limit);
  }

 private:
  /// An error leaves it paused.
  static Status load(const BackendCall& call, const char* mode, const std::string& path, const std::string& label,
                     bool drops_cache, Instant deadline) {
    const auto post = [&](const std::string& target, const Json& body) {
      return call(backend_post(target, body), deadline - steady_now());
    };
    WC_TRY(read_backend_ok("/pause_generation", post("/pause_generation", {{"mode", mode}})));
    const Result<Json> updated = read_backend_json("/update_weights_from_disk",
                                                   post("/update_weights_from_disk", {{"model_path", path},
                                                                                      {"weight_version", label},
                                                                                      {"flush_cache", drops_cache},
                                                                                      {"abort_all_requests", false}}));
    WC_TRY(updated);
    if (updated->value("success", Json()) != true) {
      const Json words = updated->value("message", Json());
      return fail(Errc::kInvalidArgument, Op::kInstall,
                  "/update_weights_from_disk: the server says: " +
                      printable(cut_text(words.is_string() ? words.get<std::string>() : "nothing", 300)));
    }
    return read_backend_ok("/continue_generation", post("/continue_generation", Json::object()));
  }

  /// By the second route where the first is not there.
  static Result<Json> get_either(const BackendCall& call, const char* target, const char* older, Duration limit) {
    Result<Json> json = read_backend_json(target, call({.target = target}, limit));
    if (json.has_value() || json.error().code != Errc::kUnsupported) return json;
    return read_backend_json(older, call({.target = older}, limit));
  }

  const BackendProtocolOptions options_;
  std::string start_model_;  // its weights when it was started
  std::atomic<std::uint64_t> salt_ = 0;
};

}  // namespace

std::unique_ptr<BackendProtocol> make_sglang_protocol(BackendProtocolOptions options) {
  return std::make_unique<SglangProtocol>(std::move(options));
}

}  // namespace weightcast
