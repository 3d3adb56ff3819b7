// Answers of Hugging Face's transformers (tests/oracles/hf_generate.py).

#include <gtest/gtest.h>

#include <cmath>

#include "tests/golden_lines.h"
#include "tests/worker/engine/made_weights.h"
#include "worker/engine/engine.h"

namespace weightcast {
namespace {

using nlohmann::json;

/// What the rounding of FP32 and of the file, which has six digits, leaves between two log-probabilities.
double tolerance(double log_prob) { return 1e-5 * (1 + std::abs(log_prob)); }

TEST(EngineGolden, AnswersAreThoseOfTransformers) {
  for (const json& line : golden_lines(WEIGHTCAST_ENGINE_GOLDEN "/hf_generate.jsonl")) {
    const Result<ModelConfig> config = parse_model_config(line["config"].dump());
    ASSERT_TRUE(config.has_value()) << config.error().detail;
    const auto weights = made_weights(*config, line["seed"].get<std::uint64_t>());
    const auto engine = Engine::make(weights, kNoVersion, {}).value();
    for (std::size_t i = 0; i < line["prompts"].size(); ++i) {
      EngineRequest request;
      request.prompt = line["prompts"][i].get<std::vector<TokenId>>();
      request.sampling.temperature = 0;
      request.sampling.repetition_penalty = line["repetition_penalty"];
      request.tokens_max = line["answers"][i].size();
      request.prompt_log_probs = true;
      request.tag = i;
      ASSERT_TRUE(engine->add(request).has_value());
    }
    std::vector<std::size_t> answered(line["prompts"].size());
    while (engine->busy()) {
      for (const EngineEvent& event : engine->step()) {
        for (std::size_t k = 1; k < event.prompt.size(); ++k) {
          const auto expected = line["prompt_log_probs"][event.tag][k - 1].get<double>();
          EXPECT_NEAR(event.prompt[k].log_prob, expected, tolerance(expected)) << line["config"].dump();
        }
        for (const EngineToken& token : event.tokens) {
          const std::size_t place = answered[event.tag]++;
          EXPECT_EQ(token.token, line["answers"][event.tag][place].get<TokenId>()) << line["config"].dump();
          const auto expected = line["log_probs"][event.tag][place].get<double>();
          EXPECT_NEAR(token.log_prob, expected, tolerance(expected)) << line["config"].dump();
        }
      }
    }
    for (std::size_t i = 0; i < answered.size(); ++i) EXPECT_EQ(answered[i], line["answers"][i].size());
  }
}

TEST(EngineGolden, DistributionsAreThoseOfTransformers) {
  for (const json& line : golden_lines(WEIGHTCAST_ENGINE_GOLDEN "/hf_generate.jsonl")) {
    for (const json& one : line["distributions"]) {
      const json& given = one["options"];
      SamplingOptions options;
      options.repetition_penalty = given["repetition_penalty"];
      options.temperature = given["temperature"];
      options.top_k = given["top_k"];
      options.top_p = given["top_p"];
      options.min_p = given["min_p"];
      const auto seen = one["seen"].get<std::vector<TokenId>>();
      std::vector<bool> drawn(one["logits"].size());
      for (int i = 0; i < 2000; ++i) {
        auto logits = one["logits"].get<std::vector<float>>();
        const auto token = Sampler().sample(logits, options, seen, (i + 0.5) / 2000, logits.size());
        ASSERT_TRUE(token.has_value());
        const auto place = static_cast<std::size_t>(token->token);
        ASSERT_FALSE(one["log_probs"][place].is_null()) << one.dump();
        // Ours are of all tokens, and theirs of those that are left.
        const auto theirs = [&](TokenId id) { return one["log_probs"][static_cast<std::size_t>(id)]; };
        ASSERT_EQ(token->top.size(), logits.size()) << one.dump();
        double all = 0, kept = 0;
        for (const TokenLogProb& other : token->top) {
          all += std::exp(other.log_prob);
          if (!theirs(other.token).is_null()) kept += std::exp(other.log_prob);
        }
        EXPECT_NEAR(all, 1, 1e-5) << one.dump();
        EXPECT_NEAR(token->log_prob - std::log(kept), one["log_probs"][place].get<double>(), 1e-4) << one.dump();
        drawn[place] = true;
        if (i > 0) continue;
        for (const TokenLogProb& other : token->top) {
          if (theirs(other.token).is_null()) continue;
          EXPECT_NEAR(other.log_prob - std::log(kept), theirs(other.token).get<double>(), 1e-4) << one.dump();
        }
      }
      for (std::size_t i = 0; i < drawn.size(); ++i) {
        if (one["log_probs"][i].is_null() || one["log_probs"][i].get<double>() < std::log(0.002)) continue;
        EXPECT_TRUE(drawn[i]) << i << one.dump();
      }
    }
  }
}

}  // namespace
}  // namespace weightcast
