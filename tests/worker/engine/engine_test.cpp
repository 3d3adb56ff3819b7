#include "worker/engine/engine.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <map>

#include "tests/worker/engine/made_weights.h"
#include "worker/engine/cpu_model.h"

namespace weightcast {
namespace {

using testing::HasSubstr;

constexpr Version kFirst{7};

/// All that came of a request.
struct Answer {
  std::vector<TokenId> tokens;
  std::vector<float> log_probs;
  std::vector<std::uint64_t> versions;
  std::vector<PromptToken> prompt;
  std::optional<FinishReason> finished;
  std::optional<StopStringFound> stop;
  std::string failure;
  int restarts = 0;

  bool operator==(const Answer& other) const { return tokens == other.tokens && log_probs == other.log_probs; }
};

void take(std::vector<EngineEvent> events, std::map<std::uint64_t, Answer>& answers) {
  for (EngineEvent& event : events) {
    Answer& answer = answers[event.tag];
    EXPECT_FALSE(answer.finished.has_value()) << event.tag;
    if (event.restarted) {
      ++answer.restarts;
      answer.tokens.clear();
      answer.log_probs.clear();
      answer.versions.clear();
    }
    for (const EngineToken& token : event.tokens) {
      answer.tokens.push_back(token.token);
      answer.log_probs.push_back(token.log_prob);
      answer.versions.push_back(token.version.value);
    }
    if (!event.prompt.empty()) answer.prompt = event.prompt;
    answer.finished = event.finished;
    answer.stop = event.stop;
    answer.failure = event.failure;
  }
}

/// Adds to `answers` what else comes.
std::map<std::uint64_t, Answer> run(Engine& engine, std::map<std::uint64_t, Answer> answers = {}) {
  for (int steps = 0; engine.busy(); ++steps) {
    EXPECT_LT(steps, 10000);
    if (steps == 10000) break;
    take(engine.step(), answers);
  }
  return answers;
}

std::unique_ptr<Engine> make_engine(const EngineOptions& options = {},
                                    std::shared_ptr<const EngineWeights> weights = {}) {
  if (!weights) weights = made_weights(small_config(), 1);
  auto engine = Engine::make(std::move(weights), kFirst, options);
  EXPECT_TRUE(engine.has_value()) << engine.error().message();
  return *std::move(engine);
}

/// Requests of several lengths, some with equal prompts or beginnings.
std::vector<EngineRequest> some_requests(std::size_t count, std::size_t tokens_max = 20) {
  std::vector<EngineRequest> requests;
  for (std::size_t i = 0; i < count; ++i) {
    EngineRequest request;
    Random random(i / 3);
    const std::size_t length = 1 + random.below(50);
    for (std::size_t k = 0; k < length; ++k) request.prompt.push_back(static_cast<TokenId>((k * 7 + k / 5) % 40));
    request.prompt.back() = static_cast<TokenId>(random.below(40));
    request.seed = i;
    request.tokens_max = 1 + (i * 5) % tokens_max;
    request.tag = i;
    requests.push_back(std::move(request));
  }
  return requests;
}

std::map<std::uint64_t, Answer> one_by_one(const std::vector<EngineRequest>& requests, const EngineOptions& options,
                                           const std::shared_ptr<const EngineWeights>& weights) {
  std::map<std::uint64_t, Answer> answers;
  for (const EngineRequest& request : requests) {
    const auto engine = make_engine(options, weights);
    EXPECT_TRUE(engine->add(request).has_value());
    answers.merge(run(*engine));
  }
  return answers;
}

std::uint64_t block_bytes() { return make_engine()->status().block_bytes; }

class EngineOf : public testing::TestWithParam<std::tuple<Architecture, bool>> {};

TEST_P(EngineOf, AnswersEachRequestInABatchAsAloneToTheLastBit) {
  const auto [architecture, bfloat16] = GetParam();
  const auto weights = made_weights(small_config(architecture), 3, 1, bfloat16);
  const std::vector<EngineRequest> requests = some_requests(30);
  const auto expected = one_by_one(requests, {}, weights);
  // Large and small parts of prompts, few and many together, with and without preemption.
  EngineOptions options;
  for (const std::size_t step_tokens_max : {512, 7, 1}) {
    for (const std::size_t running_max : {256, 5}) {
      for (const unsigned blocks : {1000U, 9U}) {
        options.step_tokens_max = step_tokens_max;
        options.running_max = running_max;
        options.cache_bytes_max = blocks * block_bytes();
        const auto engine = make_engine(options, weights);
        for (const EngineRequest& request : requests) ASSERT_TRUE(engine->add(request).has_value());
        const auto answers = run(*engine);
        EXPECT_EQ(answers, expected) << step_tokens_max << " " << running_max << " " << blocks;
        const EngineStatus status = engine->status();
        EXPECT_EQ(status.blocks_used, 0u);
        EXPECT_GT(status.shared_tokens, 0u);
        if (blocks == 1000) {
          EXPECT_EQ(status.preemptions, 0u);
        } else if (running_max == 256 && step_tokens_max == 512) {
          EXPECT_GT(status.preemptions, 0u);
        }
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(All, EngineOf,
                         testing::Combine(testing::Values(Architecture::kQwen2, Architecture::kQwen3,
                                                          Architecture::kQwen3Moe, Architecture::kLlama,
                                                          Architecture::kMistral),
                                          testing::Bool()));

/// Log-probabilities of a prompt's tokens but the first.
std::vector<double> prompt_log_probs(const ModelConfig& config, const EngineOptions& options) {
  const auto engine = make_engine(options, made_weights(config, 3));
  EngineRequest request;
  for (TokenId k = 0; k < 100; ++k) request.prompt.push_back((k * 7 + k / 5) % 40);
  request.tokens_max = 1;
  request.prompt_log_probs = true;
  EXPECT_TRUE(engine->add(request).has_value());
  const auto answers = run(*engine);
  std::vector<double> log_probs;
  for (const PromptToken& token : answers.at(0).prompt) log_probs.push_back(token.log_prob);
  log_probs.erase(log_probs.begin());
  return log_probs;
}

// Windows begin anywhere in a block of keys and values of either width.
TEST(Engine, ComputesNearlyTheSameWithNarrowKeysAndValues) {
  ModelConfig config = small_config();
  for (const std::int64_t window : {0, 1, 16, 21, 32, 60, 99}) {
    config.sliding_window = window;
    EngineOptions options;
    const std::vector<double> wide = prompt_log_probs(config, options);
    options.cache_dtype = CacheDtype::kBfloat16;
    const std::vector<double> narrow = prompt_log_probs(config, options);
    ASSERT_EQ(wide.size(), 99u);
    double difference = 0;
    for (std::size_t i = 0; i < wide.size(); ++i) difference += std::abs(wide[i] - narrow[i]) / 99;
    EXPECT_GT(difference, 0) << window;
    EXPECT_LT(difference, 0.05) << window;
  }
}

TEST(Engine, SeesNothingBeforeTheWindow) {
  ModelConfig config = small_config();
  config.sliding_window = 20;
  const auto answer_after = [&](TokenId early) {
    const auto engine = make_engine({}, made_weights(config, 3));
    EngineRequest request = some_requests(1).front();
    request.prompt.assign(100, 3);
    request.prompt[5] = early;
    request.tokens_max = 10;
    EXPECT_TRUE(engine->add(request).has_value());
    return run(*engine).at(0);
  };
  EXPECT_EQ(answer_after(7), answer_after(8)) << "two layers see 38 positions back";
  config.sliding_window = 50;
  EXPECT_FALSE(answer_after(7).log_probs == answer_after(8).log_probs) << "and these 98";
}

TEST(Engine, AnswersAlikeOnSeveralThreads) {
  ModelConfig config = small_config();
  config.vocab_size = 3000;  // so that its products are worth sharing
  config.hidden_size = 64;
  config.intermediate_size = 1500;
  const auto weights = made_weights(config, 3, 0.2);
  const std::vector<EngineRequest> requests = some_requests(4);
  EngineOptions options;
  options.threads = 3;
  EXPECT_EQ(one_by_one(requests, options, weights), one_by_one(requests, {}, weights));
}

TEST(Engine, ComputesThePromptOfAGroupOnce) {
  for (const std::size_t length : {1, 2, 16, 17, 40}) {
    const auto engine = make_engine();
    EngineRequest request = some_requests(1).front();
    request.prompt.assign(length, 3);
    request.tokens_max = 8;
    for (std::uint64_t i = 0; i < 8; ++i) {
      request.seed = i;
      request.tag = i;
      ASSERT_TRUE(engine->add(request).has_value());
    }
    run(*engine);
    // Each of the others computes the last token, for the logits after it.
    EXPECT_EQ(engine->status().prompt_tokens, length + 7) << length;
    EXPECT_EQ(engine->status().shared_tokens, 7 * (length - 1)) << length;
  }
}

TEST(Engine, ComputesTheBeginningOfALaterTurnOnce) {
  const auto engine = make_engine();
  EngineRequest request = some_requests(1).front();
  request.prompt.assign(20, 5);
  request.tokens_max = 20;
  ASSERT_TRUE(engine->add(request).has_value());
  const Answer first = run(*engine)[0];
  request.prompt.insert(request.prompt.end(), first.tokens.begin(), first.tokens.end());
  const std::uint64_t before = engine->status().prompt_tokens;
  ASSERT_TRUE(engine->add(request).has_value());
  const Answer second = run(*engine)[0];
  // 39 of the 40 tokens were computed, and 32 of them fill whole blocks.
  EXPECT_EQ(engine->status().prompt_tokens - before, 8u);
  EXPECT_EQ(second, one_by_one({request}, {}, made_weights(small_config(), 1))[0]);
}

TEST(Engine, ScoresThePromptAlsoWhereItIsKnown) {
  const auto engine = make_engine();
  EngineRequest request = some_requests(2)[1];
  request.prompt = {1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17, 18, 19, 20};
  ASSERT_TRUE(engine->add(request).has_value());
  request.prompt_log_probs = true;
  request.tag = 5;
  request.top = 2;
  ASSERT_TRUE(engine->add(request).has_value());
  const auto answers = run(*engine);
  const std::vector<PromptToken>& prompt = answers.at(5).prompt;
  ASSERT_EQ(prompt.size(), 20u);
  EXPECT_EQ(prompt.front().log_prob, 0);
  for (std::size_t i = 0; i < prompt.size(); ++i) EXPECT_EQ(prompt[i].token, static_cast<TokenId>(i + 1));
  for (std::size_t i = 1; i < prompt.size(); ++i) {
    EXPECT_LT(prompt[i].log_prob, 0);
    ASSERT_EQ(prompt[i].top.size(), 2u);
    EXPECT_GE(prompt[i].top[0].log_prob, prompt[i].log_prob);
    // A request with that beginning as its prompt samples from the same distribution.
    EngineRequest shorter;
    shorter.prompt.assign(request.prompt.begin(), request.prompt.begin() + static_cast<std::ptrdiff_t>(i));
    shorter.sampling.temperature = 0;
    shorter.tokens_max = 1;
    const auto other = make_engine();
    ASSERT_TRUE(other->add(shorter).has_value());
    EXPECT_EQ(run(*other)[0].log_probs.front(), prompt[i].top[0].log_prob) << i;
  }
  EXPECT_EQ(answers.at(5).tokens, answers.at(1).tokens);
}

TEST(Engine, StopsWhereTheRequestSays) {
  EngineOptions options;
  options.end_tokens = {3};
  options.token_bytes = [](TokenId token) { return std::string(1, static_cast<char>('A' + token % 26)); };
  EngineRequest request = some_requests(1).front();
  request.tokens_max = 60;
  request.ignore_end = true;
  auto engine = make_engine(options);
  ASSERT_TRUE(engine->add(request).has_value());
  const Answer whole = run(*engine)[0];
  ASSERT_EQ(whole.tokens.size(), 60u);
  EXPECT_EQ(whole.finished, FinishReason::kLength);
  const auto until = [&](TokenId token) {
    return std::find(whole.tokens.begin(), whole.tokens.end(), token) - whole.tokens.begin() + 1;
  };

  EngineRequest by_token = request;
  by_token.stop_tokens = {whole.tokens[10], whole.tokens[20]};
  by_token.tag = 1;
  EngineRequest by_end = request;
  by_end.ignore_end = false;
  by_end.tag = 2;
  EngineRequest by_string = request;
  std::string text;
  for (const TokenId token : whole.tokens) text += options.token_bytes(token);
  by_string.stop_strings = {"no such", text.substr(14, 5), text.substr(15, 4)};
  by_string.tag = 3;
  options.end_tokens = {whole.tokens[12]};
  engine = make_engine(options);
  for (const EngineRequest& one : {by_token, by_end, by_string}) ASSERT_TRUE(engine->add(one).has_value());
  auto answers = run(*engine);
  const auto length = [&](std::uint64_t tag) { return static_cast<std::ptrdiff_t>(answers[tag].tokens.size()); };
  EXPECT_EQ(length(1), std::min(until(whole.tokens[10]), until(whole.tokens[20])));
  EXPECT_EQ(answers[1].finished, FinishReason::kStopToken);
  EXPECT_EQ(length(2), until(whole.tokens[12]));
  EXPECT_EQ(answers[2].finished, FinishReason::kStopToken);
  const std::size_t begin = std::min(text.find(by_string.stop_strings[1]), text.find(by_string.stop_strings[2]) - 1);
  EXPECT_EQ(answers[3].finished, FinishReason::kStopString);
  ASSERT_TRUE(answers[3].stop.has_value());
  EXPECT_EQ(answers[3].stop->string, 1u);
  EXPECT_EQ(answers[3].stop->text_bytes, begin);
  EXPECT_EQ(answers[3].tokens.size(), begin + 5);
}

TEST(Engine, EndsAtTheContext) {
  EngineOptions options;
  options.context_max = 30;
  const auto engine = make_engine(options);
  EXPECT_EQ(engine->context_max(), 30u);
  EngineRequest request;
  request.prompt.assign(25, 1);
  request.tokens_max = 100;
  ASSERT_TRUE(engine->add(request).has_value());
  const Answer answer = run(*engine)[0];
  EXPECT_EQ(answer.tokens.size(), 5u);
  EXPECT_EQ(answer.finished, FinishReason::kLength);
}

TEST(Engine, BoundsTheContextByTheCache) {
  EngineOptions options;
  options.cache_bytes_max = 3 * block_bytes() - 1;
  const auto engine = make_engine(options);
  EXPECT_EQ(engine->context_max(), 2 * kBlockPositions);
  EngineRequest request;
  request.prompt.assign(20, 1);
  request.tokens_max = 100;
  for (; request.tag < 3; ++request.tag) ASSERT_TRUE(engine->add(request).has_value());
  const auto answers = run(*engine);
  EXPECT_EQ(answers.size(), 3u);
  for (const auto& [tag, answer] : answers) EXPECT_EQ(answer.finished, FinishReason::kLength) << tag;
}

/// 40 tokens for `client`.
EngineRequest request_of(const std::string& client, std::uint64_t tag) {
  EngineRequest request;
  request.prompt = {static_cast<TokenId>(1 + tag % 30), 2, 3};
  request.tokens_max = 40;
  request.ignore_end = true;
  request.seed = request.tag = tag;
  request.client = client;
  return request;
}

TEST(Engine, ClientsRunAsManyRequestsAsEachOther) {
  EngineOptions options;
  options.running_max = 4;
  const auto engine = make_engine(options);
  for (std::uint64_t tag = 0; tag < 12; ++tag) ASSERT_TRUE(engine->add(request_of("greedy", tag)).has_value());
  std::map<std::uint64_t, Answer> answers;
  for (int i = 0; i < 5; ++i) take(engine->step(), answers);
  EXPECT_EQ(engine->status().running, 4u);
  EXPECT_EQ(engine->status().preemptions, 0u);
  // Two of another client begin at once, although twelve came before them, and a third waits: half of it is theirs.
  for (std::uint64_t tag = 100; tag < 103; ++tag) ASSERT_TRUE(engine->add(request_of("modest", tag)).has_value());
  for (int i = 0; i < 3; ++i) take(engine->step(), answers);
  EXPECT_EQ(engine->status().running, 4u);
  EXPECT_GE(answers[100].tokens.size(), 2u);
  EXPECT_GE(answers[101].tokens.size(), 1u);
  EXPECT_EQ(answers.count(102), 0u);
  EXPECT_EQ(engine->status().preemptions, 2u);
  answers = run(*engine, std::move(answers));
  // A place does not go back and forth: a change of hands for each of the other client's requests at most.
  EXPECT_LE(engine->status().preemptions, 3u);
  // Whoever made way has the answer that it has alone.
  ASSERT_EQ(answers.size(), 15u);
  for (const std::uint64_t tag : {0, 3, 11, 100, 102}) {
    const auto alone = make_engine();
    ASSERT_TRUE(alone->add(request_of("", tag)).has_value());
    const auto expected = run(*alone);
    EXPECT_EQ(answers.at(tag), expected.at(tag)) << tag;
    EXPECT_EQ(answers.at(tag).finished, FinishReason::kLength) << tag;
  }
}

TEST(Engine, AClientWhoseRequestsFillTheCacheMakesRoom) {
  EngineOptions options;
  options.running_max = 64;
  options.cache_bytes_max = 8 * cache_block_bytes(small_config(), false);
  const auto engine = make_engine(options);
  for (std::uint64_t tag = 0; tag < 8; ++tag) ASSERT_TRUE(engine->add(request_of("greedy", tag)).has_value());
  std::map<std::uint64_t, Answer> answers;
  while (engine->status().blocks_used < 8) take(engine->step(), answers);
  ASSERT_TRUE(engine->add(request_of("modest", 100)).has_value());
  for (int steps = 0; !answers[100].finished; ++steps) {
    ASSERT_LT(steps, 200) << "it would be the last of nine";
    take(engine->step(), answers);
  }
  const auto finished = std::ranges::count_if(answers, [](const auto& one) { return one.second.finished.has_value(); });
  EXPECT_LT(finished, 6);
  take(engine->step(), answers);
  answers = run(*engine, std::move(answers));
  EXPECT_EQ(answers.size(), 9u);
}

TEST(Engine, OneClientsWaitingRequestsLeaveRoomForOthers) {
  EngineOptions options;
  options.running_max = 1;
  options.waiting_max = 8;
  const auto engine = make_engine(options);
  std::size_t taken = 0;
  while (taken < 100) {
    const auto added = engine->add(request_of("greedy", taken));
    if (!added.has_value()) {
      EXPECT_EQ(added.error().code, Errc::kBusy);
      EXPECT_THAT(added.error().detail, HasSubstr("of this client wait"));
      break;
    }
    ++taken;
  }
  EXPECT_EQ(taken, 4u);
  EXPECT_TRUE(engine->add(request_of("modest", 100)).has_value());
  EXPECT_EQ(run(*engine).size(), 5u);
}

TEST(Engine, AbortsWhatWaitsAndWhatRuns) {
  EngineOptions options;
  options.running_max = 2;
  const auto engine = make_engine(options);
  std::vector<RequestId> ids;
  std::vector<EngineRequest> requests = some_requests(3);
  for (EngineRequest& request : requests) {
    request.tokens_max = 20;
    ids.push_back(engine->add(request).value());
  }
  std::map<std::uint64_t, Answer> answers;
  take(engine->step(), answers);
  take(engine->step(), answers);
  ASSERT_TRUE(engine->abort(ids[0]).has_value());
  ASSERT_TRUE(engine->abort(ids[2]).has_value());
  EXPECT_EQ(engine->abort(ids[2]).error().code, Errc::kNotFound);
  EXPECT_EQ(engine->abort(RequestId{99}).error().code, Errc::kNotFound);
  answers = run(*engine, std::move(answers));
  EXPECT_EQ(answers[0].finished, FinishReason::kAborted);
  EXPECT_GE(answers[0].tokens.size(), 1u);
  EXPECT_EQ(answers[2].finished, FinishReason::kAborted);
  EXPECT_EQ(answers[1].finished, FinishReason::kLength);
  EXPECT_EQ(answers[1], one_by_one({requests[1]}, {}, made_weights(small_config(), 1))[1]);
  EXPECT_EQ(engine->status().blocks_used, 0u);
  EXPECT_TRUE(engine->step().empty());
}

TEST(Engine, RefusesWhatNoRequestMayBe) {
  EngineOptions options;
  options.waiting_max = 2;
  const auto engine = make_engine(options);
  const EngineRequest good = some_requests(1).front();
  const auto refused = [&](const auto& change, Errc code, const std::string& words) {
    EngineRequest request = good;
    change(request);
    const auto result = engine->add(request);
    ASSERT_FALSE(result.has_value()) << words;
    EXPECT_EQ(result.error().code, code) << words;
    EXPECT_THAT(result.error().message(), HasSubstr(words));
  };
  using R = EngineRequest;
  constexpr double kNan = std::numeric_limits<double>::quiet_NaN();
  refused([](R& r) { r.prompt.clear(); }, Errc::kInvalidArgument, "the prompt is empty");
  refused([](R& r) { r.prompt.assign(128, 1); }, Errc::kTooLarge, "the prompt has 128 tokens, and the context 128");
  refused([](R& r) { r.prompt = {1, 40}; }, Errc::kInvalidArgument, "the prompt has 40");
  refused([](R& r) { r.prompt = {-1}; }, Errc::kInvalidArgument, "the prompt has -1");
  refused([](R& r) { r.tokens_max = 0; }, Errc::kInvalidArgument, "tokens_max is 0");
  refused([](R& r) { r.sampling.temperature = -0.5; }, Errc::kInvalidArgument, "temperature is -0.5");
  refused([](R& r) { r.sampling.temperature = kNan; }, Errc::kInvalidArgument, "temperature is nan");
  refused([](R& r) { r.sampling.top_p = 0; }, Errc::kInvalidArgument, "top_p is 0");
  refused([](R& r) { r.sampling.top_p = kNan; }, Errc::kInvalidArgument, "top_p is nan");
  refused([](R& r) { r.sampling.top_k = -1; }, Errc::kInvalidArgument, "top_k is -1");
  refused([](R& r) { r.sampling.min_p = 1.5; }, Errc::kInvalidArgument, "min_p is 1.5");
  refused([](R& r) { r.sampling.repetition_penalty = 0; }, Errc::kInvalidArgument, "repetition_penalty is 0");
  refused([](R& r) { r.sampling.repetition_penalty = 1e-300; }, Errc::kInvalidArgument,
          "repetition_penalty is 1e-300; it is 0.01 to 100");
  refused([](R& r) { r.stop_tokens = {40}; }, Errc::kInvalidArgument, "stop_tokens has 40");
  refused([](R& r) { r.stop_tokens.assign(65, 1); }, Errc::kInvalidArgument, "65 stop tokens");
  refused([](R& r) { r.stop_strings = {"x"}; }, Errc::kInvalidArgument, "no tokenizer");
  refused([](R& r) { r.stop_strings = {""}; }, Errc::kInvalidArgument, "0 bytes");
  refused([](R& r) { r.top = 65; }, Errc::kInvalidArgument, "65 alternatives");
  EXPECT_FALSE(engine->busy());
  ASSERT_TRUE(engine->add(good).has_value());
  ASSERT_TRUE(engine->add(good).has_value());
  refused([](R&) {}, Errc::kBusy, "2 others wait already");
}

TEST(Engine, RefusesOptionsThatItCannotWorkWith) {
  const auto weights = made_weights(small_config(), 1);
  const auto error = [&](const auto& change) {
    EngineOptions options;
    change(options);
    const auto result = Engine::make(weights, kFirst, options);
    return result.has_value() ? std::string() : result.error().message();
  };
  EXPECT_THAT(error([](EngineOptions& o) { o.cache_bytes_max = 100; }), HasSubstr("cache_bytes_max is 100"));
  EXPECT_THAT(error([](EngineOptions& o) { o.step_tokens_max = 0; }), HasSubstr("step_tokens_max is 0"));
  EXPECT_THAT(error([](EngineOptions& o) { o.end_tokens = {40}; }), HasSubstr("end_tokens has 40"));
}

TEST(Engine, EndsRequestsWhoseLogitsAreNotFinite) {
  const auto weights = made_weights(small_config(), 1, std::numeric_limits<double>::infinity());
  const auto engine = make_engine({}, weights);
  ASSERT_TRUE(engine->add(some_requests(1).front()).has_value());
  const Answer answer = run(*engine)[0];
  EXPECT_EQ(answer.finished, FinishReason::kFailed);
  EXPECT_THAT(answer.failure, HasSubstr("version 7"));
  EXPECT_EQ(engine->status().blocks_used, 0u);
}

// ------------------------------------------------------------------------------------------------ other weights

struct Switched {
  std::map<std::uint64_t, Answer> answers;
  std::map<std::uint64_t, std::size_t> before;  // tokens under the first version
};

/// Runs requests, with other weights after four steps.
Switched run_with_switch(InFlight policy, const std::vector<EngineRequest>& requests,
                         const std::shared_ptr<const EngineWeights>& next) {
  EngineOptions options;
  options.in_flight = policy;
  options.running_max = 4;
  const auto engine = make_engine(options);
  for (const EngineRequest& request : requests) EXPECT_TRUE(engine->add(request).has_value());
  Switched result;
  for (int i = 0; i < 4; ++i) take(engine->step(), result.answers);
  for (const auto& [tag, answer] : result.answers) result.before[tag] = answer.tokens.size();
  EXPECT_TRUE(engine->set_weights(Version{8}, next).has_value());
  EXPECT_EQ(engine->version(), Version{8});
  result.answers = run(*engine, std::move(result.answers));
  EXPECT_EQ(engine->status().blocks_used, 0u);
  return result;
}

TEST(EngineWeightsSwitch, KeepsWhatRunsAndNamesEachTokensVersion) {
  const std::vector<EngineRequest> requests = some_requests(12);
  const auto next = made_weights(small_config(), 50);
  const auto old_answers = one_by_one(requests, {}, made_weights(small_config(), 1));
  const auto new_answers = one_by_one(requests, {}, next);
  const Switched switched = run_with_switch(InFlight::kKeep, requests, next);
  std::size_t mixed = 0;
  for (const auto& [tag, answer] : switched.answers) {
    const std::size_t before = switched.before.contains(tag) ? switched.before.at(tag) : 0;
    for (std::size_t i = 0; i < answer.tokens.size(); ++i) EXPECT_EQ(answer.versions[i], i < before ? 7u : 8u);
    for (std::size_t i = 0; i < before; ++i) EXPECT_EQ(answer.tokens[i], old_answers.at(tag).tokens[i]);
    EXPECT_EQ(answer.tokens.size(), old_answers.at(tag).tokens.size());
    if (before == 0) {
      EXPECT_EQ(answer, new_answers.at(tag)) << "keys of the old weights were shared";
    }
    mixed += before > 0 && before < answer.tokens.size() ? 1 : 0;
  }
  EXPECT_GT(mixed, 0u);
}

TEST(EngineWeightsSwitch, ComputesAgainWhatRuns) {
  const std::vector<EngineRequest> requests = some_requests(12);
  const auto next = made_weights(small_config(), 50);
  const Switched switched = run_with_switch(InFlight::kRecompute, requests, next);
  for (const auto& [tag, answer] : switched.answers) {
    const std::size_t before = switched.before.contains(tag) ? switched.before.at(tag) : 0;
    if (before == 0 || before == answer.tokens.size()) continue;
    // The rest is what the new weights make of prompt and tokens together: check the first of them greedily.
    EngineRequest continued = requests[tag];
    continued.prompt.insert(continued.prompt.end(), answer.tokens.begin(),
                            answer.tokens.begin() + static_cast<std::ptrdiff_t>(before));
    continued.prompt.push_back(answer.tokens[before]);
    continued.prompt_log_probs = true;
    const Answer scored = one_by_one({continued}, {}, next)[tag];
    EXPECT_NEAR(scored.prompt.back().log_prob, answer.log_probs[before], 1e-5);
  }
}

TEST(EngineWeightsSwitch, RestartsWhatRuns) {
  const std::vector<EngineRequest> requests = some_requests(12);
  const auto next = made_weights(small_config(), 50);
  const auto new_answers = one_by_one(requests, {}, next);
  const Switched switched = run_with_switch(InFlight::kRestart, requests, next);
  std::size_t restarts = 0;
  for (const auto& [tag, answer] : switched.answers) {
    if (answer.versions.front() == 7) {
      EXPECT_EQ(answer.restarts, 0);  // it had ended before
      continue;
    }
    EXPECT_EQ(answer, new_answers.at(tag));
    restarts += static_cast<std::size_t>(answer.restarts);
  }
  EXPECT_GT(restarts, 0u);
}

TEST(EngineWeightsSwitch, RefusesAnotherModelAndKeepsTheOldWeights) {
  const auto engine = make_engine();
  ModelConfig other = small_config();
  other.num_hidden_layers = 3;
  other.rope.theta = 1e6;
  const Status refused = engine->set_weights(Version{8}, made_weights(other, 1));
  ASSERT_FALSE(refused.has_value());
  EXPECT_THAT(refused.error().message(), HasSubstr("num_hidden_layers is 3 and not 2; rope_theta is 1000000"));
  EXPECT_EQ(engine->version(), kFirst);
  const std::vector<EngineRequest> requests = some_requests(1);
  ASSERT_TRUE(engine->add(requests.front()).has_value());
  EXPECT_EQ(run(*engine), one_by_one(requests, {}, made_weights(small_config(), 1)));
}

}  // namespace
}  // namespace weightcast
