#include "worker/backend/backend_protocol.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "base/files/posix_file_system.h"
#include "base/json_text.h"

namespace weightcast {
namespace {

using Json = nlohmann::json;
using testing::HasSubstr;
using testing::Not;
using namespace std::chrono_literals;

std::unique_ptr<BackendProtocol> protocol_of(BackendKind kind) {
  BackendProtocolOptions options;
  options.model = "m";
  options.vocab_size = 50;
  return make_backend_protocol(kind, options);
}
EngineRequest request_of(std::vector<TokenId> prompt) {
  EngineRequest request;
  request.prompt = std::move(prompt);
  request.tokens_max = 4;
  request.stop_tokens = {49};
  request.sampling.temperature = 0.5;
  request.sampling.top_p = 0.9;
  request.seed = 0xffff'ffff'ffff'fff0;
  return request;
}

TEST(BackendProtocol, VllmIsAskedForIdsAndForChosenTokensLogProbabilities) {
  const HttpCall call = protocol_of(BackendKind::kVllm)->completion(request_of({1, 2, 3}));
  EXPECT_EQ(call.method, "POST");
  EXPECT_EQ(call.target, "/v1/completions");
  EXPECT_EQ(parse_json(call.body), Json::parse(R"({"model": "m", "prompt": [1, 2, 3], "max_tokens": 4,
    "temperature": 0.5, "top_p": 0.9, "top_k": -1, "min_p": 0.0, "repetition_penalty": 1.0,
    "seed": 9223372036854775800, "n": 1, "stop_token_ids": [49], "ignore_eos": true, "return_token_ids": true,
    "logprobs": 0})"));
}

TEST(BackendProtocol, SglangIsAskedByItsOwnRoute) {
  const HttpCall call = protocol_of(BackendKind::kSglang)->completion(request_of({1, 2, 3}));
  EXPECT_EQ(call.target, "/generate");
  EXPECT_EQ(parse_json(call.body), Json::parse(R"({"input_ids": [1, 2, 3], "return_logprob": true, "stream": false,
    "sampling_params": {"temperature": 0.5, "top_p": 0.9, "top_k": -1, "min_p": 0.0, "repetition_penalty": 1.0,
    "max_new_tokens": 4, "stop_token_ids": [49], "ignore_eos": true, "no_stop_trim": true,
    "sampling_seed": 2147483647}})"));
}

struct Nonsense {
  const char* what;
  const char* pointer;  // into the answer
  const char* value;
  const char* message;
};

/// What is wrong with `answer` after each change.
void expect_refused(const BackendProtocol& protocol, const Json& answer, std::span<const Nonsense> cases) {
  ASSERT_TRUE(protocol.read_completion({.body = answer.dump()}, request_of({1})).has_value());
  for (const Nonsense& one : cases) {
    Json changed = answer;
    changed[Json::json_pointer(one.pointer)] = Json::parse(one.value);
    const auto read = protocol.read_completion({.body = changed.dump()}, request_of({1}));
    ASSERT_FALSE(read.has_value()) << one.what;
    EXPECT_EQ(read.error().code, Errc::kCorrupt) << one.what;
    EXPECT_THAT(read.error().message(), HasSubstr(one.message)) << one.what;
  }
}

TEST(BackendProtocol, RefusesNonsenseOfVllm) {
  const Json answer = Json::parse(R"({"choices": [{"finish_reason": "stop", "token_ids": [7, 49],
    "logprobs": {"token_logprobs": [-1.5, 0.0]}}]})");
  const Nonsense cases[] = {
      {"no ids", "/choices/0/token_ids", "null", "no token ids"},
      {"none of them", "/choices/0/token_ids", "[]", "no token ids"},
      {"too many", "/choices/0/token_ids", "[1, 2, 3, 4, 5]", "5 tokens, and 4 were asked for"},
      {"fewer log-probabilities", "/choices/0/logprobs/token_logprobs", "[-1]", "2 tokens with 1"},
      {"no log-probabilities", "/choices/0/logprobs", "null", "with no log-probabilities"},
      {"log-probabilities of another kind", "/choices/0/logprobs", "[1]", "with no log-probabilities"},
      {"a positive one", "/choices/0/logprobs/token_logprobs/1", "0.1", "of token 1 is 0.1"},
      {"one that is missing", "/choices/0/logprobs/token_logprobs/0", "null", "of token 0 is null"},
      {"an id out of range", "/choices/0/token_ids/1", "50", "token 1 is 50; ids of this model are 0 to 49"},
      {"a negative id", "/choices/0/token_ids/0", "-1", "token 0 is -1"},
      {"a fraction", "/choices/0/token_ids/0", "1.5", "token 0 is 1.5"},
      {"a text", "/choices/0/token_ids/0", "\"a\"", "token 0 is"},
      {"no reason", "/choices/0/finish_reason", "null", "finish_reason is null"},
      {"two choices", "/choices", "[{}, {}]", "not one choice"},
      {"no choices", "/choices", "7", "not one choice"},
  };
  expect_refused(*protocol_of(BackendKind::kVllm), answer, cases);
}

