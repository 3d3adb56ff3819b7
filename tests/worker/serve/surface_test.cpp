#include "worker/serve/surface.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <deque>
#include <future>
#include <nlohmann/json.hpp>
#include <thread>

#include "http/client.h"
#include "tests/http/raw_client.h"
#include "tests/worker/engine/made_weights.h"

namespace weightcast {
namespace {

using testing::HasSubstr;
using Json = nlohmann::json;

constexpr Duration kLimit = std::chrono::seconds(30);

/// An answer is worth its bytes, and right if its prompt's metadata say so. Metadata without that are refused.
class BytesTask final : public Task {
 public:
  std::string_view name() const override { return "bytes"; }
  Result<Prompt> prompt(std::uint64_t) const override { return Prompt{}; }
  Result<Score> score(const Metadata& metadata, std::string_view response) const override {
    WC_ASSIGN(const std::string right, metadata_value(metadata, "right"));
    return Score{static_cast<double>(response.size()), right == "yes"};
  }
};

/// A small model with random weights over bytes, behind a surface on a free port.
class SurfaceTest : public testing::Test {
 protected:
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
      return tokenizer_->decode(std::span(&token, 1), true).value_or(std::string());
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
  /// Asks until `done`, for as long as a call may take.
  template <typename Done>
  static bool eventually(const Done& done) {
    const auto deadline = std::chrono::steady_clock::now() + kLimit;
    while (!done()) {
      if (std::chrono::steady_clock::now() > deadline) return false;
      std::this_thread::yield();
    }
    return true;
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

TEST_F(SurfaceTest, ServesTheCallsOfTrl) {
  EXPECT_EQ(call("/health", "", "GET").status, 200u);
  const Json models = get("/v1/models");
  EXPECT_EQ(models["data"][0]["id"], "tiny");
  EXPECT_EQ(models["data"][0]["max_model_len"], 1024);
  const Json answer = post("/v1/completions", {{"model", "tiny"},
                                               {"prompt", {1, 2, 3}},
                                               {"max_tokens", 5},
                                               {"temperature", 1.0},
                                               {"n", 2},
                                               {"return_token_ids", true},
                                               {"logprobs", 0},
                                               {"seed", 4}});
  ASSERT_EQ(answer["choices"].size(), 2u);
  for (std::uint64_t i = 0; i < 2; ++i) {
    const Json& choice = answer["choices"][i];
    const std::vector<EngineToken> tokens = expected({1, 2, 3}, 5, 4 + i);
    ASSERT_EQ(choice["token_ids"].size(), tokens.size());
    ASSERT_EQ(choice["logprobs"]["token_logprobs"].size(), tokens.size());
    for (std::size_t t = 0; t < tokens.size(); ++t) {
      EXPECT_EQ(choice["token_ids"][t], tokens[t].token);
      EXPECT_FLOAT_EQ(choice["logprobs"]["token_logprobs"][t], tokens[t].log_prob);
    }
    EXPECT_EQ(choice["finish_reason"], "length");
    EXPECT_EQ(choice["version_runs"], Json({{7, 5}}));
  }
  EXPECT_EQ(answer["weight_version"], "7");
  EXPECT_EQ(answer["usage"], Json({{"prompt_tokens", 3}, {"completion_tokens", 10}, {"total_tokens", 13}}));
}

TEST_F(SurfaceTest, EchoesThePromptWithItsLogProbabilities) {
  const Json answer =
      post("/v1/completions", {{"prompt", "ab"}, {"max_tokens", 1}, {"echo", true}, {"logprobs", 2}, {"seed", 1}});
  const Json& choice = answer["choices"][0];
  const Json& log_probs = choice["logprobs"]["token_logprobs"];
  ASSERT_EQ(log_probs.size(), 3u);
  EXPECT_TRUE(log_probs[0].is_null());
  EXPECT_LT(log_probs[1], 0.0);
  EXPECT_EQ(choice["logprobs"]["top_logprobs"][2].size(), 2u);
  EXPECT_THAT(choice["text"].get<std::string>(), testing::StartsWith("ab"));
  EXPECT_EQ(choice["prompt_token_ids"], Json({97, 98}));
}

TEST_F(SurfaceTest, AnswersSeveralPromptsInTheirOrder) {
  const Json answer = post("/v1/completions", {{"prompt", {{1}, {2, 3}}}, {"n", 2}, {"max_tokens", 2}, {"seed", 9}});
  ASSERT_EQ(answer["choices"].size(), 4u);
  for (std::size_t i = 0; i < 4; ++i) {
    EXPECT_EQ(answer["choices"][i]["index"], i);
    EXPECT_EQ(answer["choices"][i]["prompt_token_ids"], i < 2 ? Json({1}) : Json({2, 3}));
  }
}

TEST_F(SurfaceTest, StreamsWhatItAnswersAtOnce) {
  const Json body = {{"prompt", "once"}, {"max_tokens", 40}, {"n", 2}, {"logprobs", 0}, {"seed", 3}};
  const Json whole = post("/v1/completions", body);
  std::vector<std::string> text(2);
  std::vector<std::vector<int>> ids(2);
  std::vector<Json> finish(2);
  for (const Json& event : stream("/v1/completions", body)) {
    const Json& choice = event["choices"][0];
    const std::size_t index = choice["index"];
    text[index] += choice["text"];
    for (const int id : choice["token_ids"]) ids[index].push_back(id);
    EXPECT_EQ(choice["token_ids"].size(), choice["logprobs"]["token_logprobs"].size());
    finish[index] = choice["finish_reason"];
  }
  for (std::size_t i = 0; i < 2; ++i) {
    EXPECT_EQ(text[i], whole["choices"][i]["text"]);
    EXPECT_EQ(Json(ids[i]), whole["choices"][i]["token_ids"]);
    EXPECT_EQ(finish[i], "length");
  }
}

TEST_F(SurfaceTest, StopsAtAStringAndNeverStreamsPartOfIt) {
  Json body = {{"prompt", "x"}, {"max_tokens", 60}, {"seed", 5}, {"ignore_eos", true}};
  const std::string text = post("/v1/completions", body)["choices"][0]["text"];
  // Two bytes of ASCII in the middle of what comes.
  std::size_t at = 8;
  while (at + 2 < text.size() && (text[at] < ' ' || text[at + 1] < ' ')) ++at;
  ASSERT_LT(at + 2, text.size());
  body["stop"] = text.substr(at, 2);
  const std::string cut = text.substr(0, text.find(body["stop"].get<std::string>()));
  const Json choice = post("/v1/completions", body)["choices"][0];
  EXPECT_EQ(choice["text"], cut);
  EXPECT_EQ(choice["finish_reason"], "stop");
  std::string streamed;
  for (const Json& event : stream("/v1/completions", body)) streamed += event["choices"][0]["text"].get<std::string>();
  EXPECT_EQ(streamed, cut);
}

TEST_F(SurfaceTest, ChatsInQwensTemplate) {
  const Json body = {{"messages", {{{"role", "user"}, {"content", "hi"}}}},
                     {"max_tokens", 4},
                     {"logprobs", true},
                     {"top_logprobs", 2},
                     {"seed", 2}};
  const Json answer = post("/v1/chat/completions", body);
  EXPECT_EQ(answer["object"], "chat.completion");
  const Json& choice = answer["choices"][0];
  EXPECT_EQ(choice["message"]["role"], "assistant");
  EXPECT_EQ(choice["logprobs"]["content"].size(), choice["token_ids"].size());
  EXPECT_EQ(choice["logprobs"]["content"][0]["top_logprobs"].size(), 2u);
  const Json tokens = post("/tokenize", {{"messages", body["messages"]}});
  EXPECT_EQ(tokens["tokens"], choice["prompt_token_ids"]);
  const std::vector<Json> events = stream("/v1/chat/completions", body);
  EXPECT_EQ(events.front()["choices"][0]["delta"]["role"], "assistant");
  std::string text;
  for (const Json& event : events) text += event["choices"][0]["delta"]["content"].get<std::string>();
  EXPECT_EQ(text, choice["message"]["content"]);
}

TEST_F(SurfaceTest, ChatsByTheModelsOwnTemplateOrNotAtAll) {
  const Json messages = {{{"role", "user"}, {"content", "hi"}}};
  serve(kLimit, QwenChat::kQwen2_5);
  const Json tokens = post("/tokenize", {{"messages", messages}});
  EXPECT_THAT(post("/detokenize", {{"tokens", tokens["tokens"]}})["prompt"].get<std::string>(),
              HasSubstr("You are Qwen"));
  serve(kLimit, std::nullopt);
  for (const char* path : {"/tokenize", "/v1/chat/completions"}) {
    const HttpResponse refused = call(path, Json{{"messages", messages}}.dump());
    EXPECT_EQ(refused.status, 400u);
    EXPECT_THAT(refused.body, HasSubstr("chat template"));
  }
  EXPECT_EQ(call("/v1/completions", R"({"prompt": "hi"})").status, 200u);
}

TEST_F(SurfaceTest, TokenizesBothWays) {
  const Json tokens = post("/tokenize", {{"prompt", "abc"}});
  EXPECT_EQ(tokens["tokens"], Json({97, 98, 99}));
  EXPECT_EQ(post("/detokenize", {{"tokens", tokens["tokens"]}})["prompt"], "abc");
}

TEST_F(SurfaceTest, StandsStillWhilePausedAndGoesOn) {
  const Json body = {{"prompt", "p"}, {"max_tokens", 200}, {"seed", 1}, {"ignore_eos", true}};
  const Json whole = post("/v1/completions", body);
  RawClient raw(surface_->endpoint().port);
  Json streamed = body;
  streamed["stream"] = true;
  const std::string text = streamed.dump();
  ASSERT_TRUE(raw.say(fmt::format("POST /v1/completions HTTP/1.1\r\nContent-Length: {}\r\n\r\n{}", text.size(), text)));
  raw.hear_until("data: ");
  EXPECT_EQ(Json::parse(call("/pause?mode=keep").body)["status"], "paused");
  EXPECT_EQ(get("/is_paused")["is_paused"], true);
  // A new call waits, as it does at other servers.
  const auto other = std::move(*HttpClient::make({.server = surface_->endpoint()}));
  Json waited;
  std::thread asks([&] {
    const auto response = other->call({.method = "POST", .target = "/v1/completions", .body = body.dump()}, kLimit);
    waited = Json::parse(response.value().body);
  });
  EXPECT_TRUE(eventually([&] { return metric("waiting_to_begin") == 1; }));
  EXPECT_EQ(call("/resume").status, 200u);
  const std::string rest = raw.hear_until("[DONE]");
  EXPECT_THAT(rest, HasSubstr("\"finish_reason\":\"length\""));
  asks.join();
  EXPECT_EQ(waited["choices"], whole["choices"]);
}

TEST_F(SurfaceTest, RefusesWhatWaitsTooLongWhilePaused) {
  serve(std::chrono::milliseconds(20));
  EXPECT_EQ(call("/pause?mode=abort").status, 200u);
  const HttpResponse refused = call("/v1/completions", R"({"prompt": [1]})");
  EXPECT_EQ(refused.status, 503u);
  EXPECT_EQ(refused.header("Retry-After"), "1");
  EXPECT_THAT(refused.body, HasSubstr("paused"));
  EXPECT_EQ(call("/resume").status, 200u);
  EXPECT_EQ(call("/v1/completions", R"({"prompt": [1]})").status, 200u);
}

TEST_F(SurfaceTest, AbortsWhatItIsTold) {
  const Json body = {{"prompt", "p"}, {"max_tokens", 1000}, {"seed", 1}, {"ignore_eos", true}};
  const auto other = std::move(*HttpClient::make({.server = surface_->endpoint()}));
  // On a busy host an answer may be whole before the first abort comes: then another one is asked for.
  Json choice;
  int asked = 0;
  EXPECT_TRUE(eventually([&] {
    const std::string id = fmt::format("cmpl-{}", ++asked);
    std::atomic<bool> is_answered = false;
    std::thread asks([&] {
      const auto response = other->call({.method = "POST", .target = "/v1/completions", .body = body.dump()}, kLimit);
      choice = Json::parse(response.value().body)["choices"][0];
      is_answered = true;
    });
    while (!is_answered && post("/abort_requests", {{"request_ids", {id}}})["aborted"] == 0) std::this_thread::yield();
    asks.join();
    return choice["finish_reason"] == "abort";
  }));
  EXPECT_LT(choice["token_ids"].size(), 1000u);
}

TEST_F(SurfaceTest, AbortsForAClientThatHasGone) {
  Json body = {{"prompt", "p"}, {"max_tokens", 1000}, {"n", 8}, {"ignore_eos", true}, {"stream", true}};
  const std::string text = body.dump();
  EXPECT_TRUE(is_aborted(8000, [&] {
    RawClient raw(surface_->endpoint().port);
    ASSERT_TRUE(
        raw.say(fmt::format("POST /v1/completions HTTP/1.1\r\nContent-Length: {}\r\n\r\n{}", text.size(), text)));
    raw.hear_until("data: ");
  }));
}

/// A cut changes what is drawn, and not what the answer says of it.
// A stream of a thousand tokens each, from another host.
TEST_F(SurfaceTest, ClientsThatDoNotReadTheirStreamsDoNotStarveOthers) {
  running_max_ = 4;
  serve(kLimit);
  const std::string body = Json({{"prompt", "a"}, {"max_tokens", 1000}, {"ignore_eos", true}, {"stream", true}}).dump();
  std::deque<RawClient> unread;
  for (int i = 0; i < 40; ++i) {
    unread.emplace_back(surface_->endpoint().port, 4096, INADDR_LOOPBACK + 1);
    ASSERT_TRUE(
        unread.back().say("POST /v1/completions HTTP/1.1\r\nContent-Type: application/json\r\nContent-Length: " +
                          std::to_string(body.size()) + "\r\n\r\n" + body));
  }
  ASSERT_TRUE(eventually([&] { return metric("running") == 4 && metric("waiting") == 36; }));
  const Json answer = post("/v1/completions", {{"prompt", "b"}, {"max_tokens", 20}, {"ignore_eos", true}});
  EXPECT_EQ(answer["usage"]["completion_tokens"], 20);
  // All of them would have come before it. None has ended since.
  EXPECT_GE(metric("waiting"), 36);
  EXPECT_GE(metric("preemptions_total"), 1);
  surface_.reset();
}

TEST_F(SurfaceTest, GivesLogProbabilitiesOfAllTokens) {
  const Json cut = post(
      "/v1/completions",
      {{"prompt", {1, 2, 3}}, {"max_tokens", 6}, {"logprobs", 0}, {"seed", 4}, {"top_p", 0.5}, {"ignore_eos", true}});
  std::vector<TokenId> ids{1, 2, 3};
  for (const Json& id : cut["choices"][0]["token_ids"]) ids.push_back(id);
  ASSERT_EQ(ids.size(), 9u);
  const Json scored =
      post("/v1/completions", {{"prompt", ids}, {"max_tokens", 1}, {"logprobs", 0}, {"echo", true}, {"seed", 4}});
  for (std::size_t i = 0; i < 6; ++i) {
    EXPECT_NEAR(cut["choices"][0]["logprobs"]["token_logprobs"][i].get<double>(),
                scored["choices"][0]["logprobs"]["token_logprobs"][3 + i].get<double>(), 1e-4);
  }
}

TEST_F(SurfaceTest, MakesTrajectoriesForEcho) {
  const Json answer = post("/v1/rl/trajectories", {{"model", "tiny"},
                                                   {"param_version", 7},
                                                   {"prompts", {{1, 2}, {3}}},
                                                   {"max_tokens", 4},
                                                   {"seed", 6},
                                                   {"algo", "grpo"}});
  EXPECT_EQ(answer["param_version"], 7);
  ASSERT_EQ(answer["trajectories"].size(), 2u);
  const Json& first = answer["trajectories"][0];
  EXPECT_EQ(first["actions"].size(), first["logprobs"].size());
  EXPECT_EQ(first["tokens"].size(), 2 + first["actions"].size());
  EXPECT_EQ(first["actions"][0], expected({1, 2}, 1, 6)[0].token);
  EXPECT_EQ(first["version_runs"], Json({{7, 4}}));
  EXPECT_EQ(get("/get_weight_version")["weight_version"], "7");
}

/// ECHO's own example asks for "theta_e": the weights of the epoch that there is.
TEST_F(SurfaceTest, TakesEchosNamesOfVersions) {
  const auto ask = [&](const char* version) {
    return call("/v1/rl/trajectories",
                fmt::format(R"({{"prompts": [[1]], "max_tokens": 1, "param_version": "{}"}})", version));
  };
  for (const char* version : {"theta_e", "theta_7"}) {
    const HttpResponse response = ask(version);
    ASSERT_EQ(response.status, 200u) << response.body;
    EXPECT_EQ(Json::parse(response.body)["param_version"], "theta_7") << "a name that the next call can give";
  }
  EXPECT_EQ(ask("theta_6").status, 409u);
  EXPECT_EQ(ask("theta_x").status, 400u);
  EXPECT_EQ(ask("theta_").status, 400u);
  EXPECT_EQ(ask("theta_99999999999999999999").status, 400u);
}

TEST_F(SurfaceTest, ComputesRewardsOfTrajectoriesByItsTask) {
  task_ = std::make_shared<BytesTask>();
  serve(kLimit);
  const Json answer = post("/v1/rl/trajectories", {{"prompts", {{1, 2}, {3}}},
                                                   {"metadata", {{{"right", "yes"}}, {{"right", "no"}}}},
                                                   {"n", 2},
                                                   {"max_tokens", 4},
                                                   {"seed", 6}});
  ASSERT_EQ(answer["trajectories"].size(), 4u);
  for (std::size_t i = 0; i < 4; ++i) {
    const Json& one = answer["trajectories"][i];
    const auto actions = one["actions"].get<std::vector<TokenId>>();
    std::vector<double> rewards(actions.size(), 0);
    rewards.back() = static_cast<double>(tokenizer_->decode(actions, true)->size());
    EXPECT_EQ(one["rewards"], Json(rewards)) << i;
    EXPECT_EQ(one["success"], i < 2) << i;
    EXPECT_TRUE(one["values"].is_null());
  }
  EXPECT_EQ(answer["absent"].size(), 1u);
  EXPECT_TRUE(answer["absent"].contains("values"));
}

TEST_F(SurfaceTest, SaysWhyTrajectoriesHaveNoRewards) {
  const auto ask = [&](const std::string& more) {
    return call("/v1/rl/trajectories", R"({"prompts": [[1], [2]], "max_tokens": 1)" + more + "}");
  };
  const auto why_absent = [&] { return Json::parse(ask("").body)["absent"]["rewards"].get<std::string>(); };
  EXPECT_THAT(why_absent(), HasSubstr("no task"));
  const HttpResponse taskless = ask(R"(, "metadata": [{"right": "yes"}, {"right": "no"}])");
  EXPECT_EQ(taskless.status, 400u);
  EXPECT_THAT(taskless.body, HasSubstr("serve with --task"));
  task_ = std::make_shared<BytesTask>();
  serve(kLimit);
  EXPECT_THAT(why_absent(), HasSubstr("'metadata'"));
  for (const auto& [metadata, why] : std::vector<std::pair<std::string, std::string>>{
           {R"([{"right": "yes"}])", "2 prompts"},
           {R"({"right": "yes"})", "2 prompts"},
           {R"([1, 2])", "no object"},
           {R"([{"right": 1}, {"right": "no"}])", "no text"},
           {R"([{"right": "yes"}, {}])", "of task bytes: the prompt's metadata have no 'right'"},
       }) {
    const HttpResponse response = ask(", \"metadata\": " + metadata);
    EXPECT_EQ(response.status, 400u) << metadata;
    EXPECT_THAT(response.body, HasSubstr(why)) << metadata;
  }
}

TEST_F(SurfaceTest, SaysWhichVersionItWillNeverHave) {
  const HttpResponse later = call("/v1/rl/trajectories", R"({"prompts": [[1]], "param_version": 9})");
  EXPECT_EQ(later.status, 409u);
  EXPECT_THAT(later.body, HasSubstr("version 7 for good, and 9 is wanted"));
  const HttpResponse earlier = call("/v1/rl/trajectories", R"({"prompts": [[1]], "param_version": 6})");
  EXPECT_EQ(earlier.status, 409u);
  EXPECT_THAT(earlier.body, HasSubstr("does not go back to 6"));
  for (const char* version : {"5", "7", "9", "\"7\""}) {
    const std::string body =
        fmt::format(R"({{"prompts": [[1]], "max_tokens": 1, "param_version": {}, "version_gap_max": 2}})", version);
    EXPECT_EQ(call("/v1/rl/trajectories", body).status, 200u) << body;
  }
}

TEST_F(SurfaceTest, RefusesTrajectoriesThatNoLearnerAgreesWith) {
  const HttpResponse refused = call("/v1/rl/trajectories", R"({"prompts": [[1]], "repetition_penalty": 1.1})");
  EXPECT_EQ(refused.status, 400u);
  EXPECT_THAT(refused.body, HasSubstr("'repetition_penalty'"));
  EXPECT_EQ(call("/v1/rl/trajectories", R"({"prompts": [[1]], "max_tokens": 1, "repetition_penalty": 1})").status,
            200u);
}

TEST_F(SurfaceTest, AbortsTrajectoriesForAClientThatHasGone) {
  const std::string body = R"({"prompts": [[1], [2]], "n": 8, "max_tokens": 1000, "ignore_eos": true})";
  EXPECT_TRUE(is_aborted(16000, [&] {
    const double before = metric("answer_tokens_total");
    RawClient raw(surface_->endpoint().port);
    ASSERT_TRUE(
        raw.say(fmt::format("POST /v1/rl/trajectories HTTP/1.1\r\nContent-Length: {}\r\n\r\n{}", body.size(), body)));
    ASSERT_TRUE(eventually([&] { return metric("running") > 0 || metric("answer_tokens_total") > before; }));
  }));
}

TEST_F(SurfaceTest, RefusesWhatAStrangerSends) {
  for (const auto& [body, status, why] : std::vector<std::tuple<std::string, unsigned, std::string>>{
           {"nonsense", 400, "JSON"},
           {"[]", 400, "JSON"},
           {std::string(1000, '['), 400, "JSON"},
           {"{}", 400, "'prompt' is missing"},
           {R"({"prompt": 7})", 400, "'prompt'"},
           {R"({"prompt": []})", 400, "'prompt'"},
           {R"({"prompt": ""})", 400, "empty"},
           {R"({"prompt": [1, -2]})", 400, "'prompt'"},
           {R"({"prompt": [1, 99999]})", 400, "99999"},
           {R"({"prompt": [1, "a"]})", 400, "'prompt'"},
           {R"({"prompt": "a", "model": "gpt-5"})", 404, "gpt-5"},
           {R"({"prompt": "a", "n": 1000000000})", 400, "'n'"},
           {R"({"prompt": "a", "n": 0})", 400, "'n'"},
           {R"({"prompt": "a", "max_tokens": "many"})", 400, "'max_tokens'"},
           {R"({"prompt": "a", "max_tokens": 5000})", 400, "context"},
           {R"({"prompt": "a", "temperature": -1})", 400, "temperature"},
           {R"({"prompt": "a", "temperature": "hot"})", 400, "'temperature'"},
           {R"({"prompt": "a", "top_p": 7})", 400, "top_p"},
           {R"({"prompt": "a", "stop": [1]})", 400, "'stop'"},
           {R"({"prompt": "a", "stop": ""})", 400, "stop"},
           {R"({"prompt": "a", "logprobs": 1000})", 400, "'logprobs'"},
           {R"({"prompt": "a", "stream": 1})", 400, "'stream'"},
           {R"({"prompt": "a", "presence_penalty": 1})", 400, "'presence_penalty'"},
           {"{\"prompt\": \"" + std::string(2000, 'x') + "\"}", 400, "context"},
           {"{\"prompt\": \"\xff\xfe\"}", 400, "JSON"},
       }) {
    const HttpResponse response = call("/v1/completions", body);
    EXPECT_EQ(response.status, status) << body.substr(0, 80) << " " << response.body;
    EXPECT_THAT(response.body, HasSubstr(why)) << body.substr(0, 80);
  }
  EXPECT_EQ(call("/v1/chat/completions", R"({"messages": [{"content": "x"}]})").status, 400u);
  EXPECT_EQ(call("/v1/chat/completions", R"({"messages": []})").status, 400u);
  EXPECT_EQ(call("/pause?mode=never").status, 400u);
  EXPECT_EQ(call("/nowhere").status, 404u);
  EXPECT_EQ(call("/v1/completions", "", "GET").status, 405u);
  EXPECT_EQ(call("/pause", "", "GET").status, 405u);
  EXPECT_EQ(call("/v1/models/tiny", "", "GET").status, 200u);
  EXPECT_EQ(call("/v1/models/huge", "", "GET").status, 404u);
  for (const auto& [body, why] : std::vector<std::pair<std::string, std::string>>{
           {R"({"prompt": [1]})", "'prompts' is missing"},
           {R"({"prompts": [[1]], "stream": true})", "'stream'"},
           {R"({"prompts": [[1]], "param_version": -1})", "'param_version'"},
           {R"({"prompts": [[1]], "param_version": "newest"})", "'param_version'"},
           {R"({"prompts": [[1]], "param_version": "theta_e", "version_gap_max": 1})", "'version_gap_max'"},
           {R"({"prompts": [[1]], "param_version": 7, "version_gap_max": 0.5})", "'version_gap_max'"},
           {R"({"prompts": [[1]], "param_version": "d1d1d1d1", "version_gap_max": 1})", "'version_gap_max'"},
       }) {
    const HttpResponse response = call("/v1/rl/trajectories", body);
    EXPECT_EQ(response.status, 400u) << body;
    EXPECT_THAT(response.body, HasSubstr(why)) << body;
  }
}

/// A model whose first pass lasts until it is let go.
class HeldModel final : public EngineModel {
 public:
  struct Gate {
    std::promise<void> reached, opened;
  };
  HeldModel(const ModelConfig& config, Gate& gate)
      : config_(config), gate_(gate), logits_(static_cast<std::size_t>(config.vocab_size)) {}

  const ModelConfig& config() const override { return config_; }
  std::uint64_t block_bytes() const override { return 0; }
  std::uint32_t blocks() const override { return 64; }
  std::uint64_t weight_bytes() const override { return 0; }
  void copy_block(BlockId, BlockId, std::size_t) override {}
  void forward(std::span<const SequenceStep> steps, const LogitsSink& sink) override {
    if (!std::exchange(has_held_, true)) {
      gate_.reached.set_value();
      gate_.opened.get_future().wait();
    }
    for (std::size_t i = 0; i < steps.size(); ++i) {
      if (steps[i].logits == SequenceStep::Logits::kLast) sink(i, steps[i].ids.size() - 1, logits_);
    }
  }
  Status set_weights(std::shared_ptr<const EngineWeights>) override { return {}; }

 private:
  const ModelConfig config_;
  Gate& gate_;
  bool has_held_ = false;
  std::vector<float> logits_;
};

TEST_F(SurfaceTest, EndsWhileTheEngineHasStillToTellItsMetrics) {
  HeldModel::Gate gate;
  auto engine = Engine::make(std::make_unique<HeldModel>(config_, gate), Version{7}, {});
  ASSERT_TRUE(engine.has_value());
  SurfaceOptions options;
  options.model_name = "tiny";
  auto started = Surface::start(std::move(*engine), nullptr, tokenizer_, options);
  ASSERT_TRUE(started.has_value());
  std::unique_ptr<Surface> surface = std::move(*started);
  RawClient generates(surface->endpoint().port), watches(surface->endpoint().port);
  const std::string body = R"({"prompt": [1], "max_tokens": 1})";
  generates.say(
      fmt::format("POST /v1/completions HTTP/1.1\r\nHost: x\r\nContent-Length: {}\r\n\r\n{}", body.size(), body));
  gate.reached.get_future().wait();
  watches.say("GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n");
  // The server's thread has read what came before.
  const auto client = std::move(*HttpClient::make({.server = surface->endpoint()}));
  for (int i = 0; i < 3; ++i) ASSERT_TRUE(client->call({.target = "/health"}, kLimit).has_value());
  std::thread ends([&] { surface.reset(); });
  EXPECT_TRUE(watches.ended());
  std::this_thread::sleep_for(std::chrono::milliseconds(100));
  // The pass ends, and the jobs that wait for it begin.
  gate.opened.set_value();
  ends.join();
}

}  // namespace
}  // namespace weightcast
