// vLLM 0.32.0 started with VLLM_SERVER_DEV_MODE=1: vllm/entrypoints/{rl/online,serve/dev/*,serve/instrumentator,
// serve/lora,scale_out/token_in_token_out}/api_router.py, vllm/entrypoints/openai/completion/protocol.py, and of
// adapters vllm/entrypoints/openai/models/serving.py and vllm/lora/worker_manager.py. Its prefix cache tells adapters
// apart by name and path (vllm/v1/core/kv_cache_utils.py).
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <atomic>
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
constexpr const char* kLoadAdapter = "/v1/load_lora_adapter";
constexpr const char* kUnloadAdapter = "/v1/unload_lora_adapter";
/// What --max-lora-rank may be (vllm/config/lora.py).
constexpr std::array<std::uint64_t, 9> kAdapterRanks{1, 8, 16, 32, 64, 128, 256, 320, 512};
/// One that answers end under, and the next, ...
constexpr std::uint64_t kAdaptersMin = 2;
/// ... and what a person is told to start it with, as long answers last for several.
constexpr std::uint64_t kAdaptersAdvised = 4;
constexpr const char* kContextFlagOfVllm = "--max-model-len";
/// The label of a server that nobody has told a version.
constexpr const char* kStartLabel = "default";

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

/// `config`: what /server_info says of adapters; null: it takes none.
struct AdapterSlots {
  std::uint64_t rank_max = 0;
  std::uint64_t adapters = 0;  ///< side by side in one step

  explicit AdapterSlots(const Json& config) {
    const auto number = [&](const char* name) {
      const Json value = config.is_object() ? config.value(name, Json()) : Json();
      return value.is_number_unsigned() ? value.get<std::uint64_t>() : 0;
    };
    rank_max = number("max_lora_rank");
    adapters = number("max_loras");
  }
};

/// Errors: kUnsupported, with all flags to start the server with.
Status check_adapter_slots(const AdapterSlots& slots, bool has_routes, std::uint64_t rank, std::uint64_t adapters_min) {
  const auto least = std::ranges::lower_bound(kAdapterRanks, rank);
  if (least == kAdapterRanks.end()) {
    return fail(
        Errc::kUnsupported, Op::kConfigure,
        fmt::format("vLLM takes adapters up to rank {}, and the run's have {}; set lora_publish = \"merged\" at "
                    "the learner",
                    kAdapterRanks.back(), rank));
  }
  std::string flags;
  const auto add = [&](bool is_missing, const std::string& flag) {
    if (is_missing) flags += (flags.empty() ? "" : " ") + flag;
  };
  add(!has_routes, "VLLM_ALLOW_RUNTIME_LORA_UPDATING=1");
  add(slots.adapters == 0, "--enable-lora");
  add(slots.rank_max < rank, fmt::format("--max-lora-rank {}", *least));
  add(slots.adapters < adapters_min, fmt::format("--max-loras {}", std::max(adapters_min, kAdaptersAdvised)));
  if (flags.empty()) return {};
  return fail(Errc::kUnsupported, Op::kConfigure,
              fmt::format("the run publishes adapters of rank {}, and the server was started without what they need; "
                          "start it with {}, or set lora_publish = \"merged\" at the learner",
                          rank, flags));
}

class VllmProtocol final : public BackendProtocol {
 public:
  explicit VllmProtocol(BackendProtocolOptions options) : options_(std::move(options)) {}