TEST(BackendProtocol, RefusesNonsenseOfSglang) {
  const Json answer = Json::parse(R"({"meta_info": {"finish_reason": {"type": "stop"}, "weight_version": "5",
    "weight_versions": [{"version": "4", "start": 0, "end": 1}, {"version": "5", "start": 1, "end": 3}],
    "output_token_logprobs": [[-1.5, 7, null], [-2, 8, null], [0, 9, null]]}})");
  const auto read = protocol_of(BackendKind::kSglang)->read_completion({.body = answer.dump()}, request_of({1}));
  ASSERT_TRUE(read.has_value());
  EXPECT_EQ(read->tokens[0].version, Version{4});
  EXPECT_EQ(read->tokens[2].version, Version{5});
  const Nonsense cases[] = {
      {"no meta_info", "/meta_info", "3", "no meta_info"},
      {"no pairs", "/meta_info/output_token_logprobs/0", "7", "no pairs"},
      {"no tokens", "/meta_info/output_token_logprobs", "null", "no token ids"},
      {"a positive one", "/meta_info/output_token_logprobs/1/0", "0.5", "of token 1 is 0.5"},
      {"one that is missing", "/meta_info/output_token_logprobs/1/0", "null", "of token 1 is null"},
      {"an id out of range", "/meta_info/output_token_logprobs/1/1", "50", "token 1 is 50"},
      {"another reason", "/meta_info/finish_reason/type", "\"tired\"", "finish_reason is"},
      {"a gap", "/meta_info/weight_versions/1/start", "2", "does not divide its 3 tokens"},
      {"beyond the end", "/meta_info/weight_versions/1/end", "4", "does not divide"},
      {"not to the end", "/meta_info/weight_versions/1/end", "2", "covers 2 of 3"},
      {"no numbers", "/meta_info/weight_versions/0/end", "\"1\"", "does not divide"},
      {"no spans", "/meta_info/weight_versions/0", "[1]", "does not divide"},
  };
  expect_refused(*protocol_of(BackendKind::kSglang), answer, cases);
}

TEST(BackendProtocol, RefusesVersionsOfOursThatDoNotFit) {
  const Json answer = Json::parse(R"({"choices": [{"finish_reason": "length", "token_ids": [7, 9],
    "logprobs": {"token_logprobs": [-1.5, -1]}, "version_runs": [[3, 1], [4, 1]]}]})");
  const Nonsense cases[] = {
      {"none", "/choices/0/version_runs", "null", "does not divide its 2 tokens"},
      {"too short", "/choices/0/version_runs/1/1", "0", "does not divide"},
      {"too long", "/choices/0/version_runs/1/1", "2", "does not divide"},
      {"huge", "/choices/0/version_runs/1/1", "18446744073709551615", "does not divide"},
      {"no pair", "/choices/0/version_runs/0", "[1]", "does not divide"},
  };
  expect_refused(*protocol_of(BackendKind::kWeightcast), answer, cases);
}

