#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <condition_variable>
#include <filesystem>
#include <map>
#include <mutex>
#include <nlohmann/json.hpp>
#include <set>
#include <string>
#include <tuple>
#include <vector>

#include "base/files/posix_file_system.h"
#include "base/json_text.h"
#include "base/random.h"
#include "tests/worker/backend/driven_backend.h"
#include "tests/worker/engine/written_adapters.h"
#include "transport/http/server.h"
#include "worker/backend/backend_protocol.h"
#include "worker/backend/parallax_blocks.h"
#include "worker/engine/cpu_model.h"
#include "worker/engine/sampling/sampler.h"

namespace weightcast {

/// How a double misbehaves.
enum class Misbehaviour : std::uint8_t {
  kNone,
  kStall,  // it takes completions, and does not answer
  kNotJson,
  kNoTokens,
  kOtherVersion,     // it says another than it has
  kRefusesInstalls,  // after it has written the weights
  kStallsInstalls,
  kKeepsWeights,  // it computes with what it has, and says that it has loaded the others: vLLM's tied head on a CPU
  kKeepsCache,    // vLLM: /reset_prefix_cache says {"success": false}
  kCutsAnswers,   // one token fewer than asked, with finish_reason "length"
};

/// How a double was started.
struct DoubleFlags {
  std::string logprobs_mode = "processed_logprobs";
  std::uint64_t max_model_len = 4096;
  bool scale_out = false;       // vLLM: --enable-scale-out
  std::uint64_t max_loras = 0;  // vLLM: 0: without --enable-lora
  bool updates_loras = true;    // vLLM: VLLM_ALLOW_RUNTIME_LORA_UPDATING=1
  std::string model;            // a directory that it begins with, or a name
  /// Its answers are what our engine computes with the weights, the most probable token each. Otherwise numbers that
  /// follow from the bytes of the weights.
  bool computes = false;
};

/// A server on a free port of loopback with the routes of vLLM 0.32.0, of SGLang or of a Parallax cluster, as their
/// sources had them in August 2026. It takes the fields that they take, and refuses others. What it "generates" follows
/// from the bytes that it was told to load, so that an answer proves its weights.
class BackendDouble {
 public:
  using Json = nlohmann::json;

  explicit BackendDouble(BackendKind kind, Endpoint listen = {"127.0.0.1", 0}, DoubleFlags flags = {})
      : kind_(kind), flags_(std::move(flags)) {
    if (std::filesystem::exists(flags_.model)) load(flags_.model);
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
    if (how == Misbehaviour::kNone) drop_held();
    if (how == Misbehaviour::kNone) stalled_.clear();
  }
  /// Answers the installs that it stalls, and stalls no more.
  void finish_installs() {
    const std::lock_guard lock(mutex_);
    how_ = Misbehaviour::kNone;
    for (auto& [responder, response] : stalled_) responder.send(std::move(response));
    stalled_.clear();
  }
  /// As after a restart: it has the weights that it was started with.
  void forget() {
    const std::lock_guard lock(mutex_);
    weights_ = 0;
    adapters_.clear();
    label_ = "default";
    latest_timestamp_ = 0;
  }
  /// How often the route was asked.
  [[nodiscard]] int calls(const std::string& path) const {
    const std::lock_guard lock(mutex_);
    const auto found = calls_.find(path);
    return found == calls_.end() ? 0 : found->second;
  }
  [[nodiscard]] std::string loaded() const {
    const std::lock_guard lock(mutex_);
    return loaded_;
  }
  [[nodiscard]] bool is_paused() const {
    const std::lock_guard lock(mutex_);
    return is_paused_;
  }
  [[nodiscard]] std::string label() const {
    const std::lock_guard lock(mutex_);
    return label_;
  }
  /// Names of the adapters that it has.
  [[nodiscard]] std::set<std::string> adapters() const {
    const std::lock_guard lock(mutex_);
    std::set<std::string> names;
    for (const auto& [name, directory] : adapters_) names.insert(name);
    return names;
  }
  /// The most adapters that it ever had.
  [[nodiscard]] std::size_t adapters_peak() const {
    const std::lock_guard lock(mutex_);
    return adapters_peak_;
  }
  /// Answers the completions that it stalls, and stalls no more.
  void finish_completions() {
    const std::lock_guard lock(mutex_);
    how_ = Misbehaviour::kNone;
    for (auto& [responder, path, json] : waiting_) responder.send(complete_by(path, json));
    waiting_.clear();
  }
  /// The last body that the route was given.
  [[nodiscard]] Json body(const std::string& path) const {
    const std::lock_guard lock(mutex_);
    const auto found = bodies_.find(path);
    return found == bodies_.end() ? Json() : found->second;
  }
  /// How it was paused last.
  [[nodiscard]] std::string pause_mode() const {
    const std::lock_guard lock(mutex_);
    return pause_mode_;
  }
  /// What it answers under the weights of `directory`.
  [[nodiscard]] static std::vector<TokenId> tokens_under(const std::string& directory,
                                                         const std::vector<TokenId>& prompt, std::size_t count) {
    return sample(weights_of(directory), prompt, count);
  }

