// SGLang: docs/advanced_features/sglang_for_rl.md and python/sglang/srt/managers/io_struct.py, August 2026.
#include <fmt/format.h>

#include <algorithm>
#include <string>
#include <utility>

#include "base/json_text.h"
#include "base/steady_clock.h"
#include "base/text.h"
#include "worker/backend/backend_json.h"

namespace weightcast {
namespace {

using Json = nlohmann::json;

/// Sets the versions of tokens by the spans that a server which changed weights meanwhile gives.
Status set_versions(const Json& meta, std::vector<EngineToken>& tokens) {
  const Json spans = meta.value("weight_versions", Json());
  if (!spans.is_array() || spans.empty()) {
    const Version version = read_version_label(meta.value("weight_version", Json()));
    for (EngineToken& token : tokens) token.version = version;
    return {};
  }
  std::size_t next = 0;
  for (const Json& span : spans) {
    const bool fits = span.is_object() && span.value("start", Json()).is_number_unsigned() &&
                      span.value("end", Json()).is_number_unsigned() && span["start"] == next &&
                      span["end"] >= span["start"] && span["end"] <= tokens.size();
    if (!fits) {
      return fail(Errc::kCorrupt, Op::kReceive,
                  fmt::format("the server's answer: weight_versions does not divide its {} tokens", tokens.size()));
    }
    const Version version = read_version_label(span.value("version", Json()));
    for (const std::size_t end = span["end"].get<std::size_t>(); next < end; ++next) tokens[next].version = version;
  }
  if (next == tokens.size()) return {};
  return fail(Errc::kCorrupt, Op::kReceive,
              fmt::format("the server's answer: weight_versions covers {} of {} tokens", next, tokens.size()));
}

class SglangProtocol final : public BackendProtocol {
 public:
  explicit SglangProtocol(BackendProtocolOptions options) : options_(std::move(options)) {}

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
    WC_TRY(set_versions(meta, answer.tokens));
    return answer;
  }

  Result<Version> install(FileSystem&, const BackendCall& call, const BackendInstall& order, Duration limit) override {
    const Instant deadline = steady_now() + limit;
    const auto post = [&](const std::string& target, const Json& body) {
      return call(backend_post(target, body), deadline - steady_now());
    };
    // retract: what is under way goes back to the queue, and its keys and values are computed again.
    WC_TRY(
        read_ok("/pause_generation", post("/pause_generation", {{"mode", order.keeps_answers ? "retract" : "abort"}})));
    const Result<Json> updated =
        read_backend_json("/update_weights_from_disk",
                          post("/update_weights_from_disk", {{"model_path", order.directory.string()},
                                                             {"weight_version", std::to_string(order.version.value)},
                                                             {"flush_cache", true},
                                                             {"abort_all_requests", false}}));
    WC_TRY(updated);
    if (updated->value("success", Json()) != true) {
      const Json words = updated->value("message", Json());
      return fail(Errc::kInvalidArgument, Op::kInstall,
                  "/update_weights_from_disk: the server says: " +
                      printable(cut_text(words.is_string() ? words.get<std::string>() : "nothing", 300)));
    }
    WC_TRY(read_ok("/continue_generation", post("/continue_generation", Json::object())));
    return order.version;
  }

  Result<Version> installed(const BackendCall& call, Duration limit) override {
    WC_ASSIGN(const Json json,
              read_backend_json("/get_weight_version", call({.target = "/get_weight_version"}, limit)));
    return read_version_label(json.value("weight_version", Json()));
  }

 private:
  /// Some routes answer with JSON that is no object.
  static Status read_ok(std::string_view what, const Result<HttpResponse>& response) {
    if (response.has_value() && response->status / 100 == 2) return {};
    WC_TRY(read_backend_json(what, response));
    return {};
  }

  const BackendProtocolOptions options_;
};

}  // namespace

std::unique_ptr<BackendProtocol> make_sglang_protocol(BackendProtocolOptions options) {
  return std::make_unique<SglangProtocol>(std::move(options));
}

}  // namespace weightcast
