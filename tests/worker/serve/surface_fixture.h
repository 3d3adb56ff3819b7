#pragma once

#include <gtest/gtest.h>

#include <chrono>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "tests/eventually.h"
#include "tests/worker/engine/made_weights.h"
#include "transport/http/client.h"
#include "worker/serve/surface.h"

namespace weightcast {

/// A small model with random weights over bytes, behind a surface on a free port.
class SurfaceTest : public testing::Test {
 protected:
  using Json = nlohmann::json;
  static constexpr Duration kLimit = std::chrono::seconds(30);

  SurfaceTest() {
    config_ = small_config();
    config_.vocab_size = 259;
    config_.max_position_embeddings = 1024;
    weights_ = made_weights(config_, 1);
    tokenizer_ = std::make_shared<const Tokenizer>(std::move(*Tokenizer::parse(byte_tokenizer_json())));
    serve(kLimit);
  }

  void serve(Duration wait_max, std::optional<QwenChat> chat = QwenChat::kQwen3) {
    SurfaceOptions options;
    options.model_name = "tiny";
    options.wait_max = wait_max;
    options.chat = chat;
    options.task = task_;
    auto surface = Surface::start(make_engine(), nullptr, tokenizer_, options);
    ASSERT_TRUE(surface.has_value());
    surface_ = std::move(*surface);
    client_ = std::move(*HttpClient::make({.server = surface_->endpoint()}));
  }

  std::shared_ptr<const Task> task_;
  std::size_t running_max_ = 256;

  std::unique_ptr<Engine> make_engine() {
    EngineOptions options;
    options.cache_bytes_max = 64 << 20;
    options.running_max = running_max_;
    options.token_bytes = [this](TokenId token) {
      return tokenizer_->decode(std::span(&token, 1), {.skip_special_tokens = true, .begins = false})
          .value_or(std::string());
    };
    return std::move(*Engine::make(weights_, Version{7}, options));
  }

  /// What the engine alone gives.
  std::vector<EngineToken> expected(const std::vector<TokenId>& prompt, std::size_t tokens, std::uint64_t seed) {
    const auto engine = make_engine();
    EngineRequest request;
    request.prompt = prompt;
    request.tokens_max = tokens;
    request.seed = seed;
    EXPECT_TRUE(engine->add(request).has_value());
    std::vector<EngineToken> all;
    while (engine->busy()) {
      for (EngineEvent& event : engine->step()) all.insert(all.end(), event.tokens.begin(), event.tokens.end());
    }
    return all;
  }

  HttpResponse call(const std::string& target, const std::string& body = "", std::string method = "POST") {
    auto response = client_->call(
        {.method = std::move(method), .target = target, .content_type = "application/json", .body = body}, kLimit);
    WC_CHECK(response.has_value());
    return std::move(*response);
  }
  Json post(const std::string& target, const Json& body) {
    const HttpResponse response = call(target, body.dump());
    EXPECT_EQ(response.status, 200u) << response.body;
    return Json::parse(response.body);
  }
  double metric(const std::string& name) {
    const std::string text = call("/metrics", "", "GET").body;
    const std::string line = "\nweightcast_worker_" + name + " ";
    const std::size_t at = text.find(line);
    WC_CHECK(at != std::string::npos);
    return std::stod(text.substr(at + line.size()));
  }
  /// Whether the `tokens` that `ask` asks for, before it goes away, are not generated to their end. On a busy host they
  /// may be before the surface sees that: then it asks again.
  template <typename Ask>
  bool is_aborted(double tokens, const Ask& ask) {
    return eventually([&] {
      const double before = metric("answer_tokens_total");
      ask();
      EXPECT_TRUE(eventually([&] { return metric("running") == 0 && metric("waiting") == 0; }));
      return metric("answer_tokens_total") - before < tokens;
    });
  }
  Json get(const std::string& target) { return Json::parse(call(target, "", "GET").body); }
  /// The events of a stream, without [DONE].
  std::vector<Json> stream(const std::string& target, Json body) {
    body["stream"] = true;
    const HttpResponse response = call(target, body.dump());
    EXPECT_EQ(response.content_type, "text/event-stream");
    std::vector<Json> events;
    bool done = false;
    for (std::size_t at = 0; at < response.body.size();) {
      const std::size_t end = response.body.find("\n\n", at);
      const std::string data = response.body.substr(at + 6, end - at - 6);
      EXPECT_FALSE(done);
      done = data == "[DONE]";
      if (!done) events.push_back(Json::parse(data));
      at = end + 2;
    }
    EXPECT_TRUE(done);
    return events;
  }

  ModelConfig config_;
  std::shared_ptr<const EngineWeights> weights_;
  std::shared_ptr<const Tokenizer> tokenizer_;
  std::unique_ptr<Surface> surface_;
  std::unique_ptr<HttpClient> client_;
};

}  // namespace weightcast
