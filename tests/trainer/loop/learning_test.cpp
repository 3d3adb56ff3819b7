// The tiny model really learns: the preset `arithmetic` from random weights to sums that are right.
#include <gtest/gtest.h>

#include <numeric>

#include "base/files/posix_file_system.h"
#include "tests/patch/temp_dir.h"
#include "trainer/loop/learner.h"
#include "trainer/metrics/metrics.h"

namespace weightcast {
namespace {

double mean(std::span<const double> values) {
  return std::accumulate(values.begin(), values.end(), 0.0) / static_cast<double>(values.size());
}

TEST(Learning, RaisesTheRewardOfSums) {
  const TempDir dir;
  PosixFileSystem files;
  const auto config = make_config(std::vector<Setting>{{"preset", "arithmetic"}, {"output_dir", dir.file("run")}});
  ASSERT_TRUE(config.has_value()) << config.error().message();
  const auto learner = Learner::make(files, *config);
  ASSERT_TRUE(learner.has_value()) << learner.error().message();
  const std::atomic<bool> stop = false;
  const Status ran = (*learner)->run(stop);
  ASSERT_TRUE(ran.has_value()) << ran.error().message();

  std::vector<double> rewards;
  const auto lines = read_metrics(files, dir.file("run") + "/metrics.jsonl");
  ASSERT_TRUE(lines.has_value()) << lines.error().message();
  for (const Metrics& metrics : *lines) {
    if (metrics.count("critic/score/mean") != 0) rewards.push_back(metrics.at("critic/score/mean"));
  }
  ASSERT_GT(rewards.size(), 20u);
  const double before = rewards.front(), after = mean(std::span(rewards).last(11));
  RecordProperty("reward_start", std::to_string(before));
  RecordProperty("reward_end", std::to_string(after));
  EXPECT_LT(before, 0.3);
  EXPECT_GT(after, 0.8);
}

}  // namespace
}  // namespace weightcast
