#include "worker/backend/backend.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/worker/backend/backend_double.h"

namespace weightcast {
namespace {

using namespace std::chrono_literals;
using testing::HasSubstr;

/// A double of each kind of server.
class BackendOver : public BackendOverDouble, public testing::WithParamInterface<BackendKind> {
 protected:
  BackendOver() : BackendOverDouble(GetParam()) {}
  /// Starts, and has version 1 in use.
  void serve() {
    start();
    install(1);
  }
  [[nodiscard]] int completions() const {
    return double_->calls("/generate") + double_->calls("/v1/completions") + double_->calls("/inference/v1/generate");
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
  EXPECT_TRUE(script_.pinned().empty());
}

TEST_P(BackendOver, GoesOnWhenTheServerIsBack) {
  serve();
  const Endpoint where = double_->endpoint();
  double_.reset();
  for (std::uint64_t tag = 1; tag < 5; ++tag) add(tag);
  EXPECT_TRUE(says("the server that generates: "));
  EXPECT_FALSE(step_until([&] { return !events_.empty(); }, 300ms));
  start_server(where);
  if (GetParam() != BackendKind::kParallax) double_->follow(1);
  for (int i = 0; i < 4; ++i) expect_under(next_event(), 1);
  EXPECT_TRUE(says("well again")) << said();
}

TEST_P(BackendOver, WaitsForNoAnswerLongerThanItsBound) {
  options_.answer_time_max = 1s;
  serve();
  double_->misbehave(Misbehaviour::kStall);
  add(1);
  ASSERT_TRUE(says("the server that generates: ")) << said();
  double_->misbehave(Misbehaviour::kNone);
  expect_under(next_event(), 1);
}

TEST_P(BackendOver, EndsAtOnceWhateverIsUnderWay) {
  options_.answer_time_max = 10min;
  serve();
  double_->misbehave(Misbehaviour::kStall);
  for (std::uint64_t tag = 1; tag < 20; ++tag) add(tag);
  step_until([&] { return completions() >= 19; });
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
  step_until([&] { return completions() == 1; });
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

INSTANTIATE_TEST_SUITE_P(Kinds, BackendOver,
                         testing::Values(BackendKind::kVllm, BackendKind::kSglang, BackendKind::kParallax,
                                         BackendKind::kWeightcast),
                         [](const auto& kind) { return std::string(to_string(kind.param)); });

/// Servers that follow by themselves.
class BackendFollows : public BackendOver {};

TEST_P(BackendFollows, AVersionThatTheDaemonDoesNotHaveGetsNoWork) {
  serve();
  double_->follow(999);
  ASSERT_TRUE(says("it has version 999, which this host's daemon does not")) << said();
  add(1);
  EXPECT_FALSE(step_until([&] { return !events_.empty(); }, 300ms));
  double_->follow(1);
  expect_under(next_event(), 1);
}

TEST_P(BackendFollows, AnAnswerMayComeBeforeTheDaemonsWord) {
  serve();
  double_->misbehave(Misbehaviour::kStall);
  add(1);
  ASSERT_TRUE(step_until([&] { return completions() == 1; }));
  double_->follow(2);
  double_->finish_completions();
  EXPECT_FALSE(step_until([&] { return !events_.empty(); }, 300ms)) << "nobody knows version 2";
  publish(2);
  expect_under(next_event(), 2);
}

INSTANTIATE_TEST_SUITE_P(Kinds, BackendFollows,
                         testing::Values(BackendKind::kVllm, BackendKind::kSglang, BackendKind::kWeightcast),
                         [](const auto& kind) { return std::string(to_string(kind.param)); });

class BackendOfVllm : public BackendOverDouble {
 protected:
  BackendOfVllm() : BackendOverDouble(BackendKind::kVllm) {}
};
class BackendOfParallax : public BackendOverDouble {
 protected:
  BackendOfParallax() : BackendOverDouble(BackendKind::kParallax) {}
};

TEST_F(BackendOfParallax, IsToldAgainAfterARestartOrARefusal) {
  start();
  install(1);
  double_->follow(0);
  for (std::uint64_t tag = 2; tag < 12; ++tag) add(tag);
  for (int i = 0; i < 10; ++i) expect_under(next_event(), 1);
  double_->misbehave(Misbehaviour::kRefusesInstalls);
  publish(2);
  ASSERT_TRUE(says("version 2: ")) << said();
  double_->misbehave(Misbehaviour::kNone);
  add(20);
  expect_under(next_event(), 2);
}

TEST_F(BackendOfVllm, AnAnswerThatIsCutShortFails) {
  start();
  install(1);
  double_->misbehave(Misbehaviour::kCutsAnswers);
  add(1);
  EXPECT_THAT(next_event().failure, HasSubstr("cut after 5 of 6 tokens"));
}

TEST_F(BackendOfVllm, AnAdaptersVersionIsInItsName) {
  std::uint64_t version = 0;
  for (const bool scale_out : {false, true}) {
    flags_.adapter = options_.protocol.model = "math";
    flags_.scale_out = scale_out;
    options_.protocol.is_adapter = true;
    start_server();
    start();
    add(1);
    for (int i = 0; i < 2; ++i) {
      install(++version);
      add(2);
    }
    for (int i = 0; i < 3; ++i) {
      const EngineEvent event = next_event();
      ASSERT_FALSE(event.tokens.empty()) << event.failure;
      expect_under(event, event.tokens[0].version.value);
    }
    backend_.reset();
  }
}

TEST_F(BackendOfVllm, AServerThatIsStartedAnewOtherwiseGetsNoWork) {
  start();
  install(1);
  const Endpoint where = double_->endpoint();
  flags_.logprobs_mode = "raw_logits";
  double_.reset();
  add(1);
  ASSERT_TRUE(says("the server that generates: ")) << said();
  start_server(where);
  double_->follow(1);
  ASSERT_TRUE(says("--logprobs-mode")) << said();
  EXPECT_TRUE(events_.empty());
  flags_.logprobs_mode = "processed_logprobs";
  start_server(where);
  double_->follow(1);
  expect_under(next_event(), 1);
}

TEST_F(BackendOfVllm, AServerThatDoesNotDoIsRefusedAtTheStart) {
  flags_.max_model_len = 100;
  options_.needs.context_tokens = 101;
  EXPECT_THAT(refusal(), HasSubstr("--max-model-len 101"));
  EXPECT_THAT(refusal(), HasSubstr(double_->endpoint().to_string()));
}

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
  options.server = {"127.0.0.1", 1};
  options.protocol.is_adapter = true;
  options.kind = BackendKind::kSglang;
  EXPECT_THAT(refusal(options).message(), HasSubstr("set lora_publish = \"merged\""));
  // One that is not up yet is asked again by the caller.
  options.protocol.model = "math";
  options.kind = BackendKind::kVllm;
  EXPECT_EQ(refusal(options).code, Errc::kIo);
  options.protocol.model = "";
  EXPECT_THAT(refusal(options).message(), HasSubstr("set backend_model"));
}

}  // namespace
}  // namespace weightcast
