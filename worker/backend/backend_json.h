#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <string_view>

#include "base/result.h"
#include "transport/http/client.h"
#include "worker/backend/backend_protocol.h"

namespace weightcast {

// What the protocols have in common.

/// The server's answer as a JSON object. Errors: those of `response`; kBusy (429, 5xx), kUnsupported (404, 405),
/// kInvalidArgument (any other status), with the server's words; kCorrupt (no JSON object).
[[nodiscard]] Result<nlohmann::json> read_backend_json(std::string_view what, const Result<HttpResponse>& response);

[[nodiscard]] HttpCall backend_post(std::string target, const nlohmann::json& body);

/// "12" as Version 12; kNoVersion for anything else.
[[nodiscard]] Version read_version_label(const nlohmann::json& label);

/// Tokens of an answer, checked: as many ids as log-probabilities, at least one and at most `request` allows; ids below
/// `vocab_size`; log-probabilities finite and not above 0. `log_probs` null: the server has none. Errors: kCorrupt.
[[nodiscard]] Result<std::vector<EngineToken>> read_tokens(const nlohmann::json& ids, const nlohmann::json* log_probs,
                                                           const EngineRequest& request, std::uint64_t vocab_size);

/// Sets the versions of an answer's tokens: `spans` are [{version, start, end}], in order and without a gap.
/// Errors: kCorrupt.
[[nodiscard]] Status read_version_spans(const nlohmann::json& spans, std::vector<EngineToken>& tokens);

/// "stop" or "length". Errors: kBusy ("abort": somebody stopped it), kCorrupt.
[[nodiscard]] Result<FinishReason> read_finish_reason(const nlohmann::json& reason);

/// An answer that is cut at its length has as many tokens as were asked for, or ends where the model's context does:
/// servers cut at a shorter context of their own and say nothing. `flag` is what lengthens that. Errors: kCorrupt.
[[nodiscard]] Status check_answer_length(const BackendAnswer& answer, const EngineRequest& request,
                                         std::uint64_t positions_max, std::string_view flag);

/// The context that GET /v1/models gives for `model`, or for the only one if that is empty. Absent: it says none.
/// Errors: as read_backend_json(); kInvalidArgument, which names the models that are served; less than
/// `needs.context_tokens`, with `flag` to set.
[[nodiscard]] Status check_served_model(const BackendCall& call, const std::string& model, const BackendNeeds& needs,
                                        std::string_view flag, Duration limit);

/// Errors: kInvalidArgument, if `quantisation` is neither null nor "" and `needs` does not allow it.
[[nodiscard]] Status check_quantisation(const nlohmann::json& quantisation, const BackendNeeds& needs);

/// Whether tokens come from the whole vocabulary.
[[nodiscard]] bool is_uncut(const SamplingOptions& sampling);

/// A call to POST /v1/completions with ids in and out, as vLLM and `weightcast-engine serve` take it.
[[nodiscard]] HttpCall completions_call(const EngineRequest& request, std::uint64_t seed, const std::string& model,
                                        bool log_probs);
/// The only choice of an answer of `route`. Errors: as BackendProtocol::read_completion().
[[nodiscard]] Result<nlohmann::json> read_choice(std::string_view route, const HttpResponse& response);
/// The choice as an answer, its tokens without versions.
[[nodiscard]] Result<BackendAnswer> read_choice_tokens(const nlohmann::json& choice, const EngineRequest& request,
                                                       std::uint64_t vocab_size, bool log_probs);

[[nodiscard]] std::unique_ptr<BackendProtocol> make_vllm_protocol(BackendProtocolOptions options);
[[nodiscard]] std::unique_ptr<BackendProtocol> make_sglang_protocol(BackendProtocolOptions options);
[[nodiscard]] std::unique_ptr<BackendProtocol> make_parallax_protocol(BackendProtocolOptions options);
[[nodiscard]] std::unique_ptr<BackendProtocol> make_weightcast_protocol(BackendProtocolOptions options);

}  // namespace weightcast