TEST(BackendProtocol, AStatusSaysWhoIsToBlame) {
  const auto code_of = [](unsigned status) {
    return protocol_of(BackendKind::kVllm)
        ->read_completion({.status = status, .body = R"({"error": {"message": "why"}})"}, request_of({1}))
        .error();
  };
  EXPECT_EQ(code_of(503).code, Errc::kBusy);
  EXPECT_EQ(code_of(429).code, Errc::kBusy);
  EXPECT_EQ(code_of(500).code, Errc::kBusy);
  EXPECT_EQ(code_of(400).code, Errc::kInvalidArgument);
  EXPECT_EQ(code_of(404).code, Errc::kUnsupported);
  EXPECT_THAT(code_of(400).message(), HasSubstr("the server answers 400: why"));
}

/// What a server of vLLM's says of itself, by its routes.
struct VllmSays {
  std::string version = "0.32.0";
  Json models = {{"data", {{{"id", "m"}, {"max_model_len", 128}}}}};
  Json config = {{"logprobs_mode", "processed_logprobs"}, {"quantization", nullptr}};
  std::string missing = {};  // a route
  bool scale_out = false;

  Result<HttpResponse> operator()(const HttpCall& call, Duration) const {
    const std::string path = call.target.substr(0, call.target.find('?'));
    if (path == missing) return http_error(404, "Not Found");
    if (path == "/version") return HttpResponse{.body = Json{{"version", version}}.dump()};
    if (path == "/weight_info") return HttpResponse{.body = Json{{"weight_version", "default"}}.dump()};
    if (path == "/v1/models") return HttpResponse{.body = models.dump()};
    if (path == "/server_info") {
      return HttpResponse{.body = Json{{"vllm_config", {{"model_config", config}}}}.dump()};
    }
    if (path == "/weightcast/status") return HttpResponse{.body = "{}"};
    return http_error(scale_out ? 405 : 404, "no");
  }
};

std::string refusal(const VllmSays& server, const BackendNeeds& needs = {}) {
  const auto found = protocol_of(BackendKind::kVllm)->examine(server, needs, 1s);
  return found.has_value() ? "taken" : found.error().message();
}

TEST(BackendProtocol, SaysHowToStartAServerThatDoesNotDo) {
  EXPECT_EQ(refusal({}), "taken");
  EXPECT_EQ(refusal({.version = "0.27.1+cpu"}), "taken");
  EXPECT_EQ(refusal({.version = "0.1.dev17+gab12"}), "taken") << "nobody knows what is in it";
  EXPECT_THAT(refusal({.version = "0.26.2"}), HasSubstr("vLLM 0.26.2, and 0.27 is the first"));
  EXPECT_THAT(refusal({.missing = "/weight_info"}), HasSubstr("VLLM_SERVER_DEV_MODE=1"));
  EXPECT_THAT(refusal({.missing = "/server_info"}), HasSubstr("VLLM_SERVER_DEV_MODE=1"));
  EXPECT_THAT(refusal({.missing = "/weightcast/status"}), HasSubstr("VLLM_PLUGINS=weightcast"));
  EXPECT_THAT(refusal({.models = {{"data", {{{"id", "other"}}}}}}),
              HasSubstr("no model m; set backend_model to what it has: other"));
  EXPECT_THAT(refusal({}, {.context_tokens = 129}),
              HasSubstr("its context is 128 tokens, and a rollout of this run has up to 129; "
                        "start it with --max-model-len 129"));
  EXPECT_EQ(refusal({}, {.context_tokens = 128}), "taken");
  VllmSays fp8;
  fp8.config["quantization"] = "fp8";
  EXPECT_THAT(refusal(fp8), HasSubstr("behaviour_logprobs"));
  EXPECT_EQ(refusal(fp8, {.log_probs = false}), "taken");
}

