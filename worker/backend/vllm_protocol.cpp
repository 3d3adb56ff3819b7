// vLLM started with VLLM_SERVER_DEV_MODE=1: vllm/entrypoints/serve/dev/{rlhf,rpc,cache}/api_router.py and
// vllm/entrypoints/openai/completion/protocol.py, August 2026.
#include <fmt/format.h>

#include <string>
#include <utility>

#include "base/json_text.h"
#include "base/steady_clock.h"
#include "worker/backend/backend_json.h"

namespace weightcast {
namespace {

class VllmProtocol final : public BackendProtocol {
 public:
  explicit VllmProtocol(BackendProtocolOptions options) : options_(std::move(options)) {}

  bool says_versions() const override { return false; }
  HttpCall completion(const EngineRequest& request) const override {
    // Seeds are numbers of 64 bits with a sign.
    return completions_call(request, request.seed >> 1, options_.model, true);
  }
  Result<BackendAnswer> read_completion(const HttpResponse& response, const EngineRequest& request) const override {
    WC_ASSIGN(const nlohmann::json choice, read_choice(response));
    return read_choice_tokens(choice, request, options_.vocab_size, true);
  }

  Result<Version> install(FileSystem&, const BackendCall& call, const BackendInstall& order, Duration limit) override {
    const Instant deadline = steady_now() + limit;
    const std::string label = std::to_string(order.version.value);
    const auto post = [&](const std::string& target, const nlohmann::json& body) -> Status {
      WC_TRY(explained(read_backend_json(target, call(backend_post(target, body), deadline - steady_now()))));
      return {};
    };
    // Ours have ended. Those of others would mix versions.
    WC_TRY(post("/pause?mode=abort&clear_cache=true", nlohmann::json::object()));
    WC_TRY(post("/collective_rpc", {{"method", "reload_weights"},
                                    {"kwargs", {{"weights_path", order.directory.string()}}},
                                    {"timeout", to_seconds(deadline - steady_now())}}));
    WC_TRY(post("/update_weight_version", {{"new_version", label}}));
    // What is cached was computed with the weights before; an update never drops it by itself.
    const HttpResponse reset =
        call(backend_post("/reset_prefix_cache", nlohmann::json::object()), deadline - steady_now())
            .value_or(HttpResponse{.status = 0});
    if (reset.status != 200) {
      return fail(
          Errc::kBusy, Op::kInstall,
          fmt::format("/reset_prefix_cache: the server answers {}, and may use what it cached under the version "
                      "before",
                      reset.status));
    }
    WC_TRY(post("/resume", nlohmann::json::object()));
    return order.version;
  }

  Result<Version> installed(const BackendCall& call, Duration limit) override {
    WC_ASSIGN(const nlohmann::json json,
              explained(read_backend_json("/weight_info", call({.target = "/weight_info"}, limit))));
    return read_version_label(json.value("weight_version", nlohmann::json()));
  }

 private:
  static Result<nlohmann::json> explained(Result<nlohmann::json> result) {
    if (result.has_value() || result.error().code != Errc::kUnsupported) return result;
    Error error = result.error();
    error.detail += "; start vLLM with VLLM_SERVER_DEV_MODE=1, in a release that has this route";
    return error;
  }

  const BackendProtocolOptions options_;
};

}  // namespace

std::unique_ptr<BackendProtocol> make_vllm_protocol(BackendProtocolOptions options) {
  return std::make_unique<VllmProtocol>(std::move(options));
}

}  // namespace weightcast
