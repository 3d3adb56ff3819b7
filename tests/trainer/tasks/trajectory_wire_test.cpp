#include "trainer/tasks/trajectory/trajectory_wire.h"

#include <gtest/gtest.h>

#include <cmath>

#include "proto/rollout.pb.h"
#include "trainer/tasks/run_description.h"

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

std::vector<Trajectory> decoded(const RolloutBatch& batch) {
  std::vector<Trajectory> all;
  for (const std::string_view one : batch.rollouts) all.push_back(decode_trajectory(one).value());
  return all;
}

TEST(TrajectoryWire, BatchesWhatWasEncoded) {
  Trajectory large = example();
  large.tokens.assign(100'000, 7);
  const std::vector<std::string> rollouts{encode_trajectory(example()), encode_trajectory(large), ""};
  const std::string body = encode_batch("run", rollouts);
  const RolloutBatch batch = split_batch(body).value();
  EXPECT_EQ(batch.run, "run");
  EXPECT_EQ(decoded(batch), (std::vector{example(), large, Trajectory{}}));
}

TEST(TrajectoryWire, RefusesAnyPartOfABatch) {
  const std::vector<std::string> rollouts{encode_trajectory(example())};
  const std::string whole = encode_batch("run", rollouts);
  for (std::size_t size = 1; size < whole.size(); ++size) {
    const auto batch = split_batch(std::string_view(whole).substr(0, size));
    // Between two members a message may end.
    if (batch.has_value()) {
      EXPECT_TRUE(batch->rollouts.empty()) << size;
    }
  }
  EXPECT_EQ(split_batch("\x0f").error().code, Errc::kCorrupt);
}

TEST(TrajectoryWire, BoundsABatch) {
  const std::vector<std::string> rollouts(kBatchRolloutsMax + 1);
  EXPECT_EQ(split_batch(encode_batch("", rollouts)).error().code, Errc::kTooLarge);
  EXPECT_EQ(split_batch(encode_batch("", std::span(rollouts).subspan(1))).value().rollouts.size(), kBatchRolloutsMax);
  EXPECT_EQ(split_batch(encode_batch(std::string(kRunIdBytesMax + 1, 'x'), {})).error().code, Errc::kTooLarge);
}

/// The parser that Protobuf makes of proto/rollout.proto is the other reading of the same bytes.
Trajectory by_protobuf(const std::string& bytes) {
  rollout::Trajectory message;
  WC_CHECK(message.ParseFromString(bytes));
  Trajectory t;
  t.task = message.task();
  t.worker = message.worker();
  t.sequence = message.sequence();
  t.group = message.group();
  t.model_digest = message.model_digest();
  t.tokenizer_digest = message.tokenizer_digest();
  t.tokens.assign(message.tokens().begin(), message.tokens().end());
  t.response_mask.assign(message.response_mask().begin(), message.response_mask().end());
  t.logprobs.assign(message.logprobs().begin(), message.logprobs().end());
  for (const auto& run : message.version_runs()) t.version_runs.push_back({Version{run.version()}, run.tokens()});
  t.oldest_version = Version{message.oldest_version()};
  t.reward = message.reward();
  for (const auto& turn : message.turns()) t.turns.push_back({turn.begin(), turn.end(), turn.reward()});
  for (const auto& entry : message.metadata()) t.metadata[entry.name()] = entry.value();
  return t;
}

TEST(TrajectoryWire, ReadsWhatProtobufReads) {
  const std::string whole = encode_trajectory(example());
  // Fields that come again, one value at a time, in another order, of other types, and unknown ones.
  for (const std::string& bytes :
       std::vector<std::string>{whole, whole + whole, "\x38\x05" + whole, std::string("\x4d\0\0\x80\xbf", 5) + whole,
                                whole + "\x3a\x02\x07\x08", std::string("\x08\x05\x18\x07\x1a\x01x", 7),
                                std::string("\x52\x03\x0a\x01x", 5) + whole, std::string("\xf8\x07\x01", 3) + whole,
                                std::string("\x52\0\x6a\0\x72\0", 6)}) {
    EXPECT_EQ(decode_trajectory(bytes).value(), by_protobuf(bytes));
  }
  for (std::size_t size = 0; size < whole.size(); ++size) {
    const std::string part = whole.substr(0, size);
    const auto read = decode_trajectory(part);
    EXPECT_EQ(read.has_value(), rollout::Trajectory().ParseFromString(part)) << size;
    if (read.has_value()) {
      EXPECT_EQ(*read, by_protobuf(part));
    }
  }
}

TEST(TrajectoryWire, StopsAtItsLimits) {
  const TrajectoryLimits limits{.tokens_max = 4, .metadata_bytes_max = 20};
  const auto refused = [&](const Trajectory& t) {
    const auto read = decode_trajectory(encode_trajectory(t), limits);
    return read.has_value() || read.error().code != Errc::kTooLarge ? std::string() : read.error().detail;
  };
  EXPECT_TRUE(decode_trajectory(encode_trajectory(example()), limits).has_value());
  Trajectory t = example();
  t.tokens.push_back(1);
  EXPECT_EQ(refused(t), "a rollout: 'tokens' has more than 4 values");
  t = example();
  t.response_mask.push_back(1);
  EXPECT_EQ(refused(t), "a rollout: 'response_mask' has more than 4 values");
  t = example();
  t.logprobs.resize(5);
  EXPECT_EQ(refused(t), "a rollout: 'logprobs' has more than 4 values");
  t = example();
  t.turns.resize(5);
  EXPECT_EQ(refused(t), "a rollout: 'turns' has more than 4 values");
  t = example();
  t.version_runs.resize(5);
  EXPECT_EQ(refused(t), "a rollout: 'version_runs' has more than 4 values");
  t = example();
  t.metadata["x"] = "more than is left";
  EXPECT_EQ(refused(t), "a rollout: 'metadata' takes more than 20 bytes");
  t = example();
  t.group.assign(21, 'g');
  EXPECT_EQ(refused(t), "a rollout: 'group' takes more than 20 bytes");
  // Values one by one, too.
  EXPECT_EQ(decode_trajectory("\x38\x01\x38\x01\x38\x01\x38\x01\x38\x01", limits).error().code, Errc::kTooLarge);
}

TEST(RunDescription, ReadsBackWhatItWrote) {
  RunDescription run;
  run.run_id = "00ff";
  run.seed = ~std::uint64_t{0};
  run.task = "arithmetic";
  run.task_options = {{"digits_max", "2"}};
  run.task_data_digest = "0a";
  run.eval_prompts = 2;
  run.chat_template = "qwen2.5";
  run.enable_thinking = true;
  run.group_size = 16;
  run.group_size_redundancy = 3;
  run.filter_equal_rewards = true;
  run.rollout_batch_size = 128;
  run.temperature = 0.7;
  run.top_p = 0.95;
  run.max_prompt_length = 5;
  run.max_new_tokens = 6;
  run.turns_max = 7;
  run.episode_time_max = 8.5;
  run.tokens_max = 9;
  run.logprobs_recomputed = true;
  run.model_digest = "0b";
  run.tokenizer_digest = "0c";
  run.adapter_digest = "0d";
  run.publish_interval = 10;
  run.max_staleness = 4;
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