TEST(BackendProtocol, AnAdaptersVersionIsPartOfItsName) {
  BackendProtocolOptions options;
  options.model = "math";
  options.is_adapter = true;
  options.vocab_size = 50;
  const auto protocol = make_backend_protocol(BackendKind::kVllm, options);
  ASSERT_TRUE(protocol->examine(VllmSays{.scale_out = true}, {}, 1s).has_value()) << "it has no version yet";
  EXPECT_TRUE(protocol->says_versions());
  EXPECT_EQ(parse_json(protocol->completion(request_of({1})).body)["model"], "math");
  Json answer = Json::parse(R"({"model": "math@7-1f2e3d4c5b6a", "choices": [{"finish_reason": "stop", "token_ids": [7],
    "weight_versions": [{"version": "default", "start": 0, "end": 1}],
    "logprobs": {"content": [{"token_id": 7, "logprob": -1.5}]}}]})");
  EXPECT_EQ(protocol->read_completion({.body = answer.dump()}, request_of({1})).value().tokens[0].version, Version{7});
  for (const char* other : {"other@7-1f", "math", "math@7", "math@x-1", "mathematics@7-1f"}) {
    answer["model"] = other;
    EXPECT_EQ(protocol->read_completion({.body = answer.dump()}, request_of({1})).value().tokens[0].version, kNoVersion)
        << other;
  }
  const HttpResponse none{.status = 404, .body = R"({"error": "no such model"})"};
  EXPECT_EQ(protocol->read_completion(none, request_of({1})).error().code, Errc::kBusy) << "it may get one";
  EXPECT_EQ(protocol->installed(VllmSays{}, 1s).value(), kNoVersion);
  const VllmSays follows{.models = {{"data", {{{"id", "m"}}, {{"id", "math"}, {"root", "math@9-1f2e3d4c5b6a"}}}}}};
  EXPECT_EQ(protocol->installed(follows, 1s).value(), Version{9});
}

TEST(BackendProtocol, TakesOnlyVllmLogProbabilitiesOfTheWholeVocabularyAtTheTemperature) {
  struct Case {
    double temperature, top_p;
    std::string raw, processed;  // what is said
  };
  const std::string neither = "set top_p = 1, temperature = 1 or behaviour_logprobs";
  const Case cases[] = {
      {1, 1, "taken", "taken"},
      {0, 1, "taken", "taken"},
      {0.7, 1, "--logprobs-mode processed_logprobs", "taken"},
      {1, 0.9, "taken", "--logprobs-mode raw_logprobs"},
      {0.7, 0.9, neither, neither},
  };
  for (const Case& one : cases) {
    BackendNeeds needs;
    needs.sampling.temperature = one.temperature;
    needs.sampling.top_p = one.top_p;
    VllmSays server;
    EXPECT_THAT(refusal(server, needs), HasSubstr(one.processed)) << one.temperature << " " << one.top_p;
    server.config["logprobs_mode"] = "raw_logprobs";
    EXPECT_THAT(refusal(server, needs), HasSubstr(one.raw)) << one.temperature << " " << one.top_p;
    server.config["logprobs_mode"] = "raw_logits";
    EXPECT_THAT(refusal(server, needs), Not(HasSubstr("taken")));
    needs.log_probs = false;
    EXPECT_EQ(refusal(server, needs), "taken");
  }
}

TEST(BackendProtocol, VllmWithVersionsOfTokensIsAskedByIts) {
  const auto protocol = protocol_of(BackendKind::kVllm);
  EXPECT_FALSE(protocol->says_versions());
  ASSERT_TRUE(protocol->examine(VllmSays{.scale_out = true}, {}, 1s).has_value());
  EXPECT_TRUE(protocol->says_versions());
  const HttpCall call = protocol->completion(request_of({1, 2, 3}));
  EXPECT_EQ(call.target, "/inference/v1/generate");
  EXPECT_EQ(parse_json(call.body),
            Json::parse(R"({"model": "m", "token_ids": [1, 2, 3], "sampling_params": {"max_tokens": 4,
    "temperature": 0.5, "top_p": 0.9, "top_k": 0, "min_p": 0.0, "repetition_penalty": 1.0,
    "seed": 9223372036854775800, "stop_token_ids": [49], "ignore_eos": true, "logprobs": 0, "detokenize": false}})"));
  const Json answer = Json::parse(R"({"choices": [{"finish_reason": "stop", "token_ids": [7, 8, 49],
    "weight_versions": [{"version": "4", "start": 0, "end": 1}, {"version": "5", "start": 1, "end": 3}],
    "logprobs": {"content": [{"token_id": 7, "logprob": -1.5}, {"token_id": 8, "logprob": -2}, {"token_id": 49, "logprob": 0}]}}]})");
  const auto read = protocol->read_completion({.body = answer.dump()}, request_of({1}));
  ASSERT_TRUE(read.has_value()) << read.error().message();
  EXPECT_EQ(read->tokens[0].version, Version{4});
  EXPECT_EQ(read->tokens[2].version, Version{5});
  EXPECT_EQ(read->tokens[1].log_prob, -2);
  const Nonsense cases[] = {
      {"no versions", "/choices/0/weight_versions", "null", "covers 0 of 3"},
      {"a gap", "/choices/0/weight_versions/1/start", "2", "does not divide its 3 tokens"},
      {"beyond the end", "/choices/0/weight_versions/1/end", "4", "does not divide"},
      {"not to the end", "/choices/0/weight_versions/1/end", "2", "covers 2 of 3"},
      {"no log-probabilities", "/choices/0/logprobs", "null", "3 tokens with 0"},
      {"fewer log-probabilities", "/choices/0/logprobs/content", "[]", "3 tokens with 0"},
      {"one that is none", "/choices/0/logprobs/content/1", "7", "of token 1 is null"},
      {"no ids", "/choices/0/token_ids", "null", "no token ids"},
  };
  expect_refused(*protocol, answer, cases);
  // It cannot be told apart from what it was when it was started anew without the flag.
  EXPECT_THAT(protocol->examine(VllmSays{}, {}, 1s).error().message(), HasSubstr("--enable-scale-out"));
}

