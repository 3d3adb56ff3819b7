// worker/backend against the real vLLM 0.32.0.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <memory>

#include "tests/vllm/backend_over_vllm.h"

namespace weightcast {
namespace {

using testing::HasSubstr;

class Vllm : public BackendOverVllm {
 protected:
  static void SetUpTestSuite() {
    directory_ = std::make_unique<TestDirectory>();
    for (const bool tied : {false, true}) {
      for (const std::uint64_t version : {0, 1, 2, 3}) write_model(model(version, tied), model_of(100 + version, tied));
    }
    const std::vector<std::string> flags = vllm_flags();
    server_ = std::make_unique<VllmServer>(model(0, false), *directory_ / "untied.log", flags);
    tied_ = std::make_unique<VllmServer>(model(0, true), *directory_ / "tied.log", flags);
    ASSERT_TRUE(server_->wait_until_ready(kStartTime)) << read_file((*directory_ / "untied.log").string());
    ASSERT_TRUE(tied_->wait_until_ready(kStartTime)) << read_file((*directory_ / "tied.log").string());
  }
  static void TearDownTestSuite() {
    server_.reset();
    tied_.reset();
    directory_.reset();
  }
  static std::filesystem::path model(std::uint64_t version, bool tied = false) {
    return *directory_ / ((tied ? "tied" : "untied") + std::to_string(version));
  }

  BackendOptions options(const VllmServer& server, bool tied = false) {
    return BackendOverVllm::options(server, model(0, tied));
  }
  /// A long answer that begins under version 1 and ends under version 2. Gives the number of its tokens of version 1.
  std::size_t switch_under_way(BackendSwitch policy, const std::vector<TokenId>& prompt, EngineEvent& event) {
    BackendOptions made = options(*server_);
    made.on_switch = policy;
    start(std::move(made));
    install(1, model(1));
    const double before = server_->metric("vllm:generation_tokens_total");
    add(prompt, 900);
    EXPECT_TRUE(step_until([&] { return server_->metric("vllm:generation_tokens_total") > before + 20; })) << said();
    install(2, model(2));
    EXPECT_TRUE(events_.empty()) << "it was still under way";
    event = next_event();
    const auto second = std::ranges::find(event.tokens, Version{2}, &EngineToken::version);
    const auto begin = static_cast<std::size_t>(second - event.tokens.begin());
    EXPECT_EQ(event.tokens.size(), 900u);
    EXPECT_GT(begin, 20u);
    EXPECT_LT(begin, 900u);
    for (std::size_t i = 0; i < event.tokens.size(); ++i) {
      EXPECT_EQ(event.tokens[i].version, Version{i < begin ? 1u : 2u});
    }
    return begin;
  }

