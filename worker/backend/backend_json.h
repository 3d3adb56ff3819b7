#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <string_view>

#include "base/result.h"
#include "http/client.h"
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

/// "stop" or "length". Errors: kBusy ("abort": somebody stopped it), kCorrupt.
[[nodiscard]] Result<FinishReason> read_finish_reason(const nlohmann::json& reason);

/// A call to POST /v1/completions with ids in and out, as vLLM and `weightcast-worker serve` take it.
[[nodiscard]] HttpCall completions_call(const EngineRequest& request, std::uint64_t seed, const std::string& model,
                                        bool log_probs);
/// Its only choice. Errors: as BackendProtocol::read_completion().
[[nodiscard]] Result<nlohmann::json> read_choice(const HttpResponse& response);
/// The choice as an answer, its tokens without versions.
[[nodiscard]] Result<BackendAnswer> read_choice_tokens(const nlohmann::json& choice, const EngineRequest& request,
                                                       std::uint64_t vocab_size, bool log_probs);

[[nodiscard]] std::unique_ptr<BackendProtocol> make_vllm_protocol(BackendProtocolOptions options);
[[nodiscard]] std::unique_ptr<BackendProtocol> make_sglang_protocol(BackendProtocolOptions options);
[[nodiscard]] std::unique_ptr<BackendProtocol> make_parallax_protocol(BackendProtocolOptions options);
[[nodiscard]] std::unique_ptr<BackendProtocol> make_weightcast_protocol(BackendProtocolOptions options);

}  // namespace weightcast