TEST(BackendProtocol, AnAnswerThatAServerCutsShortIsNoAnswer) {
  BackendProtocolOptions options;
  options.vocab_size = 50;
  options.positions_max = 64;
  const auto protocol = make_backend_protocol(BackendKind::kVllm, options);
  const std::string cut = R"({"choices": [{"finish_reason": "length", "token_ids": [7, 9],
    "logprobs": {"token_logprobs": [-1.5, -1]}}]})";
  const auto read = protocol->read_completion({.body = cut}, request_of({1, 2, 3}));
  ASSERT_FALSE(read.has_value());
  EXPECT_EQ(read.error().code, Errc::kCorrupt);
  EXPECT_THAT(read.error().message(), HasSubstr("cut after 2 of 4 tokens, behind a prompt of 3"));
  EXPECT_THAT(read.error().message(), HasSubstr("--max-model-len"));
  EXPECT_TRUE(protocol->read_completion({.body = cut}, request_of(std::vector<TokenId>(62, 1))).has_value())
      << "the model's context ends there";
}

TEST(BackendProtocol, SglangIsExaminedByWhatItHas) {
  const auto says = [](Json info, const char* route) {
    return [info = std::move(info), route](const HttpCall& call, Duration) -> Result<HttpResponse> {
      if (call.target == "/v1/models") return HttpResponse{.body = R"({"data": [{"id": "x", "max_model_len": 100}]})"};
      if (call.target == route) return HttpResponse{.body = info.dump()};
      return http_error(404, "Not Found");
    };
  };
  const Json info = {{"version", "0.5.9"}, {"dtype", "auto"}, {"model_path", "/m"}, {"quantization", nullptr}};
  const auto protocol = protocol_of(BackendKind::kSglang);
  BackendNeeds needs;
  needs.sampling = {.temperature = 0.7, .top_p = 0.9};  // its log-probabilities do not know of cuts
  for (const char* route : {"/server_info", "/get_server_info"}) {
    const auto server = protocol->examine(says(info, route), needs, 1s);
    ASSERT_TRUE(server.has_value()) << server.error().message();
  }
  needs.context_tokens = 101;
  EXPECT_THAT(protocol->examine(says(info, "/server_info"), needs, 1s).error().message(),
              HasSubstr("--context-length 101"));
  needs = {};
  Json quantised = info;
  quantised["quantization"] = "fp8";
  EXPECT_THAT(protocol->examine(says(quantised, "/server_info"), needs, 1s).error().message(), HasSubstr("quantises"));
  needs.sampling.repetition_penalty = 1.1;
  EXPECT_THAT(protocol->examine(says(info, "/server_info"), needs, 1s).error().message(), HasSubstr("penalised"));
}

}  // namespace
}  // namespace weightcast
