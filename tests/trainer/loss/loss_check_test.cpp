// The JSON of `weightcast-train check loss`, also with what TRL and verl make of the same input:
// tests/oracles/*_losses.py.
#include "trainer/loss/loss_check.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <set>

#include "tests/golden_lines.h"
#include "trainer/loss/policy_loss_options.h"

namespace weightcast {
namespace {

using Json = nlohmann::json;

Json base() {
  return Json::parse(R"({"pg_variant": "ppo", "clip_ratio_low": 0.2, "clip_ratio_high": 0.2, "clip_ratio_c": 1.5,
    "log_probs": [[0.6931471805599453, 0.6931471805599453, -0.6931471805599453]],
    "old_log_probs": [[0, 0, 0]], "advantages": [[2, -2, 2]]})");
}

std::string refusal(const Json& input) {
  const auto result = check_loss(input);
  return result ? "no refusal" : result.error().detail;
}

std::string refusal_with(const char* key, Json value) {
  Json input = base();
  input[key] = std::move(value);
  return refusal(input);
}

/// The numbers are those of slime's tests/test_policy_loss.py.
TEST(LossCheck, PrintsLossTermsGradientAndMetrics) {
  const Json result = *check_loss(base());
  EXPECT_NEAR(result["loss"].get<double>(), -0.4 / 3, 1e-12);
  const double terms[] = {-2.4, 3.0, -1.0}, gradient[] = {0, 0, -1.0 / 3};
  for (std::size_t i = 0; i < 3; ++i) {
    EXPECT_NEAR(result["per_token"][0][i].get<double>(), terms[i], 1e-12);
    EXPECT_NEAR(result["grad_log_probs"][0][i].get<double>(), gradient[i], 1e-12);
  }
  EXPECT_NEAR(result["metrics"]["actor/pg_clipfrac"].get<double>(), 1.0 / 3, 1e-12);
  EXPECT_NEAR(result["metrics"]["actor/pg_clipfrac_lower"].get<double>(), 1.0 / 3, 1e-12);
  EXPECT_NEAR(result["metrics"]["actor/ppo_kl"].get<double>(), -std::log(2.0) / 3, 1e-12);
}

TEST(LossCheck, NullIsNotANumber) {
  Json input = base();
  input["response_mask"] = Json::parse("[[1, true, 0]]");
  input["log_probs"][0][2] = nullptr;
  input["advantages"][0][2] = nullptr;
  Json result = *check_loss(input);
  EXPECT_NEAR(result["loss"].get<double>(), 0.3, 1e-12);
  EXPECT_EQ(result["grad_log_probs"][0][2], 0.0);
  EXPECT_EQ(result["per_token"][0][2].dump(), "0.0");
  input["log_probs"][0][1] = nullptr;  // this one counts
  result = *check_loss(input);
  EXPECT_TRUE(result["loss"].is_null());
  EXPECT_TRUE(result["per_token"][0][1].is_null());
}

TEST(LossCheck, WhatIsAbsentIsOff) {
  Json input = base();
  for (const char* key : {"clip_ratio_low", "clip_ratio_high", "clip_ratio_c"}) input.erase(key);
  EXPECT_NEAR((*check_loss(input))["loss"].get<double>(), (-4 + 4 - 1) / 3.0, 1e-12);
  // Without rollout_log_probs old_log_probs stand for them.
  input["pg_variant"] = "tis";
  input["ratio_high"] = 1.5;
  const double log_2 = std::log(2.0);
  EXPECT_NEAR((*check_loss(input))["loss"].get<double>(), (-1.5 * 2 + 1.5 * 2 + 0.5 * 2) * log_2 / 3, 1e-12);
}

TEST(LossCheck, RefusesBadInput) {
  EXPECT_EQ(refusal(Json::array()), "check loss: the input is no JSON object");
  EXPECT_THAT(refusal_with("clip_ratio_hi", 1),
              testing::StartsWith("check loss: 'clip_ratio_hi' is no key of the input; "
                                  "the nearest is 'clip_ratio_high'"));
  EXPECT_THAT(refusal_with("pg_variant", "cipso"), testing::HasSubstr("the nearest is 'cispo'"));
  EXPECT_THAT(refusal_with("pg_variant", "dpo"), testing::StartsWith("pg_variant dpo: a loss over pairs"));
  EXPECT_EQ(check_loss(Json{{"pg_variant", "dpo"}}).error().code, Errc::kUnsupported);
  EXPECT_EQ(refusal_with("pg_variant", 3), "check loss: 'pg_variant' is no text");
  EXPECT_THAT(refusal_with("loss_agg_mode", "token_mean"), testing::HasSubstr("the nearest is 'token-mean'"));
  EXPECT_EQ(refusal_with("clip_ratio_low", "0.2"), "check loss: 'clip_ratio_low' is no number");
  EXPECT_EQ(refusal_with("tis_cap", nullptr), "check loss: 'tis_cap' is no number");
  EXPECT_EQ(refusal_with("advantages", 1), "check loss: 'advantages' is no list of rows");
  EXPECT_EQ(refusal_with("advantages", {1, 2, 3}), "check loss: advantages[0] is no list");
  EXPECT_EQ(refusal_with("advantages", Json::parse("[[1, 2, 3], [1, 2]]")),
            "check loss: advantages[1] has 2 numbers, advantages[0] has 3");
  EXPECT_EQ(refusal_with("advantages", Json::parse(R"([[1, 2, "x"]])")), "check loss: advantages[0][2] is no number");
  EXPECT_EQ(refusal_with("advantages", Json::parse("[[1, 2]]")), "loss: advantages has shape [1, 2], log_probs [1, 3]");
  EXPECT_EQ(refusal_with("log_probs", Json::parse("[[]]")),
            "loss: log_probs have shape [1, 0]: [sequences, tokens] is wanted, with at least one of each");
  EXPECT_EQ(refusal_with("response_mask", Json::parse("[[1, 0.5, 0]]")),
            "check loss: 'response_mask' has other values than 0 and 1");
  EXPECT_EQ(refusal_with("topr_weights", Json::parse("[1]")),
            "check loss: 'topr_weights' is no list of two numbers: the weights of positives and of negatives");
  Json input = base();
  input.erase("pg_variant");
  EXPECT_THAT(refusal(input), testing::StartsWith("check loss: the input has no 'pg_variant'"));
}

TEST(LossCheck, HelpNamesEveryVariant) {
  for (const std::string_view name : kWords<PgVariant>) EXPECT_THAT(loss_check_help(), testing::HasSubstr(name));
}

TEST(LossCheck, RefusesAScoreThatIsNoNumber) {
  const auto result = check_loss(Json::parse(
      R"({"pg_variant": "topr", "log_probs": [[-1], [-1]], "rollout_log_probs": [[-1], [-1]],
          "advantages": [[1], [1]], "scores": [1, null]})"));
  ASSERT_FALSE(result.has_value());
  EXPECT_THAT(result.error().detail, testing::HasSubstr("scores[1] is not a number"));
}

/// Each line has an input and what somebody else's code makes of it.
void expect_golden(const char* file, std::size_t variants_min) {
  std::set<std::string> variants;
  for (const auto& line : golden_lines(std::string(WEIGHTCAST_TRAINER_GOLDEN "/") + file)) {
    const auto result = check_loss(line["input"]);
    ASSERT_TRUE(result.has_value()) << result.error().detail;
    variants.insert(line["input"]["pg_variant"].get<std::string>());
    ASSERT_NEAR((*result)["loss"].get<double>(), line["loss"].get<double>(), 1e-7) << line["input"].dump();
    const Json &got = (*result)["grad_log_probs"], &wanted = line["grad_log_probs"];
    for (std::size_t i = 0; i < wanted.size(); ++i) {
      for (std::size_t j = 0; j < wanted[i].size(); ++j) {
        ASSERT_NEAR(got[i][j].get<double>(), wanted[i][j].get<double>(), 1e-7) << line["input"].dump();
      }
    }
    for (const auto& [name, value] : line["metrics"].items()) {
      ASSERT_TRUE((*result)["metrics"].contains(name)) << name;
      ASSERT_NEAR((*result)["metrics"][name].get<double>(), value.get<double>(), 1e-6) << name << line["input"].dump();
    }
  }
  EXPECT_GE(variants.size(), variants_min);
}

TEST(LossGolden, AreVerls) { expect_golden("verl_losses.jsonl", 3); }
TEST(LossGolden, AreTrls) { expect_golden("trl_losses.jsonl", 2); }

}  // namespace
}  // namespace weightcast