  static inline std::unique_ptr<TestDirectory> directory_;
  static inline std::unique_ptr<VllmServer> server_, tied_;
};

TEST_F(Vllm, LogProbabilitiesAreOursAfterEachInstall) {
  start(options(*server_));
  const std::vector<TokenId> prompt{3, 1, 4, 1, 5};
  for (const std::uint64_t version : {1, 2, 3, 1}) {
    // A run that began anew may go back.
    script_.install(version, model(version),
                    static_cast<std::uint32_t>(version == 1 ? 1 + script_.directories.size() : 1));
    ASSERT_TRUE(step_until([&] { return backend_->take_version().has_value(); })) << said();
    add(prompt, 64);
    const EngineEvent event = next_event();
    ASSERT_EQ(event.tokens.size(), 64u);
    for (const EngineToken& token : event.tokens) EXPECT_EQ(token.version, Version{version});
    expect_ours(model(version), prompt, event, 0, 64);
  }
  EXPECT_EQ(said(), "");
}

TEST_F(Vllm, ATiedHeadThatStaysTheOldOneIsRefused) {
  start(options(*tied_, true));
  script_.install(1, model(1, true));
  ASSERT_TRUE(says("computes with other weights")) << said();
  EXPECT_FALSE(backend_->take_version());
  // It is not left with half of them, nor paused.
  ASSERT_TRUE(step_until([&] {
    return tied_->get("/is_paused") == nlohmann::json{{"is_paused", false}} &&
           tied_->get("/weight_info") == nlohmann::json{{"weight_version", "default"}};
  })) << said();
  const nlohmann::json answer =
      tied_->post("/inference/v1/generate",
                  {{"token_ids", {3, 1, 4}}, {"sampling_params", {{"max_tokens", 1}, {"seed", 1}, {"logprobs", 0}}}});
  const nlohmann::json token = answer.at("choices").at(0).at("logprobs").at("content").at(0);
  const std::vector<float> own = own_log_probs(model(0, true), {3, 1, 4, token.at("token_id").get<TokenId>()});
  EXPECT_NEAR(token.at("logprob").get<float>(), own.back(), kDifferenceMax) << "what it was started with, exactly";
}

TEST_F(Vllm, HalfOfTheTensorsNeverReachIt) {
  start(options(*server_));
  install(1, model(1));
  const auto half = *directory_ / "half";
  write_half(model(2), half);
  const auto reloads = [] { return server_->metric("http_requests_total", "/collective_rpc"); };
  const double before = reloads();
  EXPECT_GE(before, 1);
  script_.install(2, half);
  ASSERT_TRUE(says("version 2 is not used")) << said();
  EXPECT_THAT(said(), HasSubstr("missing"));
  EXPECT_EQ(reloads(), before);
  const std::vector<TokenId> prompt{2, 7, 1, 8};
  add(prompt, 8);
  expect_ours(model(1), prompt, next_event(), 0, 8);
}

TEST_F(Vllm, KeepGoesOnWithTheKeysThatAreThere) {
  const std::vector<TokenId> prompt{1, 6, 1, 8};
  EngineEvent event;
  const std::size_t begin = switch_under_way(BackendSwitch::kKeep, prompt, event);
  expect_ours(model(1), prompt, event, 0, begin);
  const std::vector<float> anew = own_log_probs(model(2), all_tokens(prompt, event));
  EXPECT_GT(std::abs(event.tokens[begin + 1].log_prob - anew[prompt.size() + begin + 1]), 1e-3F) << "old keys stay";
  // New answers have keys of their version alone, whatever the cache has of the one before.
  add(prompt, 8);
  expect_ours(model(2), prompt, next_event(), 0, 8);
}

TEST_F(Vllm, RecomputeGoesOnAsIfAllHadBeenComputedUnderTheNewVersion) {
  const std::vector<TokenId> prompt{1, 4, 1, 4};
  EngineEvent event;
  const std::size_t begin = switch_under_way(BackendSwitch::kRecompute, prompt, event);
  expect_ours(model(1), prompt, event, 0, begin);
  expect_ours(model(2), prompt, event, begin, event.tokens.size());
}

TEST_F(Vllm, AServerThatDoesNotDoIsRefusedAtTheStart) {
  BackendNeeds context, adapters, sampling;
  context.context_tokens = kPositions + 1;
  adapters.adapter_rank = 4;
  sampling.sampling.top_p = 0.9;
  const std::vector<std::pair<BackendNeeds, const char*>> cases{
      {context, "start it with --max-model-len 1025"},
      {adapters, "start it with VLLM_ALLOW_RUNTIME_LORA_UPDATING=1 --enable-lora --max-lora-rank 8 --max-loras 4"},
      {sampling, "--logprobs-mode raw_logprobs"}};
  for (const auto& [needs, words] : cases) {
    BackendOptions made = options(*server_);
    made.needs = needs;
    EXPECT_THAT(refusal(std::move(made)), HasSubstr(words));
  }
}

TEST_F(Vllm, AServerThatIsKilledAndStartedAnewGoesOn) {
  start(options(*server_));
  install(1, model(1));
  server_->kill();
  const std::vector<TokenId> prompt{9, 9, 9};
  add(prompt, 8);
  ASSERT_TRUE(says("the server that generates: ")) << said();
  server_->start();
  ASSERT_TRUE(server_->wait_until_ready(kStartTime));
  const EngineEvent event = next_event();
  EXPECT_EQ(event.tokens[0].version, Version{1});
  expect_ours(model(1), prompt, event, 0, 8);
}

}  // namespace
}  // namespace weightcast
