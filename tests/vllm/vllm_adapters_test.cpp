// Versions that are adapters, at the real vLLM 0.32.0.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <memory>

#include "tests/vllm/backend_over_vllm.h"
#include "tests/worker/engine/written_adapters.h"

namespace weightcast {
namespace {

using testing::HasSubstr;

class VllmAdapters : public BackendOverVllm {
 protected:
  static void SetUpTestSuite() {
    directory_ = std::make_unique<TestDirectory>();
    write_model(base(), model_of(200, false));
    for (const std::uint64_t version : {1, 2, 3, 4}) {
      write_lora(adapter(version), base(), version);
      write_merged(merged(version), base(), adapter(version));
    }
    std::vector<std::string> flags = vllm_flags();
    flags.insert(flags.end(), {"--enable-lora", "--max-lora-rank", "8", "--max-loras", "3"});
    server_ = std::make_unique<VllmServer>(base(), *directory_ / "vllm.log", flags,
                                           std::vector<std::string>{"VLLM_ALLOW_RUNTIME_LORA_UPDATING=1"});
    ASSERT_TRUE(server_->wait_until_ready(kStartTime)) << read_file((*directory_ / "vllm.log").string());
  }
  static void TearDownTestSuite() {
    server_.reset();
    directory_.reset();
  }
  void SetUp() override {
    // A worker that ends leaves its last one.
    for (const std::string& name : names()) {
      static_cast<void>(server_->post("/v1/unload_lora_adapter", {{"lora_name", name}}));
    }
    ASSERT_TRUE(names().empty());
  }
  static std::filesystem::path base() { return *directory_ / "base"; }
  static std::filesystem::path adapter(std::uint64_t version) { return *directory_ / std::to_string(version); }
  /// The same as a plain model, which our own pass computes another way.
  static std::filesystem::path merged(std::uint64_t version) {
    return *directory_ / ("merged" + std::to_string(version));
  }
  void start() {
    BackendOptions made = options(*server_, base());
    made.needs.adapter_rank = 4;
    DrivenBackend::start(std::move(made));
  }
  void install(std::uint64_t version) { DrivenBackend::install(version, adapter(version)); }
  static double generated() { return server_->metric("vllm:generation_tokens_total"); }
  /// A long answer, under way.
  void begin_long_answer(const std::vector<TokenId>& prompt) {
    const double before = generated();
    add(prompt, 900);
    ASSERT_TRUE(step_until([&] { return generated() > before + 20; })) << said();
    ASSERT_TRUE(events_.empty());
  }
  void expect_adapter(std::uint64_t version, const std::vector<TokenId>& prompt, const EngineEvent& event) {
    for (const EngineToken& token : event.tokens) ASSERT_EQ(token.version, Version{version});
    // W x + B A x is not (W + B A) x to the last bit.
    expect_ours(merged(version), prompt, event, 0, event.tokens.size(), 3 * kDifferenceMax);
  }
  /// Names of the adapters that it has.
  static std::vector<std::string> names() {
    std::vector<std::string> names;
    const nlohmann::json models = server_->get("/v1/models");
    for (const nlohmann::json& model : models.at("data")) {
      if (model.at("id") != "m") names.push_back(model.at("id").get<std::string>());
    }
    return names;
  }

  static inline std::unique_ptr<TestDirectory> directory_;
  static inline std::unique_ptr<VllmServer> server_;
};

TEST_F(VllmAdapters, SeveralAreInstalledWhileAnswersAreUnderWay) {
  start();
  const std::vector<TokenId> prompt{3, 1, 4, 1, 5};
  install(1);
  begin_long_answer(prompt);
  install(2);
  begin_long_answer(prompt);
  install(3);
  EXPECT_TRUE(events_.empty()) << "both are still under way";
  EXPECT_EQ(names().size(), 3u);
  // The one prompt's keys are another adapter's in the cache.
  add(prompt, 32);
  const EngineEvent last = next_event();
  ASSERT_EQ(last.tokens.size(), 32u);
  expect_adapter(3, prompt, last);
  for (const std::uint64_t version : {1, 2}) {
    const EngineEvent event = next_event();
    ASSERT_EQ(event.tokens.size(), 900u);
    expect_adapter(version, prompt, event);
  }
  EXPECT_TRUE(step_until([&] { return names().size() == 1; })) << "what nobody names is unloaded";
  EXPECT_GT(server_->metric("http_requests_total", "/inference/v1/generate"), 0) << "it counts calls";
  for (const char* route : {"/pause", "/resume", "/collective_rpc", "/reset_prefix_cache"}) {
    EXPECT_EQ(server_->metric("http_requests_total", route), 0) << route;
  }
  EXPECT_EQ(said(), "");
}

TEST_F(VllmAdapters, TheOneBeyondItsPlacesWaitsAndTheNewestIsNext) {
  start();
  const std::vector<TokenId> prompt{2, 7, 1, 8};
  install(1);
  begin_long_answer(prompt);
  install(2);
  begin_long_answer(prompt);
  install(3);
  script_.install(4, adapter(4));
  add(prompt, 8);
  expect_adapter(3, prompt, next_event());
  EXPECT_EQ(names().size(), 3u);
  EXPECT_FALSE(backend_->take_version()) << "no place is free";
  const EngineEvent first = next_event();
  expect_adapter(1, prompt, first);
  EXPECT_EQ(wait_for_version(), Version{4});
  add(prompt, 8);
  EXPECT_TRUE(step_until([&] { return events_.size() == 2; }));
  std::ranges::sort(events_, {}, [](const EngineEvent& event) { return event.tokens.size(); });
  expect_adapter(4, prompt, next_event());
  expect_adapter(2, prompt, next_event());
}

TEST_F(VllmAdapters, ANameThatItHasForgottenIsLoadedAgain) {
  start();
  install(1);
  const std::vector<std::string> had = names();
  ASSERT_EQ(had.size(), 1u);
  // The answer to this is text; what counts is that it is gone.
  static_cast<void>(server_->post("/v1/unload_lora_adapter", {{"lora_name", had[0]}}));
  ASSERT_TRUE(names().empty());
  const std::vector<TokenId> prompt{1, 6, 1, 8};
  add(prompt, 8);
  expect_adapter(1, prompt, next_event());
  EXPECT_THAT(said(), HasSubstr("has no adapter " + had[0]));
  EXPECT_THAT(said(), HasSubstr("it has forgotten version 1"));
  EXPECT_EQ(names(), had);
}

TEST_F(VllmAdapters, ABaseThatSomebodyReplacedGetsNoWork) {
  start();
  install(1);
  // Its weights are the same; nobody knows.
  ASSERT_FALSE(server_->post("/update_weight_version", {{"new_version", "7"}}).is_null());
  const std::vector<TokenId> prompt{9, 8, 7};
  add(prompt, 8);
  ASSERT_TRUE(says("start it anew")) << said();
  EXPECT_TRUE(events_.empty());
  ASSERT_FALSE(server_->post("/update_weight_version", {{"new_version", "default"}}).is_null());
  expect_adapter(1, prompt, next_event());
}

TEST_F(VllmAdapters, AServerThatIsKilledAndStartedAnewGoesOn) {
  start();
  install(1);
  install(2);
  server_->kill();
  const std::vector<TokenId> prompt{9, 9, 9};
  add(prompt, 8);
  ASSERT_TRUE(says("the server that generates: ")) << said();
  server_->start();
  ASSERT_TRUE(server_->wait_until_ready(kStartTime));
  expect_adapter(2, prompt, next_event());
}

}  // namespace
}  // namespace weightcast
