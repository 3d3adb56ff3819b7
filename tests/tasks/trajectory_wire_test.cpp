#include "tasks/trajectory_wire.h"

#include <gtest/gtest.h>

#include <cmath>

#include "tasks/run_description.h"

namespace weightcast {
namespace {

Trajectory example() {
  Trajectory t;
  t.task = "arithmetic";
  t.worker = "gpu-1";
  t.sequence = ~std::uint64_t{0};
  t.group = "p#7 \xff";
  t.model_digest = "ab";
  t.tokenizer_digest = "cd";
  t.tokens = {0, 1, 2147483647, -5};
  t.response_mask = {0, 0, 1, 1};
  t.logprobs = {-0.5F, -1e-30F};
  t.version_runs = {{Version{3}, 1}, {Version{4}, 1}};
  t.oldest_version = Version{3};
  t.reward = -0.1;
  t.turns = {{2, 4, -0.1}};
  t.metadata = {{"answer", "12"}, {"", "bytes \x80"}};
  return t;
}

TEST(TrajectoryWire, CarriesAll) {
  EXPECT_EQ(decode_trajectory(encode_trajectory(example())).value(), example());
  EXPECT_EQ(decode_trajectory(encode_trajectory({})).value(), Trajectory{});
}

/// "No" is not "nobody has said".
TEST(TrajectoryWire, CarriesWhetherItSucceeded) {
  Trajectory t = example();
  const std::string unsaid = encode_trajectory(t);
  for (const bool success : {true, false}) {
    t.success = success;
    EXPECT_EQ(decode_trajectory(encode_trajectory(t))->success, success);
  }
  EXPECT_EQ(decode_trajectory(unsaid)->success, std::nullopt);
  EXPECT_TRUE(encode_trajectory(t).starts_with(unsaid)) << "those who do not know the field skip it";
}

TEST(TrajectoryWire, CarriesWhatIsNoNumber) {
  Trajectory t = example();
  t.logprobs[0] = NAN;
  t.reward = INFINITY;
  const Trajectory back = decode_trajectory(encode_trajectory(t)).value();
  EXPECT_TRUE(std::isnan(back.logprobs[0]));
  EXPECT_TRUE(std::isinf(back.reward));
}

TEST(TrajectoryWire, BatchesWhatWasEncoded) {
  Trajectory large = example();
  large.tokens.assign(100'000, 7);
  const std::vector<std::string> rollouts{encode_trajectory(example()), encode_trajectory(large), ""};
  const RolloutBatch batch = decode_batch(encode_batch("run", rollouts)).value();
  EXPECT_EQ(batch.run, "run");
  ASSERT_EQ(batch.rollouts.size(), 3u);
  EXPECT_EQ(batch.rollouts[0], example());
  EXPECT_EQ(batch.rollouts[1], large);
  EXPECT_EQ(batch.rollouts[2], Trajectory{});
}

TEST(TrajectoryWire, RefusesAnyPartOfABatch) {
  const std::vector<std::string> rollouts{encode_trajectory(example())};
  const std::string whole = encode_batch("run", rollouts);
  for (std::size_t size = 1; size < whole.size(); ++size) {
    const auto batch = decode_batch(whole.substr(0, size));
    // Between two members a message may end.
    if (batch.has_value()) {
      EXPECT_TRUE(batch->rollouts.empty()) << size;
    }
  }
  EXPECT_EQ(decode_batch("\x0f").error().code, Errc::kCorrupt);
}

TEST(TrajectoryWire, BoundsABatch) {
  const std::vector<std::string> rollouts(kBatchRolloutsMax + 1);
  EXPECT_EQ(decode_batch(encode_batch("", rollouts)).error().code, Errc::kTooLarge);
}

TEST(RunDescription, ReadsBackWhatItWrote) {
  RunDescription run;
  run.run_id = "00ff";
  run.seed = ~std::uint64_t{0};
  run.task = "arithmetic";
  run.task_options = {{"digits_max", "2"}};
  run.max_staleness = 4;
  run.top_p = 0.95;
  EXPECT_EQ(read_run_description(write_run_description(run)).value(), run);
  run.max_staleness.reset();
  run.async_generation_ratio = 1.5;
  EXPECT_EQ(read_run_description(write_run_description(run)).value(), run);
}

TEST(RunDescription, NamesTheMemberThatIsMissingOrWrong) {
  for (const std::string_view text : {"", "[]", "{}", "{\"run_id\": 7}"}) {
    const auto run = read_run_description(text);
    ASSERT_FALSE(run.has_value()) << text;
    EXPECT_EQ(run.error().code, Errc::kCorrupt);
  }
  EXPECT_NE(read_run_description("{\"run_id\": \"a\"}").error().message().find("seed"), std::string::npos);
}

}  // namespace
}  // namespace weightcast
