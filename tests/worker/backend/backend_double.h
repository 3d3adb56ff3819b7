#pragma once

#include <gtest/gtest.h>

#include <map>
#include <mutex>
#include <nlohmann/json.hpp>
#include <set>
#include <stdexcept>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "base/files/posix_file_system.h"
#include "base/json_text.h"
#include "base/random.h"
#include "transport/http/server.h"
#include "tests/worker/backend/driven_backend.h"
#include "worker/backend/backend_protocol.h"
#include "worker/backend/parallax_blocks.h"

namespace weightcast {

/// How a double misbehaves.
enum class Misbehaviour : std::uint8_t {
  kNone,
  kStall,  // it takes completions, and does not answer
  kNotJson,
  kNoTokens,
  kCutsAnswers,      // one token fewer than asked, with finish_reason "length"
  kRefusesInstalls,  // Parallax
};

/// A server on a free port of loopback with the routes of vLLM 0.32.0 with our plug-in, of SGLang, of a Parallax
/// cluster or of `weightcast-engine serve`. It takes the fields that they take, and refuses others. What it "generates"
/// follows from its version, so that an answer proves it.
class BackendDouble {
 public:
  using Json = nlohmann::json;
  struct Flags {
    std::string logprobs_mode = "processed_logprobs";
    std::uint64_t max_model_len = 4096;
    bool scale_out = false;  // vLLM: --enable-scale-out
    std::string adapter;     // vLLM: the name of what it follows
    std::string blocks;      // Parallax
  };

  explicit BackendDouble(BackendKind kind, Endpoint listen, Flags flags) : kind_(kind), flags_(std::move(flags)) {
    HttpServerOptions options;
    options.listen = std::move(listen);
    server_ = HttpServer::start(std::move(options), [this](HttpRequest request, HttpResponder responder) {
                handle(std::move(request), std::move(responder));
              }).value();
  }
  ~BackendDouble() { server_.reset(); }  // before what its thread uses

  [[nodiscard]] Endpoint endpoint() const { return server_->endpoint(); }
  void misbehave(Misbehaviour how) {
    const std::lock_guard lock(mutex_);
    how_ = how;
    if (how == Misbehaviour::kNone) stalled_.clear();
  }
  /// Answers the completions that it stalls, and stalls no more.
  void finish_completions() {
    const std::lock_guard lock(mutex_);
    how_ = Misbehaviour::kNone;
    for (auto& [responder, path, json] : stalled_) responder.send(complete(path, json));
    stalled_.clear();
  }
  /// It has taken a version by itself; 0: as after a restart.
  void follow(std::uint64_t version) {
    const std::lock_guard lock(mutex_);
    version_ = version;
    timestamp_ = 0;
  }
  /// How often the route was asked.
  [[nodiscard]] int calls(const std::string& path) const {
    const std::lock_guard lock(mutex_);
    const auto found = calls_.find(path);
    return found == calls_.end() ? 0 : found->second;
  }
  [[nodiscard]] static std::vector<TokenId> tokens_under(std::uint64_t version, const std::vector<TokenId>& prompt,
                                                         std::size_t count) {
    for (const TokenId token : prompt) version = version * 31 + static_cast<std::uint64_t>(token);
    Random random(version);
    std::vector<TokenId> tokens;
    for (std::size_t i = 0; i < count; ++i) tokens.push_back(static_cast<TokenId>(random.below(kVocabSize)));
    return tokens;
  }

  static constexpr TokenId kVocabSize = 50;

 private:
  static void refuse_other_fields(const Json& json, const std::set<std::string>& known) {
    for (const auto& [name, value] : json.items()) {
      if (!known.contains(name)) throw std::runtime_error("extra field " + name);
    }
  }
  static HttpResponse reply(const Json& json, unsigned status = 200) {
    return {.status = status, .body = json_text(json)};
  }