  Result<BackendServer> examine(const BackendCall& call, const BackendNeeds& needs, Duration limit) override {
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
    WC_ASSIGN(const Json weights, get("/weight_info"));
    WC_TRY(check_served_model(call, options_.model, needs, kContextFlagOfVllm, deadline - steady_now()));
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
    if (!generates && (goes_on(needs.on_switch) || generates_ == true)) {
      return fail(
          Errc::kUnsupported, Op::kConfigure,
          fmt::format("vLLM {} as it was started does not say under which weights it sampled a token, so answers "
                      "cannot go on under other ones; start vLLM 0.32 or later with --enable-scale-out, or set "
                      "backend_in_flight to wait or restart",
                      printable(name)));
    }
    if (needs.adapter_rank > 0) {
      // GET is not one of its methods either.
      WC_ASSIGN(const HttpResponse load, call({.target = kLoadAdapter}, deadline - steady_now()));
      const AdapterSlots slots(config.value("lora_config", Json()));
      const std::uint64_t before = adapters_max_;
      WC_TRY(check_adapter_slots(slots, load.status != 404, needs.adapter_rank, std::max(before, kAdaptersMin)));
      if (text_of(weights, "weight_version") != kStartLabel) {
        return fail(Errc::kUnsupported, Op::kConfigure,
                    fmt::format("somebody has given it version {} in place of the model that the run's adapters are "
                                "for; start it anew",
                                printable(text_of(weights, "weight_version"))));
      }
      if (before == 0) adapters_max_ = slots.adapters;
    }
    if (!generates_) generates_ = generates;
    start_model_ = text_of(model, "model");
    std::string dtype = text_of(model, "dtype");
    if (dtype.starts_with("torch.")) dtype.erase(0, 6);
    return BackendServer{"vLLM " + name, dtype, start_model_};
  }

  bool says_versions() const override { return generates_.value_or(false); }
  std::size_t adapters_max() const override { return adapters_max_; }

  HttpCall completion(const EngineRequest& request, const std::string& adapter) const override {
    const std::string& model = adapter.empty() ? options_.model : adapter;
    // Seeds are numbers of 64 bits with a sign.
    if (!says_versions()) return completions_call(request, request.seed >> 1, model, true);
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
    if (!model.empty()) body["model"] = model;
    // Where keys and values of the version before stay, new prompts must not find theirs among them.
    if (const std::uint64_t salt = salt_; salt != 0) body["cache_salt"] = std::to_string(salt);
    return backend_post(kGenerate, body);
  }

  Result<BackendAnswer> read_completion(const HttpResponse& response, const EngineRequest& request,
                                        const std::string& adapter) const override {
    if (!adapter.empty()) WC_TRY(check_adapter(response, adapter));
    WC_ASSIGN(BackendAnswer answer, says_versions() ? read_generated(response, request) : read_text(response, request));
    const auto is_told = [](const EngineToken& token) { return token.version != kNoVersion; };
    if (!adapter.empty() && std::ranges::any_of(answer.tokens, is_told)) {
      return fail(Errc::kBusy, Op::kReceive, "somebody has given the server another model beneath its adapters");
    }
    WC_TRY(check_answer_length(answer, request, options_.positions_max, kContextFlagOfVllm));
    return answer;
  }

  Result<Version> install(FileSystem&, const BackendCall& call, const BackendInstall& order, Duration limit) override {
    const bool keeps = order.on_switch == BackendSwitch::kKeep;
    // clear_cache with keep: what is under way is computed again, as far as it has come.
    const char* pause = keeps                      ? "/pause?mode=keep&clear_cache=false"
                        : goes_on(order.on_switch) ? "/pause?mode=keep&clear_cache=true"
                                                   : "/pause?mode=abort&clear_cache=true";
    WC_TRY(
        load(call, pause, order.directory.string(), std::to_string(order.version.value), !keeps, steady_now() + limit));
    salt_ = keeps ? order.version.value : 0;
    return order.version;
  }

  Result<Version> installed(const BackendCall& call, Duration limit) override {
    WC_ASSIGN(const Json json, explained(read_backend_json("/weight_info", call({.target = "/weight_info"}, limit))));
    return read_version_label(json.value("weight_version", Json()));
  }

  Status hold(const BackendCall& call, Duration limit) override {
    return post(call, "/pause?mode=abort&clear_cache=true", Json::object(), steady_now() + limit);
  }

  Status restore(const BackendCall& call, Duration limit) override {
    return load(call, "/pause?mode=abort&clear_cache=true", start_model_, kStartLabel, true, steady_now() + limit);
  }

  Status load_adapter(const BackendCall& call, const std::string& name, const std::filesystem::path& directory,
                      Duration limit) override {
    const Instant deadline = steady_now() + limit;
    const HttpCall load = backend_post(kLoadAdapter, {{"lora_name", name}, {"lora_path", directory.string()}});
    Result<HttpResponse> response = call(load, limit);
    if (response.has_value() && response->status == 400) {
      // It refuses a name that it has, of a worker before this one, whose directory may be gone.
      WC_TRY(unload_adapter(call, name, deadline - steady_now()));
      response = call(load, deadline - steady_now());
    }
    return read_backend_ok(kLoadAdapter, response);
  }

