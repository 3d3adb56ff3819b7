#include "worker/serve/surface.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <deque>
#include <future>
#include <thread>

#include "tests/transport/http/raw_client.h"
#include "tests/worker/serve/surface_fixture.h"

namespace weightcast {
namespace {

using testing::HasSubstr;

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

/// A model that says a text, a byte after the other.
class ScriptedModel final : public EngineModel {
 public:
  ScriptedModel(const ModelConfig& config, std::string text)
      : config_(config), text_(std::move(text)), logits_(static_cast<std::size_t>(config.vocab_size)) {}

  const ModelConfig& config() const override { return config_; }
  std::uint64_t block_bytes() const override { return 0; }
  std::uint32_t blocks() const override { return 64; }
  std::uint64_t weight_bytes() const override { return 0; }
  void copy_block(BlockId, BlockId, std::size_t) override {}
  void forward(std::span<const SequenceStep> steps, const LogitsSink& sink) override {
    for (std::size_t i = 0; i < steps.size(); ++i) {
      const std::size_t last = steps[i].ids.size() - 1;
      std::ranges::fill(logits_, -100.0F);
      if (steps[i].logits == SequenceStep::Logits::kNone) continue;
      for (std::size_t at = 0; steps[i].logits == SequenceStep::Logits::kAll && at < last; ++at) sink(i, at, logits_);
      logits_[static_cast<unsigned char>(text_[said_++ % text_.size()])] = 100;
      sink(i, last, logits_);
    }
  }
  Status set_weights(std::shared_ptr<const EngineWeights>) override { return {}; }