  void handle(HttpRequest request, HttpResponder responder) {
    const std::lock_guard lock(mutex_);
    ++calls_[request.path];
    try {
      const Json json = request.body.empty() ? Json::object() : parse_json(request.body);
      const bool is_completion =
          request.method == "POST" && (request.path == "/generate" || request.path == "/v1/completions" ||
                                       (request.path == kGenerate && flags_.scale_out));
      if (is_completion && how_ == Misbehaviour::kStall) {
        return void(stalled_.emplace_back(std::move(responder), request.path, json));
      }
      if (is_completion && how_ == Misbehaviour::kNotJson) return responder.send({.body = "<html>"});
      responder.send(is_completion ? complete(request.path, json) : control(request, json));
    } catch (const std::exception& error) {
      responder.send(reply({{"detail", error.what()}}, 422));
    }
  }

  [[nodiscard]] std::string label() const { return version_ == 0 ? "default" : std::to_string(version_); }
  [[nodiscard]] std::string model() const {
    return flags_.adapter.empty() ? "m" : flags_.adapter + "@" + label() + "-1f2e3d4c5b6a";
  }

  HttpResponse complete(const std::string& path, const Json& json) {
    const bool is_sglang = kind_ == BackendKind::kSglang;
    if (!flags_.adapter.empty() && (version_ == 0 || json.value("model", "") != flags_.adapter)) {
      return reply({{"error", "no such model"}}, 404);
    }
    const Json& sampling = is_sglang || path == kGenerate ? json.at("sampling_params") : json;
    if (is_sglang) {
      refuse_other_fields(json, {"input_ids", "sampling_params", "return_logprob", "stream"});
    } else if (path == kGenerate) {
      refuse_other_fields(json, {"model", "token_ids", "sampling_params"});
    } else if (kind_ == BackendKind::kParallax && json.contains("logprobs")) {
      throw std::runtime_error("EngineCoreSamplingParams.logprobs is not supported");
    }
    const char* prompt = is_sglang ? "input_ids" : path == kGenerate ? "token_ids" : "prompt";
    auto count = sampling.at(is_sglang ? "max_new_tokens" : "max_tokens").get<std::size_t>();
    if (how_ == Misbehaviour::kCutsAnswers) --count;
    Json ids = tokens_under(version_, json.at(prompt).get<std::vector<TokenId>>(), count);
    if (how_ == Misbehaviour::kNoTokens) ids = Json::array();
    return reply(is_sglang ? sglang_answer(ids) : choice_answer(path, ids));
  }
  [[nodiscard]] Json sglang_answer(const Json& ids) const {
    Json pairs = Json::array();
    for (const Json& id : ids) pairs.push_back({-0.25, id, nullptr});
    return {{"meta_info",
             {{"finish_reason", {{"type", "length"}}}, {"weight_version", label()}, {"output_token_logprobs", pairs}}}};
  }
  [[nodiscard]] Json choice_answer(const std::string& path, const Json& ids) const {
    Json choice = {{"index", 0}, {"finish_reason", "length"}, {"token_ids", ids}};
    if (path == kGenerate) {
      Json content = Json::array();
      for (const Json& id : ids) content.push_back({{"token_id", id}, {"logprob", -0.25}});
      choice["logprobs"] = {{"content", content}};
      choice["weight_versions"] = {{{"version", label()}, {"start", 0}, {"end", ids.size()}}};
    } else if (kind_ != BackendKind::kParallax) {
      choice["logprobs"] = {{"token_logprobs", std::vector<double>(ids.size(), -0.25)}};
      choice["version_runs"] = {{version_, ids.size()}};
    }
    return {{"model", model()}, {"choices", Json::array({choice})}};
  }

