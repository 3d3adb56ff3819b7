// Trajectories that the surface makes for a learner: ECHO's calls.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/transport/http/raw_client.h"
#include "tests/worker/serve/surface_fixture.h"

namespace weightcast {
namespace {

using testing::HasSubstr;
using TrajectoriesTest = SurfaceTest;

/// An answer is worth its bytes, and right if its prompt's metadata say so. Metadata without that are refused.
class BytesTask final : public Task {
 public:
  std::string_view name() const override { return "bytes"; }
  Result<Prompt> prompt(std::uint64_t) const override { return Prompt{}; }
  Result<Score> score(const Metadata& metadata, std::string_view response) const override {
    WC_ASSIGN(const std::string right, metadata_value(metadata, "right"));
    if (right == "beyond measure") return Score{1e300, true};
    return Score{static_cast<double>(response.size()), right == "yes"};
  }
};

TEST_F(TrajectoriesTest, MakesTrajectoriesForEcho) {
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
TEST_F(TrajectoriesTest, TakesEchosNamesOfVersions) {
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

TEST_F(TrajectoriesTest, ComputesRewardsOfTrajectoriesByItsTask) {
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
    rewards.back() = static_cast<double>(tokenizer_->decode(actions, {.skip_special_tokens = true})->size());
    EXPECT_EQ(one["rewards"], Json(rewards)) << i;
    EXPECT_EQ(one["success"], i < 2) << i;
    EXPECT_TRUE(one["values"].is_null());
  }
  EXPECT_EQ(answer["absent"].size(), 1u);
  EXPECT_TRUE(answer["absent"].contains("values"));
}

TEST_F(TrajectoriesTest, GivesNoRewardThatALearnerWouldRefuse) {
  task_ = std::make_shared<BytesTask>();
  serve(kLimit);
  const HttpResponse answer =
      call("/v1/rl/trajectories", R"({"prompts": [[1]], "max_tokens": 1, "metadata": [{"right": "beyond measure"}]})");
  EXPECT_EQ(answer.status, 500u);
  EXPECT_THAT(answer.body, HasSubstr("a reward: it is 1e+300, and at most 1000000 in size counts"));
}

TEST_F(TrajectoriesTest, SaysWhyTrajectoriesHaveNoRewards) {
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

TEST_F(TrajectoriesTest, SaysWhichVersionItWillNeverHave) {
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

TEST_F(TrajectoriesTest, RefusesTrajectoriesThatNoLearnerAgreesWith) {
  const HttpResponse refused = call("/v1/rl/trajectories", R"({"prompts": [[1]], "repetition_penalty": 1.1})");
  EXPECT_EQ(refused.status, 400u);
  EXPECT_THAT(refused.body, HasSubstr("'repetition_penalty'"));
  EXPECT_EQ(call("/v1/rl/trajectories", R"({"prompts": [[1]], "max_tokens": 1, "repetition_penalty": 1})").status,
            200u);
}

TEST_F(TrajectoriesTest, AbortsTrajectoriesForAClientThatHasGone) {
  const std::string body = R"({"prompts": [[1], [2]], "n": 8, "max_tokens": 1000, "ignore_eos": true})";
  EXPECT_TRUE(is_aborted(16000, [&] {
    const double before = metric("answer_tokens_total");
    RawClient raw(surface_->endpoint().port);
    ASSERT_TRUE(raw.post("/v1/rl/trajectories", body));
    ASSERT_TRUE(eventually([&] { return metric("running") > 0 || metric("answer_tokens_total") > before; }));
  }));
}

}  // namespace
}  // namespace weightcast
