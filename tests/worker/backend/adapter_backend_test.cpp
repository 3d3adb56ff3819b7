// A worker's backend over real sockets, and a double of vLLM behind it that takes adapters.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/worker/backend/backend_double.h"

namespace weightcast {
namespace {

using namespace std::chrono_literals;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::Not;

/// By vLLM's older route, and by the one that says each token's version.
class AdapterBackend : public BackendOverDouble, public testing::WithParamInterface<bool> {
 protected:
  AdapterBackend() : BackendOverDouble(BackendKind::kVllm) {
    write_model(base(), {.seed = 9});
    for (const std::uint64_t version : {1, 2, 3, 4}) write_lora(directory_of(version), base(), version);
    options_.model = ModelFiles::open(files_, base()).value().config;
    options_.needs.adapter_rank = 4;
    options_.protocol.model = "m";
    flags_.scale_out = GetParam();
    flags_.max_loras = 3;
    flags_.model = base().string();
  }
  [[nodiscard]] std::filesystem::path base() const { return directory_ / "base"; }
  static std::string name_of(std::uint64_t version) {
    return "weightcast-" + std::to_string(version) + "-" + scripted_digest(version);
  }
  /// An answer that the double stalls.
  void begin(std::uint64_t tag) {
    double_->misbehave(Misbehaviour::kStall);
    const int before = double_->calls(route());
    add(tag);
    ASSERT_TRUE(step_until([&] { return double_->calls(route()) == before + 1; })) << "it is held back";
  }
  void expect_under(std::uint64_t tag, std::uint64_t version) { expect_under(tag, version, directory_of(version)); }
  void expect_under(std::uint64_t tag, std::uint64_t version, const std::filesystem::path& directory) {
    const EngineEvent event = next_event();
    EXPECT_EQ(event.tag, tag);
    BackendOverDouble::expect_under(event, version, directory);
  }
  [[nodiscard]] const char* route() const { return GetParam() ? "/inference/v1/generate" : "/v1/completions"; }
};

TEST_P(AdapterBackend, EachAnswerIsOfTheAdapterThatItNames) {
  start();
  add(1);
  install(1);
  expect_under(1, 1);
  EXPECT_EQ(double_->body(route())["model"], name_of(1));
  install(2);
  add(2);
  expect_under(2, 2);
  EXPECT_TRUE(step_until([&] { return double_->adapters() == std::set<std::string>{name_of(2)}; }))
      << "nobody names version 1 any more";
  EXPECT_TRUE(step_until([&] { return script_.pinned() == std::multiset<std::uint64_t>{2}; }));
  for (const char* pausing : {"/pause", "/resume", "/collective_rpc", "/reset_prefix_cache"}) {
    EXPECT_EQ(double_->calls(pausing), 0) << pausing;
  }
  EXPECT_EQ(said(), "");
}

TEST_P(AdapterBackend, AnswersUnderWayEndUnderTheirsWhileOthersBegin) {
  start();
  install(1);
  begin(1);
  install(2);
  begin(2);
  EXPECT_THAT(double_->adapters(), ElementsAre(name_of(1), name_of(2)));
  EXPECT_EQ(script_.pinned(), (std::multiset<std::uint64_t>{1, 2})) << "the server may read both again";
  double_->finish_completions();
  ASSERT_TRUE(step_until([&] { return events_.size() == 2; })) << said();
  std::ranges::sort(events_, {}, &EngineEvent::tag);
  expect_under(1, 1);
  expect_under(2, 2);
  EXPECT_TRUE(step_until([&] { return double_->adapters().size() == 1; }));
}

TEST_P(AdapterBackend, NoMoreAreLoadedThanTheServerHasPlacesFor) {
  flags_.max_loras = 2;
  start();
  install(1);
  begin(1);
  install(2);
  offer(3);
  offer(4);
  begin(2);
  double_->finish_completions();
  std::optional<Version> taken;
  ASSERT_TRUE(step_until([&] { return (taken = backend_->take_version()) == Version{4}; })) << said();
  EXPECT_EQ(double_->adapters_peak(), 2u);
  ASSERT_TRUE(step_until([&] { return events_.size() == 2; }));
}

TEST_P(AdapterBackend, ANameThatIsForgottenIsLoadedAgain) {
  start();
  install(1);
  add(1);
  expect_under(1, 1);
  double_->forget();
  for (std::uint64_t tag = 2; tag < 8; ++tag) add(tag);
  ASSERT_TRUE(step_until([&] { return events_.size() == 6; })) << said();
  std::ranges::sort(events_, {}, &EngineEvent::tag);
  for (std::uint64_t tag = 2; tag < 8; ++tag) expect_under(tag, 1);
  EXPECT_THAT(said(), HasSubstr("it has forgotten version 1"));
}

TEST_P(AdapterBackend, AServerThatIsStartedAnewOtherwiseGetsNoWork) {
  start();
  install(1);
  const Endpoint where = double_->endpoint();
  flags_.max_loras = 0;
  start_server(where);
  add(1);
  ASSERT_TRUE(says("start it with --enable-lora --max-lora-rank 8 --max-loras 4")) << said();
  EXPECT_TRUE(events_.empty());
  flags_.max_loras = 3;
  start_server(where);
  expect_under(1, 1);
}

TEST_P(AdapterBackend, ANameOfAWorkerBeforeIsLoadedFromThisOnesDirectory) {
  start();
  install(1);
  backend_.reset();
  EXPECT_THAT(double_->adapters(), ElementsAre(name_of(1)));
  std::filesystem::create_directory(directory_ / "moved");
  std::filesystem::rename(directory_of(1), directory_ / "moved/1");
  start();
  script_.install(1, directory_ / "moved/1");
  ASSERT_TRUE(step_until([&] { return backend_->take_version() == Version{1}; })) << said();
  add(1);
  expect_under(1, 1, directory_ / "moved/1");
  EXPECT_EQ(said(), "");
}

TEST_P(AdapterBackend, ARefusedAdapterLeavesTheOneBeforeInUse) {
  start();
  install(1);
  double_->misbehave(Misbehaviour::kRefusesInstalls);
  offer(2);
  ASSERT_TRUE(says("version 2: ")) << said();
  EXPECT_THAT(said(), HasSubstr("it does not fit; version 1 stays in use"));
  double_->misbehave(Misbehaviour::kNone);
  add(1);
  expect_under(1, 1);
  install(3);
  add(2);
  expect_under(2, 3);
}

TEST_P(AdapterBackend, WhatIsNoAdapterOfTheRunNeverReachesTheServer) {
  start();
  install(1);
  const int before = double_->calls("/v1/load_lora_adapter");
  write_lora(directory_of(5), base(), 5, 8);
  offer(5);
  ASSERT_TRUE(says("version 5 is not used: cannot install: its rank is 8, and the run's adapters have 4")) << said();
  write_lora(directory_of(6), base(), 6);
  std::filesystem::resize_file(directory_of(6) / "adapter_model.safetensors", 3000);
  offer(6);
  ASSERT_TRUE(says("version 6 is not used: ")) << said();
  script_.install(7, base());
  ASSERT_TRUE(says("version 7 is not used: ")) << said();
  EXPECT_THAT(said(), HasSubstr("it is no adapter of the run's"));
  EXPECT_EQ(double_->calls("/v1/load_lora_adapter"), before);
  add(1);
  expect_under(1, 1);
}

TEST_P(AdapterBackend, EachInstallIsCheckedAgainstOurOwnPassOverBaseAndAdapter) {
  start_checked();
  for (const std::uint64_t version : {1, 2}) install(version);
  double_->misbehave(Misbehaviour::kKeepsWeights);
  offer(3);
  ASSERT_TRUE(says("version 3: ")) << said();
  EXPECT_THAT(said(), HasSubstr("computes with other weights"));
  EXPECT_THAT(said(), HasSubstr("; version 2 stays in use"));
  EXPECT_TRUE(step_until([&] { return double_->adapters() == std::set<std::string>{name_of(2)}; }))
      << "the wrong one is unloaded";
  EXPECT_FALSE(double_->is_paused());
  double_->misbehave(Misbehaviour::kNone);
  install(4);
}

TEST_P(AdapterBackend, AServerWithoutWhatAdaptersNeedIsRefusedAtTheStart) {
  flags_.max_loras = 0;
  flags_.updates_loras = false;
  EXPECT_THAT(refusal(), HasSubstr("start it with VLLM_ALLOW_RUNTIME_LORA_UPDATING=1 --enable-lora --max-lora-rank 8 "
                                   "--max-loras 4"));
}

TEST_P(AdapterBackend, ABaseThatCannotBeCheckedIsRefusedAtTheStart) {
  options_.checks_installs = true;
  flags_.model = "Qwen/Qwen3-0.6B";
  EXPECT_THAT(refusal(), HasSubstr("set backend_check = false"));
  options_.checks_installs = false;
  EXPECT_EQ(refusal(), "taken");
  options_.checks_installs = true;
  write_model(directory_ / "other", {.layers = 3});
  flags_.model = (directory_ / "other").string();
  double_.reset();
  EXPECT_THAT(refusal(), HasSubstr("num_hidden_layers"));
}

TEST_P(AdapterBackend, AnswersCannotGoOnUnderAnotherAdapter) {
  for (const BackendSwitch policy : {BackendSwitch::kKeep, BackendSwitch::kRecompute}) {
    options_.on_switch = policy;
    EXPECT_THAT(refusal(), GetParam() ? HasSubstr("an answer ends under the adapter that it began with")
                                      : HasSubstr("--enable-scale-out"));
  }
  options_.on_switch = BackendSwitch::kRestart;
  EXPECT_EQ(refusal(), "taken");
}

INSTANTIATE_TEST_SUITE_P(Routes, AdapterBackend, testing::Values(false, true),
                         [](const auto& route) { return route.param ? "Generate" : "Completions"; });

TEST(AdapterBackends, OthersAreGivenWholeModels) {
  PosixFileSystem files;
  ScriptedVersions script;
  BackendDouble server(BackendKind::kSglang);
  BackendOptions options;
  options.kind = BackendKind::kSglang;
  options.server = server.endpoint();
  options.needs.adapter_rank = 4;
  const auto made = Backend::start(files, std::make_unique<ScriptedSource>(script), options, [](const std::string&) {});
  ASSERT_FALSE(made.has_value());
  EXPECT_THAT(made.error().message(), HasSubstr("sglang is given whole models here"));
  EXPECT_THAT(made.error().message(), HasSubstr("set lora_publish = \"merged\" at the learner"));
}

}  // namespace
}  // namespace weightcast