  HttpResponse control(const HttpRequest& request, const Json& json) {
    const std::string& path = request.path;
    if (path == "/v1/models") {
      Json models = {{{"id", "m"}, {"max_model_len", flags_.max_model_len}}};
      if (!flags_.adapter.empty() && version_ != 0) models.push_back({{"id", flags_.adapter}, {"root", model()}});
      return reply({{"object", "list"}, {"data", models}});
    }
    if (kind_ == BackendKind::kVllm) {
      if (path == "/version") return reply({{"version", "0.32.0"}});
      if (path == "/weightcast/status") return reply({{"adapters", Json::object()}});
      if (path == "/weight_info") return reply({{"weight_version", label()}});
      if (path == kGenerate && flags_.scale_out) return reply({{"detail", "Method Not Allowed"}}, 405);
      if (path == "/server_info") {
        return reply({{"vllm_config",
                       {{"model_config", {{"logprobs_mode", flags_.logprobs_mode}, {"quantization", nullptr}}}}}});
      }
    }
    if (kind_ == BackendKind::kSglang && path == "/server_info") return reply({{"quantization", nullptr}});
    if (kind_ == BackendKind::kSglang && path == "/model_info") return reply({{"weight_version", label()}});
    if (kind_ == BackendKind::kWeightcast && path == "/get_weight_version") {
      return reply({{"weight_version", label()}});
    }
    if (path == "/weight/refit/timestamp") return reply({{"latest_timestamp", timestamp_}});
    if (path == "/weight/refit") return refit(json);
    return reply({{"detail", "Not Found"}}, 404);
  }
  HttpResponse refit(const Json& json) {
    if (how_ == Misbehaviour::kRefusesInstalls) {
      return reply({{"type", "weight_refit"}, {"data", "Sever not ready"}}, 500);
    }
    // Nodes fetch blocks by their names; here they lie in a directory.
    for (const auto& [name, cid] : json.at("index_map").items()) {
      PosixFileSystem files;
      const std::string bytes = read_file(files, flags_.blocks + "/" + cid.get<std::string>(), 1 << 30).value();
      EXPECT_EQ(cid_of(std::as_bytes(std::span(bytes))), cid.get<std::string>());
    }
    timestamp_ = json.at("time_stamp").get<double>();
    version_ = json.at("version").get<std::uint64_t>();
    return reply({{"type", "weight_refit"}, {"data", nullptr}});
  }

  static constexpr const char* kGenerate = "/inference/v1/generate";

  const BackendKind kind_;
  const Flags flags_;
  mutable std::mutex mutex_;
  Misbehaviour how_ = Misbehaviour::kNone;
  std::uint64_t version_ = 0;
  double timestamp_ = 0;
  std::map<std::string, int> calls_;
  std::vector<std::tuple<HttpResponder, std::string, Json>> stalled_;
  std::unique_ptr<HttpServer> server_;  // last: its thread uses the others
};

/// A worker's backend over real sockets, and a double of a server behind it.
class BackendOverDouble : public DrivenBackend {
 protected:
  explicit BackendOverDouble(BackendKind kind) {
    options_.kind = kind;
    options_.protocol.vocab_size = BackendDouble::kVocabSize;
    options_.protocol.blocks = directory_ / "blocks";
    flags_.blocks = options_.protocol.blocks.string();
    options_.answer_time_max = std::chrono::seconds(20);
    options_.check_time_max = std::chrono::seconds(2);
  }
  ~BackendOverDouble() override { backend_.reset(); }

  void start_server(const Endpoint& listen = {"127.0.0.1", 0}) {
    double_.reset();
    double_.emplace(options_.kind, listen, flags_);
    options_.server = double_->endpoint();
  }
  void start() {
    if (!double_) start_server();
    DrivenBackend::start(options_);
  }
  std::string refusal() {
    if (!double_) start_server();
    return DrivenBackend::refusal(options_);
  }
  /// The host's daemon installs it.
  void publish(std::uint64_t version) {
    const auto directory = directory_ / std::to_string(version);
    write_model(directory, {.seed = version});
    script_.install(version, directory);
  }
  /// So does the server, if it follows by itself.
  void install(std::uint64_t version) {
    publish(version);
    if (options_.kind != BackendKind::kParallax) double_->follow(version);
    ASSERT_EQ(wait_for_version(), Version{version}) << said();
  }
  void expect_under(const EngineEvent& event, std::uint64_t version) {
    ASSERT_EQ(event.finished, FinishReason::kLength) << event.failure;
    std::vector<TokenId> tokens;
    for (const EngineToken& token : event.tokens) {
      tokens.push_back(token.token);
      EXPECT_EQ(token.version, Version{version});
    }
    EXPECT_EQ(tokens, BackendDouble::tokens_under(version, prompt_of(event.tag), tokens.size()));
  }

  TestDirectory directory_;
  BackendOptions options_;
  BackendDouble::Flags flags_;
  std::optional<BackendDouble> double_;
};

}  // namespace weightcast