 private:
  const ModelConfig config_;
  const std::string text_;
  std::size_t said_ = 0;
  std::vector<float> logits_;
};

TEST_F(SurfaceTest, NoChunkOfAStreamEndsWithinACharacter) {
  const std::string text = "a\U0001F600\u0416b\u20AC\U0001F600";
  // As many bytes are held back as a stop string has, less one, so that the cut falls at each place of each character.
  for (const std::string stop : {"x", "xy", "xyz", "\u0416.", "xyzxy", "\U0001F600x"}) {
    EngineOptions engine_options;
    engine_options.token_bytes = [this](TokenId token) {
      return tokenizer_->decode(std::span(&token, 1), {.skip_special_tokens = true, .begins = false})
          .value_or(std::string());
    };
    auto engine = Engine::make(std::make_unique<ScriptedModel>(config_, text), Version{7}, engine_options);
    ASSERT_TRUE(engine.has_value());
    SurfaceOptions options;
    options.model_name = "tiny";
    auto started = Surface::start(std::move(*engine), nullptr, tokenizer_, options);
    ASSERT_TRUE(started.has_value());
    surface_ = std::move(*started);
    client_ = std::move(*HttpClient::make({.server = surface_->endpoint()}));
    std::string streamed;
    std::vector<int> offsets;
    for (const Json& event : stream("/v1/completions", {{"prompt", "\u20AC:"},
                                                        {"max_tokens", text.size()},
                                                        {"temperature", 0},
                                                        {"echo", true},
                                                        {"logprobs", 0},
                                                        {"stop", stop}})) {
      const std::string piece = event["choices"][0]["text"];
      EXPECT_EQ(piece.find("\uFFFD"), std::string::npos) << stop << ": " << piece;
      streamed += piece;
      for (const int offset : event["choices"][0]["logprobs"]["text_offset"]) offsets.push_back(offset);
    }
    EXPECT_EQ(streamed, "\u20AC:" + text) << stop;
    // In characters, which the prompt's are before the answer's.
    EXPECT_EQ(offsets, (std::vector<int>{0, 0, 0, 1, 2, 3, 3, 3, 3, 4, 4, 5, 6, 6, 6, 7, 7, 7, 7})) << stop;
  }
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
  ASSERT_TRUE(raw.post("/v1/completions", streamed.dump()));
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
  EXPECT_TRUE(is_aborted(8000, [&] {
    RawClient raw(surface_->endpoint().port);
    ASSERT_TRUE(raw.post("/v1/completions", body.dump()));
    raw.hear_until("data: ");
  }));
}

// A stream of a thousand tokens each, from another host.
TEST_F(SurfaceTest, ClientsThatDoNotReadTheirStreamsDoNotStarveOthers) {
  running_max_ = 4;
  serve(kLimit);
  const std::string body = Json({{"prompt", "a"}, {"max_tokens", 1000}, {"ignore_eos", true}, {"stream", true}}).dump();
  std::deque<RawClient> unread;
  for (int i = 0; i < 40; ++i) {
    unread.emplace_back(surface_->endpoint().port, 4096, INADDR_LOOPBACK + 1);
    ASSERT_TRUE(unread.back().post("/v1/completions", body));
  }
  ASSERT_TRUE(eventually([&] { return metric("running") == 4 && metric("waiting") == 36; }));
  const Json answer = post("/v1/completions", {{"prompt", "b"}, {"max_tokens", 20}, {"ignore_eos", true}});
  EXPECT_EQ(answer["usage"]["completion_tokens"], 20);
  // All of them would have come before it. None has ended since.
  EXPECT_GE(metric("waiting"), 36);
  EXPECT_GE(metric("preemptions_total"), 1);
  surface_.reset();
}

/// A cut changes what is drawn, and not what the answer says of it.
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

TEST_F(SurfaceTest, RefusesMembersThatItDoesNotKnow) {
  for (const auto& [path, body, why] : std::vector<std::tuple<std::string, std::string, std::string>>{
           {"/v1/completions", R"({"prompt": "a", "max_token": 3})", "'max_tokens'"},
           {"/v1/completions", R"({"prompt": "a", "guided_regex": "x"})", "'guided_regex' is not known"},
           {"/v1/completions", R"({"prompt": "a", "messages": []})", "'messages'"},
           {"/v1/completions", R"({"prompt": "a", "min_tokens": 3})", "'min_tokens'"},
           {"/v1/completions", R"({"prompt": "a", "skip_special_tokens": false})", "'skip_special_tokens'"},
           {"/v1/completions", R"({"prompt": "a", "logit_bias": {"5": 1}})", "'logit_bias'"},
           {"/v1/chat/completions", R"({"messages": [], "tools": [{}]})", "'tools'"},
           {"/v1/chat/completions", R"({"messages": [], "response_format": {"type": "json_object"}})",
            "'response_format'"},
           {"/v1/rl/trajectories", R"({"prompts": [[1]], "param_versions": 7})", "'param_version'"},
           {"/tokenize", R"({"prompt": "a", "add_special_token": false})", "'add_special_tokens'"},
       }) {
    const HttpResponse response = call(path, body);
    EXPECT_EQ(response.status, 400u) << body;
    EXPECT_THAT(response.body, HasSubstr(why)) << body;
  }
}

TEST_F(SurfaceTest, TakesMembersThatAskForWhatIsDoneAnyway) {
  const Json both = {{"model", "tiny"},
                     {"max_tokens", 2},
                     {"n", 1},
                     {"seed", 1},
                     {"user", "u"},
                     {"frequency_penalty", 0.0},
                     {"presence_penalty", 0},
                     {"logit_bias", nullptr},
                     {"stop", nullptr},
                     {"top_k", -1},
                     {"min_p", 0.0},
                     {"repetition_penalty", 1.0},
                     {"length_penalty", 1.0},
                     {"return_token_ids", true},
                     {"ignore_eos", true},
                     {"stop_token_ids", {258}},
                     {"skip_special_tokens", true},
                     {"stream", false}};
  Json completion = both, chat = both;
  completion.update({{"prompt", "a"}, {"echo", false}, {"logprobs", 1}, {"suffix", nullptr}, {"best_of", 1}});
  chat.erase("max_tokens");
  chat.update({{"messages", {{{"role", "developer"}, {"content", "be brief"}}, {{"role", "user"}, {"content", "hi"}}}},
               {"max_completion_tokens", 2},
               {"logprobs", true},
               {"top_logprobs", 1},
               {"metadata", {{"run", "7"}}},
               {"tools", Json::array()},
               {"tool_choice", "none"},
               {"response_format", {{"type", "text"}}},
               {"store", false}});
  post("/v1/completions", completion);
  post("/v1/chat/completions", chat);
  EXPECT_EQ(post("/tokenize", {{"prompt", "abc"}, {"add_special_tokens", false}})["count"], 3);
}

TEST_F(SurfaceTest, EchoesAPromptWithoutAnAnswer) {
  const Json body = {{"prompt", "abc"}, {"max_tokens", 0}, {"echo", true}, {"logprobs", 0}};
  const Json answer = post("/v1/completions", body);
  EXPECT_EQ(answer["choices"][0]["text"], "abc");
  EXPECT_EQ(answer["choices"][0]["finish_reason"], "length");
  EXPECT_EQ(answer["choices"][0]["logprobs"]["token_logprobs"].size(), 3u);
  EXPECT_EQ(answer["usage"]["completion_tokens"], 0);
  std::string streamed;
  for (const Json& event : stream("/v1/completions", body)) streamed += event["choices"][0]["text"].get<std::string>();
  EXPECT_EQ(streamed, "abc");
  EXPECT_EQ(call("/v1/completions", R"({"prompt": "abc", "max_tokens": 0})").status, 400u);
}

TEST_F(SurfaceTest, SaysWhichMethodsAPathTakes) {
  for (const char* path : {"/v1/models", "/v1/models/", "/v1/models/tiny", "/health", "/metrics", "/is_paused"}) {
    EXPECT_EQ(call(path, "", "DELETE").status, 405u) << path;
    EXPECT_EQ(call(path, "", "OPTIONS").status, 204u) << path;
    EXPECT_EQ(call(path, "", "GET").status, 200u) << path;
  }
  EXPECT_EQ(call("/v1/models/%74iny", "", "GET").status, 200u);
  EXPECT_EQ(call("/v1/completions", "", "OPTIONS").status, 204u);
  EXPECT_EQ(call("/v1/completions", "", "DELETE").status, 405u);
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
           {R"({"prompt": "a", "max_tokens": 5000})", 400, "maximum context length is 1024"},
           {R"({"prompt": "a", "temperature": -1})", 400, "temperature"},
           {R"({"prompt": "a", "temperature": "hot"})", 400, "'temperature'"},
           {R"({"prompt": "a", "top_p": 7})", 400, "top_p"},
           {R"({"prompt": "a", "stop": [1]})", 400, "'stop'"},
           {R"({"prompt": "a", "stop": ""})", 400, "stop"},
           {R"({"prompt": "a", "logprobs": 1000})", 400, "'logprobs'"},
           {R"({"prompt": "a", "stream": 1})", 400, "'stream'"},
           {R"({"prompt": "a", "presence_penalty": 1})", 400, "'presence_penalty'"},
           {"{\"prompt\": \"" + std::string(2000, 'x') + "\"}", 400, "maximum context length is 1024"},
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
           {R"({"prompt": [1]})", "'prompt' is not known here; leave it out, or is it 'prompts'?"},
           {"{}", "'prompts' is missing"},
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
  generates.post("/v1/completions", R"({"prompt": [1], "max_tokens": 1})");
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