  Status unload_adapter(const BackendCall& call, const std::string& name, Duration limit) override {
    const Result<HttpResponse> response = call(backend_post(kUnloadAdapter, {{"lora_name", name}}), limit);
    if (response.has_value() && response->status == 404) return {};
    return read_backend_ok(kUnloadAdapter, response);
  }

  Result<bool> has_adapter(const BackendCall& call, const std::string& name, Duration limit) override {
    const Instant deadline = steady_now() + limit;
    // Beneath another model it is another adapter.
    WC_ASSIGN(const Version beneath, installed(call, limit));
    if (beneath != kNoVersion) return false;
    WC_ASSIGN(const Json json,
              read_backend_json("/v1/models", call({.target = "/v1/models"}, deadline - steady_now())));
    const Json models = json.value("data", Json());
    return std::ranges::any_of(models, [&](const Json& model) { return text_of(model, "id") == name; });
  }

 private:
  /// An error leaves it paused.
  static Status load(const BackendCall& call, const char* pause, const std::string& path, const std::string& label,
                     bool drops_cache, Instant deadline) {
    WC_TRY(post(call, pause, Json::object(), deadline));
    WC_TRY(post(call, "/collective_rpc",
                {{"method", "reload_weights"},
                 {"kwargs", {{"weights_path", path}}},
                 {"timeout", to_seconds(deadline - steady_now())}},
                deadline));
    WC_TRY(post(call, "/update_weight_version", {{"new_version", label}}, deadline));
    if (drops_cache) WC_TRY(reset_prefix_cache(call, deadline));
    return post(call, "/resume", Json::object(), deadline);
  }

  /// What is cached was computed with the weights before; an update never drops it by itself.
  static Status reset_prefix_cache(const BackendCall& call, Instant deadline) {
    // Answers that go on have nothing there while they are paused: it went with the pause.
    constexpr const char* kPath = "/reset_prefix_cache?reset_running_requests=true";
    const Result<HttpResponse> response = call(backend_post(kPath, Json::object()), deadline - steady_now());
    if (!response.has_value()) return response.error();
    // Before 0.26 it said nothing.
    const bool failed = response->status != 200 || parse_json(response->body).value("success", true) != true;
    if (!failed) return {};
    return fail(
        Errc::kBusy, Op::kInstall,
        fmt::format("/reset_prefix_cache: the server answers {} {}, and may use what it cached under the version "
                    "before",
                    response->status, printable(cut_text(response->body, 100))));
  }

  static Status post(const BackendCall& call, const std::string& target, const Json& body, Instant deadline) {
    WC_TRY(explained(read_backend_json(target, call(backend_post(target, body), deadline - steady_now()))));
    return {};
  }

  static Result<Json> explained(Result<Json> result) {
    if (result.has_value() || result.error().code != Errc::kUnsupported) return result;
    Error error = result.error();
    error.detail += "; start vLLM 0.27 or later with VLLM_SERVER_DEV_MODE=1";
    return error;
  }

  /// Whether the answer is that of the adapter.
  static Status check_adapter(const HttpResponse& response, const std::string& adapter) {
    if (response.status == 404) {
      return fail(Errc::kBusy, Op::kReceive, fmt::format("the server has no adapter {}", adapter));
    }
    if (response.status / 100 != 2) return {};  // which others read
    const std::string model = text_of(parse_json(response.body), "model");
    if (model == adapter) return {};
    return fail(
        Errc::kCorrupt, Op::kReceive,
        fmt::format("the server's answer: it is of {}, and {} was asked", printable(cut_text(model, 100)), adapter));
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
  std::string start_model_;        // its weights when it was started
  std::size_t adapters_max_ = 0;   // from the first examine() on
  std::atomic<std::uint64_t> salt_ = 0;
};

}  // namespace

std::unique_ptr<BackendProtocol> make_vllm_protocol(BackendProtocolOptions options) {
  return std::make_unique<VllmProtocol>(std::move(options));
}

}  // namespace weightcast
