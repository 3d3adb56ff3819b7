#include "bench/paper/training_runs.h"

#include <gtest/gtest.h>

#include <cmath>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <set>

#include "base/json_text.h"
#include "tests/patch/temp_dir.h"

namespace weightcast::bench {
namespace {

TrainingSuite tiny_suite() {
  TrainingSuite suite;
  suite.settings = {{"init_hidden_size", "16"},
                    {"init_intermediate_size", "16"},
                    {"init_num_hidden_layers", "1"},
                    {"init_num_attention_heads", "2"},
                    {"init_num_key_value_heads", "1"},
                    {"task_options.digits_max", "1"},
                    {"max_new_tokens", "3"},
                    {"rollout_batch_size", "8"},
                    {"group_size", "4"},
                    {"learning_rate", "1e-2"},
                    {"entropy_coeff", "0.01"},
                    {"eval_interval", "4"},
                    {"eval_prompts", "2"}};
  suite.warm_up_steps = 2;
  suite.steps = 12;
  suite.seeds = {1, 2};
  suite.cases = {{"rare", 5, 6, {1}}, {"never", {}, {}, {0}}};
  return suite;
}

std::vector<TrainingRun> run(const TrainingSuite& suite, const std::filesystem::path& directory) {
  auto runs = run_training_suite(suite, directory, WEIGHTCAST_TOOLS, [](const TrainingRun&) {});
  EXPECT_TRUE(runs.has_value()) << runs.error().message();
  return runs.has_value() ? *runs : std::vector<TrainingRun>();
}

std::vector<std::filesystem::path> results_in(const std::filesystem::path& directory) {
  std::vector<std::filesystem::path> found;
  for (const auto& entry : std::filesystem::directory_iterator(directory)) {
    if (entry.path().extension() == ".json") found.push_back(entry.path());
  }
  return found;
}

TEST(TrainingRuns, ImposeTheLagsOfTheSchedule) {
  const TempDir dir;
  const std::vector<TrainingRun> runs = run(tiny_suite(), dir.file("runs"));
  ASSERT_EQ(runs.size(), 4u);
  // Publications after steps 0, 5 and 10, each used a step later.
  const std::vector<double> rare{0, 1, 2, 3, 4, 5, 1, 2, 3, 4, 5, 1};
  for (const TrainingRun* each : runs_of(runs, "rare")) {
    EXPECT_EQ(each->columns.at("lag_median"), rare);
    EXPECT_EQ(each->columns.at("lag_p90"), rare);
    EXPECT_NEAR(each->lag_mean, 31.0 / 12, 1e-9);
    EXPECT_EQ(each->lag_median, 2);
    EXPECT_EQ(each->lag_p90, 5);
  }
  for (const TrainingRun* each : runs_of(runs, "never")) {
    std::vector<double> lags;
    for (int step = 0; step < 12; ++step) lags.push_back(step);
    EXPECT_EQ(each->columns.at("lag_median"), lags);
  }
}

TEST(TrainingRuns, MeasureThePatchesOfStepsAndPublications) {
  const TempDir dir;
  const std::vector<TrainingRun> runs = run(tiny_suite(), dir.file("runs"));
  const TrainingRun& rare = *runs_of(runs, "rare")[0];
  ASSERT_EQ(rare.columns.at("changed").size(), 12u);
  for (std::size_t step = 0; step < 12; ++step) {
    EXPECT_GT(rare.columns.at("changed")[step], 0);
    EXPECT_LE(rare.columns.at("changed")[step], 1);
    EXPECT_GT(rare.columns.at("ratio")[step], 0);
    EXPECT_EQ(std::isnan(rare.columns.at("event_ratio")[step]), (step + 1) % 5 != 0) << step;
    EXPECT_EQ(std::isnan(rare.columns.at("ten_ratio")[step]), step + 1 != 10) << step;
    EXPECT_EQ(std::isnan(rare.columns.at("evaluation")[step]), (step + 1) % 4 != 0) << step;
  }
  EXPECT_GE(rare.columns.at("event_changed")[4], rare.columns.at("changed")[4]) << "five steps change no less than one";
}

TEST(TrainingRuns, BeginWithTheSameWeightsAndDifferByTheirSchedule) {
  const TempDir dir;
  const std::vector<TrainingRun> runs = run(tiny_suite(), dir.file("runs"));
  const TrainingRun &rare = *runs_of(runs, "rare")[0], &never = *runs_of(runs, "never")[0];
  // The first publication comes with step 5 and is used from the seventh step on.
  const std::vector<double>&a = rare.columns.at("reward"), &b = never.columns.at("reward");
  EXPECT_TRUE(std::equal(a.begin(), a.begin() + 6, b.begin()));
  EXPECT_NE(rare.columns.at("kl")[11], never.columns.at("kl")[11]);
}

TEST(TrainingRuns, GoOnWithTheRunThatWasInterrupted) {
  const TempDir dir;
  const std::filesystem::path directory = dir.file("runs");
  const TrainingSuite suite = tiny_suite();
  const std::vector<TrainingRun> first = run(suite, directory);
  const auto results = results_in(directory);
  ASSERT_EQ(results.size(), 4u);
  // One is gone, one is damaged, and one says by its reward that it was taken from the disk.
  std::filesystem::remove(results[0]);
  std::ofstream(results[1]) << "{";
  std::ifstream in(results[2]);
  nlohmann::json marked = parse_json(std::string(std::istreambuf_iterator<char>(in), {}));
  marked["columns"]["reward"][0] = 7.5;
  std::ofstream(results[2]) << marked.dump();
  const std::vector<TrainingRun> again = run(suite, directory);
  ASSERT_EQ(again.size(), first.size());
  std::size_t taken = 0;
  for (std::size_t i = 0; i < again.size(); ++i) {
    EXPECT_EQ(again[i].name, first[i].name);
    EXPECT_EQ(again[i].seed, first[i].seed);
    if (again[i].columns.at("reward")[0] == 7.5) {
      ++taken;
    } else {
      EXPECT_EQ(again[i].columns.at("reward"), first[i].columns.at("reward")) << "a run comes to the same bits again";
    }
  }
  EXPECT_EQ(taken, 1u);
  EXPECT_EQ(results_in(directory).size(), 4u);

  TrainingSuite other = suite;
  other.steps = 3;
  other.seeds = {1};
  run(other, directory);
  EXPECT_EQ(results_in(directory).size(), 6u) << "another configuration has results of its own";
}

TEST(TrainingRuns, WithWorkersASynchronousRunComesToTheSameBits) {
  const TempDir dir;
  TrainingSuite suite = tiny_suite();
  suite.steps = 4;
  suite.seeds = {1};
  suite.cases = {{"generator", 1, 0}, {"workers", 1, 0, {0}, {}, 2}, {"asynchronous", 1, 4, {0}, {}, 2}};
  const std::vector<TrainingRun> runs = run(suite, dir.file("runs"));
  ASSERT_EQ(runs.size(), 3u);
  ASSERT_EQ(runs[0].digests.size(), 5u);
  EXPECT_EQ(std::set<std::string>(runs[0].digests.begin(), runs[0].digests.end()).size(), 5u)
      << "each step changes them";
  EXPECT_EQ(runs[1].digests, runs[0].digests);
  EXPECT_EQ(runs[1].columns.at("reward"), runs[0].columns.at("reward"));
  EXPECT_EQ(runs[2].digests.size(), 5u);
  EXPECT_EQ(runs[2].digests[0], runs[0].digests[0]);
  EXPECT_TRUE(run(suite, dir.file("runs"))[1].digests == runs[1].digests) << "as the disk has them";
}

TEST(TrainingRuns, SayWhichWorkerEndedTooEarly) {
  const TempDir dir;
  TrainingSuite suite = tiny_suite();
  suite.seeds = {1};
  suite.cases = {{"workers", 1, 0, {0}, {}, 1}};
  suite.worker_settings = {{"running_max", "0"}};
  const auto runs = run_training_suite(suite, dir.file("runs"), WEIGHTCAST_TOOLS, [](const TrainingRun&) {});
  ASSERT_FALSE(runs.has_value());
  EXPECT_NE(runs.error().message().find("after 0 of 12 steps: w01 has ended"), std::string::npos)
      << runs.error().message();
  EXPECT_NE(runs.error().message().find("running_max"), std::string::npos) << runs.error().message();
}

TEST(TrainingRuns, SayWhatIsWrongWithASetting) {
  const TempDir dir;
  TrainingSuite suite = tiny_suite();
  suite.settings.push_back({"learning_rat", "1"});
  const auto runs = run_training_suite(suite, dir.file("runs"), WEIGHTCAST_TOOLS, [](const TrainingRun&) {});
  ASSERT_FALSE(runs.has_value());
  EXPECT_NE(runs.error().message().find("learning_rate"), std::string::npos) << runs.error().message();
}

}  // namespace
}  // namespace weightcast::bench