  static constexpr TokenId kVocabSize = 50;

 private:
  static std::uint64_t weights_of(const std::string& directory) {
    PosixFileSystem files;
    auto bytes = read_file(files, directory + "/model.safetensors", 1 << 30);
    if (!bytes.has_value()) bytes = read_file(files, directory + "/adapter_model.safetensors", 1 << 30);
    return bytes.has_value() ? std::hash<std::string>()(*bytes) | 1 : 0;
  }
  static std::vector<TokenId> sample(std::uint64_t weights, const std::vector<TokenId>& prompt, std::size_t count) {
    std::uint64_t seed = weights;
    for (const TokenId token : prompt) seed = seed * 31 + static_cast<std::uint64_t>(token);
    Random random(seed);
    std::vector<TokenId> tokens;
    for (std::size_t i = 0; i < count; ++i) tokens.push_back(static_cast<TokenId>(random.below(kVocabSize)));
    return tokens;
  }
  /// The most probable tokens after the prompt, and their log-probabilities.
  static std::pair<Json, Json> compute(const std::string& directory, std::vector<TokenId> tokens, std::size_t count) {
    PosixFileSystem files;
    CpuModelOptions options;
    options.blocks = 4;
    const auto model =
        make_cpu_model(EngineWeights::open(ModelFiles::open(files, directory).value()).value(), options).value();
    const std::vector<BlockId> blocks{0, 1, 2, 3};
    Json ids = Json::array(), log_probs = Json::array();
    Sampler sampler;
    for (std::size_t i = 0; i < count; ++i) {
      const SequenceStep step{tokens, 0, blocks};
      model->forward({&step, 1}, [&](std::size_t, std::size_t, std::span<float> logits) {
        const auto best = static_cast<TokenId>(std::max_element(logits.begin(), logits.end()) - logits.begin());
        ids.push_back(best);
        log_probs.push_back(sampler.score(logits, best)->log_prob);
      });
      tokens.push_back(ids.back().get<TokenId>());
    }
    return {ids, log_probs};
  }
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
      if (!json.is_object()) throw std::runtime_error("no JSON object");
      bodies_[request.path] = json;
      const bool is_completion = request.method == "POST" &&
                                 (request.path == (kind_ == BackendKind::kSglang ? "/generate" : "/v1/completions") ||
                                  (request.path == kGenerate && flags_.scale_out));
      if (is_completion && how_ == Misbehaviour::kStall) {
        return void(waiting_.emplace_back(std::move(responder), request.path, json));
      }
      if (is_completion && how_ == Misbehaviour::kNotJson) return responder.send({.body = "<html>"});
      if (is_paused_ && is_completion) return held_.push_back(std::move(responder));
      HttpResponse response = is_completion ? complete_by(request.path, json) : control(request, json);
      if (how_ == Misbehaviour::kStallsInstalls && is_install(request.path))
        return void(stalled_.emplace_back(std::move(responder), std::move(response)));
      responder.send(std::move(response));
    } catch (const std::exception& error) {
      responder.send(reply({{"detail", error.what()}}, 422));
    }
  }

  void drop_held() {
    held_.clear();
    waiting_.clear();
  }
  static bool is_install(const std::string& path) {
    return path == "/collective_rpc" || path == "/update_weights_from_disk" || path == "/weight/refit" ||
           path == kLoadAdapter;
  }

  HttpResponse complete_by(const std::string& path, const Json& json) {
    const Json model = json.value("model", Json("m"));
    adapter_ = model == "m" ? "" : model.get<std::string>();
    if (!adapter_.empty() && !adapters_.contains(adapter_)) {
      return reply({{"error", {{"message", "The model `" + adapter_ + "` does not exist."}, {"code", 404}}}}, 404);
    }
    return path == kGenerate ? generate(json) : complete(json);
  }

  /// Ids and log-probabilities, as it misbehaves.
  std::pair<Json, Json> answer(const std::vector<TokenId>& prompt, std::size_t count) {
    if (how_ == Misbehaviour::kCutsAnswers) --count;
    if (how_ == Misbehaviour::kNoTokens) count = 0;
    if (flags_.computes) return compute(adapter_.empty() ? computed_ : adapters_.at(adapter_), prompt, count);
    const std::uint64_t weights = adapter_.empty() ? weights_ : weights_of(adapters_.at(adapter_));
    Json ids = sample(weights, prompt, count), log_probs = Json::array();
    for (std::size_t i = 0; i < count; ++i) log_probs.push_back(-0.25);
    return {ids, log_probs};
  }

  /// vLLM's route with a version for each token.
  HttpResponse generate(const Json& json) {
    refuse_other_fields(json, {"token_ids", "sampling_params", "model", "cache_salt"});
    const Json& sampling = json.at("sampling_params");
    refuse_other_fields(sampling, {"temperature", "top_p", "top_k", "min_p", "repetition_penalty", "max_tokens", "seed",
                                   "stop_token_ids", "ignore_eos", "logprobs", "detokenize"});
    const auto [ids, log_probs] =
        answer(json.at("token_ids").get<std::vector<TokenId>>(), sampling.at("max_tokens").get<std::size_t>());
    Json content = Json::array();
    for (std::size_t i = 0; i < ids.size(); ++i) {
      content.push_back(
          {{"token_id", ids[i]}, {"logprob", log_probs[i]}, {"rank", 1}, {"top_logprobs", Json::array()}});
    }
    const std::string label = how_ == Misbehaviour::kOtherVersion ? "999" : label_;
    const Json choice = {{"index", 0},
                         {"finish_reason", "length"},
                         {"token_ids", ids},
                         {"weight_versions", {{{"version", label}, {"start", 0}, {"end", ids.size()}}}},
                         {"logprobs", {{"content", content}}}};
    return reply({{"request_id", "r"},
                  {"model", adapter_.empty() ? "m" : adapter_},
                  {"output_mode", "tokens"},
                  {"choices", Json::array({choice})}});
  }

  HttpResponse complete(const Json& json) {
    const bool is_sglang = kind_ == BackendKind::kSglang;
    const Json& sampling = is_sglang ? json.at("sampling_params") : json;
    if (is_sglang) {
      refuse_other_fields(json, {"input_ids", "sampling_params", "return_logprob", "stream", "extra_key"});
      refuse_other_fields(sampling, {"temperature", "top_p", "top_k", "min_p", "repetition_penalty", "max_new_tokens",
                                     "stop_token_ids", "ignore_eos", "no_stop_trim", "sampling_seed"});
    } else {
      refuse_other_fields(
          json, {"model", "prompt", "max_tokens", "temperature", "top_p", "top_k", "min_p", "repetition_penalty",
                 "seed", "n", "stop_token_ids", "ignore_eos", "return_token_ids", "logprobs"});
      if (json.at("seed").get<std::uint64_t>() >> 63 != 0) throw std::runtime_error("seed");
      if (kind_ == BackendKind::kParallax && json.contains("logprobs")) {
        throw std::runtime_error("EngineCoreSamplingParams.logprobs is not supported");
      }
    }
    const auto prompt = json.at(is_sglang ? "input_ids" : "prompt").get<std::vector<TokenId>>();
    const auto [ids, log_probs] =
        answer(prompt, sampling.at(is_sglang ? "max_new_tokens" : "max_tokens").get<std::size_t>());
    const std::size_t count = ids.size();
    if (is_sglang) {
      Json pairs = Json::array();
      for (std::size_t i = 0; i < count; ++i) pairs.push_back({log_probs[i], ids[i], nullptr});
      return reply({{"text", "x"},
                    {"output_ids", ids},
                    {"meta_info",
                     {{"id", "r"},
                      {"finish_reason", {{"type", "length"}, {"length", count}}},
                      {"prompt_tokens", prompt.size()},
                      {"completion_tokens", count},
                      {"weight_version", how_ == Misbehaviour::kOtherVersion ? "999" : label_},
                      {"output_token_logprobs", pairs}}}});
    }
    Json choice = {{"index", 0}, {"text", "x"}, {"finish_reason", "length"}, {"token_ids", ids}, {"logprobs", nullptr}};
    if (json.contains("logprobs")) {
      choice["logprobs"] = {{"token_logprobs", log_probs}, {"tokens", Json::array()}, {"top_logprobs", Json::array()}};
    }
    return reply({{"id", "cmpl-1"},
                  {"object", "text_completion"},
                  {"model", adapter_.empty() ? "m" : adapter_},
                  {"choices", Json::array({choice})}});
  }

  void load(const std::string& directory) {
    weights_ = weights_of(directory);
    loaded_ = directory;
    if (how_ != Misbehaviour::kKeepsWeights || computed_.empty()) computed_ = directory;
    if (how_ == Misbehaviour::kRefusesInstalls) {
      weights_ = 2;  // half of them
      throw std::runtime_error("the weights do not fit");
    }
    if (weights_ == 0) throw std::runtime_error("no such directory");
  }

  /// vLLM's routes for adapters.
  HttpResponse load_adapter(const Json& json) {
    refuse_other_fields(json, {"lora_name", "lora_path"});
    const auto name = json.at("lora_name").get<std::string>();
    const auto directory = json.at("lora_path").get<std::string>();
    const auto error = [](unsigned status, const std::string& why) {
      return reply({{"error", {{"message", why}, {"code", status}}}}, status);
    };
    if (adapters_.contains(name)) return error(400, "The lora adapter '" + name + "' has already been loaded.");
    if (how_ == Misbehaviour::kRefusesInstalls) return error(500, "it does not fit");
    if (weights_of(directory) == 0) return error(404, "Loading lora " + name + " failed: No adapter found");
    std::string computed = directory;
    if (flags_.computes) {
      computed = directory + ".merged-" + std::to_string(++merged_);
      write_merged(computed, flags_.model, directory);
    }
    adapters_[name] = how_ == Misbehaviour::kKeepsWeights ? flags_.model : computed;
    adapters_peak_ = std::max(adapters_peak_, adapters_.size());
    return {.content_type = "text/plain", .body = "Success: LoRA adapter '" + name + "' added successfully."};
  }
  HttpResponse unload_adapter(const Json& json) {
    refuse_other_fields(json, {"lora_name"});
    if (adapters_.erase(json.at("lora_name").get<std::string>()) == 0) return reply({{"error", "not found"}}, 404);
    return {.content_type = "text/plain", .body = "Success"};
  }

  HttpResponse control(const HttpRequest& request, const Json& json) {
    const std::string& path = request.path;
    const bool is_post = request.method == "POST";
    if (path == "/v1/models" && !is_post) {
      Json models = {{{"id", "m"}, {"max_model_len", flags_.max_model_len}}};
      for (const auto& [name, directory] : adapters_) models.push_back({{"id", name}, {"max_model_len", nullptr}});
      return reply({{"object", "list"}, {"data", models}});
    }
    if (kind_ == BackendKind::kVllm) {
      if (path == "/version" && !is_post) return reply({{"version", "0.32.0"}});
      if (path == "/server_info" && !is_post) {
        if (request.query_value("config_format") != "json") throw std::runtime_error("config_format");
        Json lora;
        if (flags_.max_loras > 0) lora = {{"max_loras", flags_.max_loras}, {"max_lora_rank", 16}};
        return reply({{"vllm_config",
                       {{"lora_config", lora},
                        {"model_config",
                         {{"model", flags_.model},
                          {"dtype", "torch.float32"},
                          {"logprobs_mode", flags_.logprobs_mode},
                          {"max_model_len", flags_.max_model_len},
                          {"quantization", nullptr}}}}}});
      }
      if (path == kGenerate && flags_.scale_out) return reply({{"detail", "Method Not Allowed"}}, 405);
      if (path == kLoadAdapter && flags_.updates_loras) {
        return is_post ? load_adapter(json) : reply({{"detail", "Method Not Allowed"}}, 405);
      }
      if (path == "/v1/unload_lora_adapter" && flags_.updates_loras && is_post) return unload_adapter(json);
      if (path == "/pause" && is_post) {
        pause_mode_ = std::string(request.query_value("mode").value_or("")) + "," +
                      std::string(request.query_value("clear_cache").value_or(""));
        if (pause_mode_ != "abort,true" && pause_mode_ != "keep,true" && pause_mode_ != "keep,false") {
          throw std::runtime_error("mode");
        }
        is_paused_ = true;
        return reply({{"status", "paused"}});
      }
      if (path == "/resume" && is_post) {
        is_paused_ = false;
        drop_held();
        return reply({{"status", "resumed"}});
      }
      if (path == "/collective_rpc" && is_post) {
        refuse_other_fields(json, {"method", "args", "kwargs", "timeout"});
        if (json.at("method") != "reload_weights") throw std::runtime_error("method");
        try {
          load(json.at("kwargs").at("weights_path").get<std::string>());
        } catch (const std::exception& error) {
          return reply({{"error", {{"message", error.what()}}}}, 500);
        }
        return reply({{"results", Json::array({nullptr})}});
      }
      if (path == "/update_weight_version" && is_post) {
        label_ = json.at("new_version").get<std::string>();
        return reply({{"success", true}, {"new_version", label_}});
      }
      if (path == "/reset_prefix_cache" && is_post) return reply({{"success", how_ != Misbehaviour::kKeepsCache}});
      if (path == "/weight_info" && !is_post) {
        return reply({{"weight_version", how_ == Misbehaviour::kOtherVersion ? "999" : label_}});
      }
    }
    if (kind_ == BackendKind::kSglang) {
      if (path == "/server_info" && !is_post) {
        return reply(
            {{"model_path", flags_.model}, {"dtype", "float32"}, {"quantization", nullptr}, {"version", "0.5.9"}});
      }
      if (path == "/pause_generation" && is_post) {
        const std::string mode = json.at("mode").get<std::string>();
        pause_mode_ = mode;
        if (mode != "abort" && mode != "retract" && mode != "in_place") throw std::runtime_error("mode");
        is_paused_ = true;
        return {.content_type = "text/plain", .body = "Generation paused successfully.\n"};
      }
      if (path == "/continue_generation" && is_post) {
        is_paused_ = false;
        drop_held();
        return {.content_type = "text/plain", .body = "Generation continued successfully.\n"};
      }
      if (path == "/update_weights_from_disk" && is_post) {
        refuse_other_fields(
            json, {"model_path", "load_format", "weight_version", "abort_all_requests", "is_async", "torch_empty_cache",
                   "keep_pause", "recapture_cuda_graph", "token_step", "flush_cache", "manifest"});
        try {
          load(json.at("model_path").get<std::string>());
        } catch (const std::exception& error) {
          return reply({{"success", false}, {"message", error.what()}, {"num_paused_requests", 0}}, 400);
        }
        label_ = json.at("weight_version").get<std::string>();
        return reply({{"success", true}, {"message", "Succeeded"}, {"num_paused_requests", 0}});
      }
      if (path == "/model_info" && !is_post) return reply({{"weight_version", label_}});
    }
    if (kind_ == BackendKind::kParallax) {
      if (path == "/weight/refit" && is_post) {
        if (how_ == Misbehaviour::kRefusesInstalls) {
          return reply({{"type", "weight_refit"}, {"data", "Sever not ready"}}, 500);
        }
        // Nodes fetch blocks by their names; here they lie in a directory.
        std::string all;
        for (const auto& [name, cid] : json.at("index_map").items()) {
          const std::string block = blocks_ + "/" + cid.get<std::string>();
          PosixFileSystem files;
          const std::string bytes = read_file(files, block, 1 << 30).value();
          EXPECT_EQ(cid_of(std::as_bytes(std::span(bytes))), cid.get<std::string>());
          all += bytes;
        }
        if (json.at("time_stamp").get<double>() > latest_timestamp_) {
          latest_timestamp_ = json.at("time_stamp").get<double>();
          weights_ = std::hash<std::string>()(all) | 1;
        }
        return reply({{"type", "weight_refit"}, {"data", nullptr}});
      }
      if (path == "/weight/refit/timestamp" && !is_post) return reply({{"latest_timestamp", latest_timestamp_}});
    }
    return reply({{"detail", "Not Found"}}, 404);
  }

 public:
  void set_blocks(std::string directory) { blocks_ = std::move(directory); }

 private:
  static constexpr const char* kGenerate = "/inference/v1/generate";
  static constexpr const char* kLoadAdapter = "/v1/load_lora_adapter";

  const BackendKind kind_;
  const DoubleFlags flags_;
  std::string blocks_;
  mutable std::mutex mutex_;
  Misbehaviour how_ = Misbehaviour::kNone;
  bool is_paused_ = false;
  std::uint64_t weights_ = 0;
  std::string label_ = "default";
  std::string loaded_, computed_;  // directories
  std::string pause_mode_;
  std::map<std::string, Json> bodies_;
  double latest_timestamp_ = 0;
  std::map<std::string, int> calls_;
  std::map<std::string, std::string> adapters_;  // directories that it computes with, by name
  std::size_t adapters_peak_ = 0;
  int merged_ = 0;
  std::string adapter_;  // of the completion that it answers now
  std::vector<HttpResponder> held_;
  std::vector<std::tuple<HttpResponder, std::string, Json>> waiting_;  // completions that it stalls
  std::vector<std::pair<HttpResponder, HttpResponse>> stalled_;        // installs
  std::unique_ptr<HttpServer> server_;                                 // last: its thread uses the others
};

