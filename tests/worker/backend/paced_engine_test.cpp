#include "worker/backend/paced_engine.h"

#include <gtest/gtest.h>

#include <chrono>
#include <cmath>

#include "base/steady_clock.h"
#include "tests/worker/engine/made_weights.h"

namespace weightcast {
namespace {

using namespace std::chrono_literals;

/// Of 4 sequences together; answers of 10 tokens set the pace.
std::unique_ptr<Engine> engine_of(const PacedOptions& options) {
  EngineOptions engine;
  engine.end_tokens = {3};
  engine.running_max = 4;
  return paced_engine(options, 10, 210, 7)(made_weights(small_config(), 1), Version{1}, engine).value();
}

/// Until all answers of `count` requests are there; the number of steps.
int finish(Engine& engine, int count, std::size_t tokens) {
  for (int i = 0; i < count; ++i) {
    EngineRequest request;
    request.prompt = {1, 2};
    request.tokens_max = tokens;
    request.seed = static_cast<std::uint64_t>(i);
    EXPECT_TRUE(engine.add(request).has_value());
  }
  int steps = 0;
  for (; engine.busy(); ++steps) {
    for (const EngineEvent& event : engine.step()) {
      EXPECT_EQ(event.finished.value_or(FinishReason::kLength), FinishReason::kLength);
      for (const EngineToken& token : event.tokens) {
        EXPECT_NE(token.token, 3);
        EXPECT_TRUE(std::isfinite(token.log_prob));
      }
    }
  }
  return steps;
}

TEST(PacedEngine, AStepTakesItsTimeHoweverManyAreInIt) {
  const auto engine = engine_of({.rollouts_per_s = 100});
  const Instant begin = steady_now();
  const int steps = finish(*engine, 8, 10);
  EXPECT_GE(steps, 20);
  EXPECT_LE(steps, 22);  // two rounds of four
  // The first step may use the time before it.
  EXPECT_GE(steady_now() - begin, (steps - 1) * 4ms);
}

TEST(PacedEngine, JitterKeepsTheMean) {
  const auto engine = engine_of({.rollouts_per_s = 400, .jitter = 0.9});
  const Instant begin = steady_now();
  const int steps = finish(*engine, 4, 200);
  EXPECT_GE(steady_now() - begin, steps * 800us);
}

TEST(PacedEngine, StandsStillWhenAVersionComes) {
  const auto engine = engine_of({.rollouts_per_s = 400, .pause = 50ms});
  EXPECT_GE(finish(*engine, 1, 2), 2);
  const Instant begin = steady_now();
  ASSERT_TRUE(engine->set_weights(Version{2}, made_weights(small_config(), 1)).has_value());
  finish(*engine, 1, 2);
  EXPECT_GE(steady_now() - begin, 50ms);
}

}  // namespace
}  // namespace weightcast
