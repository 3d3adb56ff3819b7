#include "trainer/metrics/metrics.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "base/files/posix_file_system.h"
#include "tests/patch/temp_dir.h"
#include "trainer/metrics/metrics_figures.h"

namespace weightcast {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

struct MetricsTest : testing::Test {
  TempDir dir;
  PosixFileSystem files;
  std::string path = dir.file("metrics.jsonl");

  std::vector<Metrics> read() {
    auto steps = read_metrics(files, path);
    EXPECT_TRUE(steps.has_value()) << steps.error().message();
    return std::move(steps).value();
  }
};

TEST_F(MetricsTest, ComeBackAsWritten) {
  auto file = MetricsFile::open(files, path, 0).value();
  ASSERT_TRUE(file.append({{"a/b", 0.1}, {"c", std::nan("")}}).has_value());
  ASSERT_TRUE(file.append({{"a/b", 2}}).has_value());
  const auto steps = read();
  ASSERT_EQ(steps.size(), 2u);
  EXPECT_EQ(steps[0].at("a/b"), 0.1);
  EXPECT_TRUE(std::isnan(steps[0].at("c")));
  EXPECT_EQ(steps[1].at("a/b"), 2);
}

TEST_F(MetricsTest, GoOnBehindWhatACheckpointRecorded) {
  std::uint64_t recorded = 0;
  {
    auto file = MetricsFile::open(files, path, 0).value();
    ASSERT_TRUE(file.append({{"step", 1}}).has_value());
    recorded = file.size();
    ASSERT_TRUE(file.append({{"step", 2}}).has_value());
  }
  auto file = MetricsFile::open(files, path, recorded).value();
  ASSERT_TRUE(file.append({{"step", 22}}).has_value());
  const auto steps = read();
  ASSERT_EQ(steps.size(), 2u);
  EXPECT_EQ(steps[1].at("step"), 22);
}

TEST_F(MetricsTest, KeepWholeLinesOfAFileThatWasCut) {
  dir.write("metrics.jsonl", "{\"step\":1}\n{\"st");
  EXPECT_EQ(read().size(), 1u);
  auto file = MetricsFile::open(files, path, 1000).value();
  EXPECT_EQ(file.size(), 11u);
  dir.write("metrics.jsonl", "{\"st");
  EXPECT_EQ(MetricsFile::open(files, path, 1000).value().size(), 0u);
}

TEST_F(MetricsTest, NameTheLineThatIsNone) {
  dir.write("metrics.jsonl", "{}\nnonsense\n");
  EXPECT_THAT(read_metrics(files, path).error().message(), HasSubstr("line 2"));
}

TEST(MetricsSummary, HasMeanAndBounds) {
  Metrics metrics;
  set_summary(metrics, "x", std::vector<double>{1, 2, 6});
  set_summary(metrics, "none", {});
  EXPECT_EQ(metrics, (Metrics{{"x/mean", 3}, {"x/max", 6}, {"x/min", 1}}));
}

TEST(MetricsSummary, TakesQuantilesByRank) {
  const std::vector<double> values{5, 1, 4, 2, 3};
  EXPECT_EQ(quantile_of(values, 0.5), 3);
  EXPECT_EQ(quantile_of(values, 0.9), 5);
  EXPECT_EQ(quantile_of(values, 0), 1);
  EXPECT_TRUE(std::isnan(quantile_of({}, 0.5)));
}

TEST(MetricsFigures, DrawWhatTheRunHas) {
  std::vector<Metrics> steps;
  for (int i = 1; i <= 20; ++i) {
    steps.push_back({{"training/global_step", i}, {"critic/score/mean", i / 20.0}, {"critic/success_rate", 0.5}});
  }
  steps[9]["eval/avg@4"] = 0.5;
  steps[9]["eval/pass@4"] = 0.5;
  const auto figures = metrics_figures(steps);
  ASSERT_EQ(figures.size(), 2u);
  EXPECT_EQ(figures[1].name, "success");
  EXPECT_EQ(figures[1].figure.panels[0].series.back().name, "eval/pass@4");
  EXPECT_EQ(figures[0].name, "reward");
  std::vector<std::string> names;
  for (const auto& series : figures[0].figure.panels[0].series) names.push_back(series.name);
  EXPECT_THAT(names, ElementsAre("critic/score/mean", "mean of 11 steps", "eval/avg@4"));
  EXPECT_DOUBLE_EQ(figures[0].figure.panels[0].series[1].points[10].y, 11 / 20.0);
}

}  // namespace
}  // namespace weightcast