/// A worker's backend over real sockets, and a double of a server behind it.
class BackendOverDouble : public DrivenBackend {
 protected:
  explicit BackendOverDouble(BackendKind kind) {
    options_.kind = kind;
    options_.protocol.vocab_size = BackendDouble::kVocabSize;
    options_.checks_installs = false;  // the double makes up what it answers
    options_.answer_time_max = std::chrono::seconds(20);
    options_.check_time_max = std::chrono::seconds(2);
  }
  ~BackendOverDouble() override { backend_.reset(); }

  [[nodiscard]] std::filesystem::path directory_of(std::uint64_t version) const {
    return directory_ / std::to_string(version);
  }
  void start_server(const Endpoint& listen = {"127.0.0.1", 0}) {
    double_.reset();
    double_.emplace(options_.kind, listen, flags_);
    double_->set_blocks((directory_ / "blocks").string());
    options_.server = double_->endpoint();
  }
  void start() {
    if (!double_) start_server();
    DrivenBackend::start(options_);
  }
  /// The double computes, and each install is checked.
  void start_checked() {
    flags_.computes = true;
    options_.checks_installs = true;
    options_.protocol.vocab_size = static_cast<std::uint64_t>(options_.model.vocab_size);
    options_.tolerance = 1e-4;  // the double computes in FP32 with the same weights, as we do
    start();
  }
  std::string refusal() {
    if (!double_) start_server();
    return DrivenBackend::refusal(options_);
  }
  /// Its daemon installs it; the backend may take it later.
  void offer(std::uint64_t version) { script_.install(version, directory_of(version)); }
  void install(std::uint64_t version) { DrivenBackend::install(version, directory_of(version)); }
  /// An answer that was sampled under the files of `directory`, and says that they are of `version`.
  void expect_under(const EngineEvent& event, std::uint64_t version, const std::filesystem::path& directory) {
    ASSERT_EQ(event.finished, FinishReason::kLength) << event.failure;
    std::vector<TokenId> tokens;
    for (const EngineToken& token : event.tokens) {
      tokens.push_back(token.token);
      EXPECT_EQ(token.version, Version{version});
    }
    if (options_.kind == BackendKind::kParallax) return;  // whose double hashes blocks
    EXPECT_EQ(tokens, BackendDouble::tokens_under(directory.string(), prompt_of(event.tag), tokens.size()));
    EXPECT_EQ(event.tokens[0].log_prob, -0.25f);
  }
  void expect_under(const EngineEvent& event, std::uint64_t version) {
    expect_under(event, version, directory_of(version));
  }

  TestDirectory directory_;
  BackendOptions options_;
  DoubleFlags flags_;
  std::optional<BackendDouble> double_;
};

}  // namespace weightcast
