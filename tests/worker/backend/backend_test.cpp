#include "worker/backend/backend.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <thread>

#include "tests/worker/backend/backend_double.h"

namespace weightcast {
namespace {

using namespace std::chrono_literals;
using testing::AnyOf;
using testing::HasSubstr;

/// A double of each kind of server.
class BackendOver : public BackendOverDouble, public testing::WithParamInterface<BackendKind> {
 protected:
  BackendOver() : BackendOverDouble(GetParam()) {
    for (const std::uint64_t version : {1, 2, 3}) write_model(directory_of(version), {.seed = version});
    options_.model = ModelFiles::open(files_, directory_of(1)).value().config;
    options_.protocol.blocks = directory_ / "blocks";
  }
  /// Starts, and has version 1 in use.
  void serve() {
    start();
    install(1);
  }
};

TEST_P(BackendOver, AnswersUnderTheVersionsThatTheDaemonInstalls) {
  start();
  add(1);
  install(1);
  expect_under(next_event(), 1);
  for (std::uint64_t tag = 10; tag < 40; ++tag) add(tag);
  install(2);
  add(50);
  for (int i = 0; i < 31; ++i) {
    const EngineEvent event = next_event();
    ASSERT_FALSE(event.tokens.empty()) << event.failure;
    expect_under(event, event.tokens[0].version.value);
    if (event.tag == 50) {
      EXPECT_EQ(event.tokens[0].version, Version{2});
    }
  }
  EXPECT_FALSE(backend_->busy());
  EXPECT_TRUE(step_until([&] { return script_.pinned().size() <= 1; }))
      << "only what a refused version would be followed by";
}

TEST_P(BackendOver, AServerThatWasStartedAnewGetsItsVersionAgain) {
  serve();
  add(1);
  expect_under(next_event(), 1);
  double_->forget();
  for (std::uint64_t tag = 2; tag < 12; ++tag) add(tag);
  for (int i = 0; i < 10; ++i) expect_under(next_event(), 1);
  EXPECT_THAT(said(), AnyOf(HasSubstr("forgotten"), HasSubstr("not installed")));
}

TEST_P(BackendOver, GoesOnWhenTheServerIsBack) {
  serve();
  const Endpoint where = double_->endpoint();
  double_.reset();
  for (std::uint64_t tag = 1; tag < 5; ++tag) add(tag);
  EXPECT_TRUE(says("the server that generates: "));
  EXPECT_FALSE(step_until([&] { return !events_.empty(); }, 300ms));
  start_server(where);
  for (int i = 0; i < 4; ++i) expect_under(next_event(), 1);
  EXPECT_TRUE(says("well again")) << said();
}

TEST_P(BackendOver, ARefusedVersionLeavesTheOneBeforeInUse) {
  serve();
  double_->misbehave(Misbehaviour::kRefusesInstalls);
  offer(2);
  ASSERT_TRUE(says("version 2: ")) << said();
  double_->misbehave(Misbehaviour::kNone);
  add(1);
  expect_under(next_event(), 1);
  offer(3);
  ASSERT_TRUE(step_until([&] { return backend_->take_version() == Version{3}; })) << said();
  add(2);
  expect_under(next_event(), 3);
}

TEST_P(BackendOver, AVersionOfAnotherModelIsNotGiven) {
  serve();
  write_model(directory_of(4), {.layers = 3});
  offer(4);
  ASSERT_TRUE(says("version 4 is not used")) << said();
  add(1);
  expect_under(next_event(), 1);
}

TEST_P(BackendOver, WaitsForNobodyLongerThanItsBounds) {
  // Within which a busy host has to do what is not stalled.
  options_.answer_time_max = 1s;
  options_.install_time_max = 1s;
  options_.check_time_max = 1s;
  serve();
  double_->misbehave(Misbehaviour::kStall);
  add(1);
  ASSERT_TRUE(says("the server that generates: ")) << said();
  double_->misbehave(Misbehaviour::kNone);
  expect_under(next_event(), 1);
  double_->misbehave(Misbehaviour::kStallsInstalls);
  offer(2);
  ASSERT_TRUE(says("version 2: ")) << said();
  double_->misbehave(Misbehaviour::kNone);
  ASSERT_TRUE(step_until([&] { return backend_->take_version() == Version{2}; })) << said();
  add(2);
  expect_under(next_event(), 2);
}

TEST_P(BackendOver, EndsAtOnceWhateverIsUnderWay) {
  options_.answer_time_max = 10min;
  serve();
  double_->misbehave(Misbehaviour::kStall);
  for (std::uint64_t tag = 1; tag < 20; ++tag) add(tag);
  step_until([&] { return double_->calls("/generate") + double_->calls("/v1/completions") >= 19; });
  const Instant begin = steady_now();
  backend_.reset();
  EXPECT_LT(steady_now() - begin, 60s);
}

TEST_P(BackendOver, AbortsWhatIsNotWantedAnyMore) {
  serve();
  double_->misbehave(Misbehaviour::kStall);
  EngineRequest request;
  request.prompt = {1};
  const RequestId id = backend_->add(request).value();
  step_until([&] { return double_->calls("/generate") + double_->calls("/v1/completions") == 1; });
  ASSERT_TRUE(backend_->abort(id).has_value());
  EXPECT_EQ(next_event().finished, FinishReason::kAborted);
  EXPECT_FALSE(backend_->busy());
}

// Other nonsense is in the protocol's tests.
TEST_P(BackendOver, NonsenseFailsItsRequestAndNoOther) {
  serve();
  for (const Misbehaviour how : {Misbehaviour::kNotJson, Misbehaviour::kNoTokens}) {
    double_->misbehave(how);
    add(1);
    const EngineEvent event = next_event();
    EXPECT_EQ(event.finished, FinishReason::kFailed) << static_cast<int>(how);
    EXPECT_THAT(event.failure, HasSubstr("the server's answer"));
    double_->misbehave(Misbehaviour::kNone);
    add(2);
    expect_under(next_event(), 1);
  }
}

TEST_P(BackendOver, AnotherVersionIsNotTakenForOurs) {
  if (GetParam() == BackendKind::kParallax) GTEST_SKIP() << "its double says times alone";
  serve();
  double_->misbehave(Misbehaviour::kOtherVersion);
  add(1);
  ASSERT_TRUE(says("the server that generates: it ")) << said();
  EXPECT_TRUE(events_.empty());
  double_->misbehave(Misbehaviour::kNone);
  expect_under(next_event(), 1);
}

INSTANTIATE_TEST_SUITE_P(Kinds, BackendOver,
                         testing::Values(BackendKind::kVllm, BackendKind::kSglang, BackendKind::kParallax),
                         [](const auto& kind) { return std::string(to_string(kind.param)); });

/// Servers that are told of versions, and give log-probabilities.
class BackendChecks : public BackendOver {
 protected:
  /// A double that computes, started with a model of its own.
  void start_computing() {
    write_model(directory_ / "own", {.seed = 99});
    flags_.model = (directory_ / "own").string();
    start_checked();
  }
  int install_calls() const { return double_->calls("/collective_rpc") + double_->calls("/update_weights_from_disk"); }
};

TEST_P(BackendChecks, TakesAServerThatComputesWithWhatItWasTold) {
  start_computing();
  for (const std::uint64_t version : {1, 2, 3}) install(version);
}

TEST_P(BackendChecks, RefusesAVersionThatAServerOnlySaysItHasLoaded) {
  start_computing();
  install(1);
  double_->misbehave(Misbehaviour::kKeepsWeights);
  offer(2);
  ASSERT_TRUE(says("version 2: ")) << said();
  EXPECT_THAT(said(), HasSubstr("computes with other weights"));
  EXPECT_EQ(wait_for_version(), Version{1}) << "with which it computes";
  EXPECT_FALSE(double_->is_paused());
  EXPECT_EQ(double_->loaded(), (directory_ / "1").string());
}

TEST_P(BackendChecks, AServerThatRefusesTheFirstVersionGoesOnWithWhatItWasStartedWith) {
  start_computing();
  double_->misbehave(Misbehaviour::kKeepsWeights);
  offer(1);
  ASSERT_TRUE(step_until([&] {
    return double_->label() == "default" && !double_->is_paused() && install_calls() == 2;
  })) << said();
  EXPECT_THAT(said(), HasSubstr("version 1: "));
  EXPECT_EQ(double_->loaded(), flags_.model);
  EXPECT_FALSE(backend_->take_version());
  double_->misbehave(Misbehaviour::kNone);
  install(2);
}

/// What is right of vLLM alone is in its protocol's tests.
TEST_P(BackendChecks, AVersionWithHalfOfItsTensorsIsNotGiven) {
  start_computing();
  install(1);
  const int before = install_calls();
  write_half(directory_ / "1", directory_ / "4");
  offer(4);
  ASSERT_TRUE(says("version 4 is not used")) << said();
  EXPECT_THAT(said(), HasSubstr("missing"));
  EXPECT_EQ(install_calls(), before) << "the server was not touched";
  add(1);
  EXPECT_EQ(next_event().tokens[0].version, Version{1});
}

TEST_P(BackendChecks, AnswersGoOnUnderAnotherVersion) {
  flags_.scale_out = true;
  for (const BackendSwitch policy : {BackendSwitch::kKeep, BackendSwitch::kRecompute}) {
    options_.on_switch = policy;
    start_server();
    start();
    install(1);
    double_->misbehave(Misbehaviour::kStall);
    add(1);
    const char* route = GetParam() == BackendKind::kVllm ? "/inference/v1/generate" : "/generate";
    ASSERT_TRUE(step_until([&] { return double_->calls(route) >= 1; }));
    install(2);  // no answer is waited for
    const bool keeps = policy == BackendSwitch::kKeep;
    const bool is_vllm = GetParam() == BackendKind::kVllm;
    EXPECT_EQ(double_->pause_mode(), is_vllm ? (keeps ? "keep,false" : "keep,true") : (keeps ? "in_place" : "retract"));
    double_->misbehave(Misbehaviour::kNone);
    add(2);
    EngineEvent event = next_event();
    while (event.tag != 2) event = next_event();
    expect_under(event, 2);
    const auto body = double_->body(route);
    const char* salt = is_vllm ? "cache_salt" : "extra_key";
    EXPECT_EQ(body.contains(salt), keeps) << "prompts find no keys of another version";
    backend_.reset();
    events_.clear();
  }
}

TEST_P(BackendChecks, AnAdapterAloneIsNotGiven) {
  start_computing();
  const std::vector<std::byte> zeros(4 * 16);
  TensorInfo tensor;
  tensor.name = "base_model.model.model.layers.0.self_attn.q_proj.lora_A.weight";
  tensor.dtype = "F32";
  tensor.shape = {1, 16};
  tensor.size_bytes = zeros.size();
  const auto written = write_new_model(files_, directory_ / "5", {{tensor}},
                                       [&](const TensorInfo&) -> Result<Bytes> { return Bytes(zeros); }, {});
  ASSERT_TRUE(written.has_value()) << written.error().message();
  offer(5);
  ASSERT_TRUE(says("version 5 is not used")) << said();
  EXPECT_THAT(said(), HasSubstr("it is an adapter alone"));
  EXPECT_EQ(install_calls(), 0);
}

TEST_P(BackendChecks, AnInstallThatIsUnderWayAtTheEndIsFinished) {
  options_.checks_installs = false;
  serve();
  double_->misbehave(Misbehaviour::kStallsInstalls);
  offer(2);
  ASSERT_TRUE(step_until([&] { return install_calls() == 2; }));
  std::thread later([&] {
    std::this_thread::sleep_for(200ms);
    double_->finish_installs();
  });
  backend_.reset();
  later.join();
  EXPECT_FALSE(double_->is_paused());
  EXPECT_EQ(double_->label(), "2");
}

INSTANTIATE_TEST_SUITE_P(Kinds, BackendChecks, testing::Values(BackendKind::kVllm, BackendKind::kSglang),
                         [](const auto& kind) { return std::string(to_string(kind.param)); });

class BackendOfVllm : public BackendOver {};

TEST_P(BackendOfVllm, ACacheThatIsNotDroppedIsAFailure) {
  serve();
  double_->misbehave(Misbehaviour::kKeepsCache);
  offer(2);
  ASSERT_TRUE(says("version 2: ")) << said();
  EXPECT_THAT(said(), HasSubstr("may use what it cached"));
  double_->misbehave(Misbehaviour::kNone);
  add(1);
  expect_under(next_event(), 1);
}

TEST_P(BackendOfVllm, AnAnswerThatIsCutShortFails) {
  serve();
  double_->misbehave(Misbehaviour::kCutsAnswers);
  add(1);
  EXPECT_THAT(next_event().failure, HasSubstr("cut after 5 of 6 tokens"));
}

TEST_P(BackendOfVllm, AServerThatIsStartedAnewOtherwiseGetsNoWork) {
  serve();
  const Endpoint where = double_->endpoint();
  flags_.logprobs_mode = "raw_logits";
  start_server(where);
  add(1);
  ASSERT_TRUE(says("--logprobs-mode")) << said();
  EXPECT_EQ(double_->calls("/collective_rpc"), 0);
  EXPECT_TRUE(events_.empty());
  flags_.logprobs_mode = "processed_logprobs";
  start_server(where);
  expect_under(next_event(), 1);
}

TEST_P(BackendOfVllm, AServerThatDoesNotDoIsRefusedAtTheStart) {
  flags_.max_model_len = 100;
  start_server();
  options_.needs.context_tokens = 101;
  const auto made = try_start(options_);
  ASSERT_FALSE(made.has_value());
  EXPECT_EQ(made.error().code, Errc::kInvalidArgument);
  EXPECT_THAT(made.error().message(), HasSubstr("--max-model-len 101"));
  EXPECT_THAT(made.error().message(), HasSubstr(double_->endpoint().to_string()));
}

INSTANTIATE_TEST_SUITE_P(Kinds, BackendOfVllm, testing::Values(BackendKind::kVllm),
                         [](const auto& kind) { return std::string(to_string(kind.param)); });

TEST(Backend, RefusesWhatAServerCannotDo) {
  PosixFileSystem files;
  ScriptedVersions script;
  const auto refusal = [&](const BackendOptions& options) {
    const auto made =
        Backend::start(files, std::make_unique<ScriptedSource>(script), options, [](const std::string&) {});
    return made.has_value() ? Error{} : made.error();
  };
  BackendOptions options;
  options.kind = BackendKind::kParallax;
  EXPECT_THAT(refusal(options).message(), HasSubstr("set backend_blocks_dir"));
  options.protocol.blocks = "/tmp/blocks";
  options.server = {"127.0.0.1", 1};
  options.on_switch = BackendSwitch::kKeep;
  EXPECT_THAT(refusal(options).message(), HasSubstr("set backend_in_flight to wait or restart"));
  options.kind = BackendKind::kWeightcast;
  options.on_switch = BackendSwitch::kRecompute;
  EXPECT_THAT(refusal(options).message(), HasSubstr("--in-flight recompute"));
  // One that is not up yet is asked again by the caller.
  options.kind = BackendKind::kVllm;
  EXPECT_EQ(refusal(options).code, Errc::kIo);
}

}  // namespace
}  // namespace weightcast
