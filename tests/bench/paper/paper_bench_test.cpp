#include "bench/paper/paper_bench.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <set>

#include "bench/rollout/propositions.h"
#include "tests/patch/temp_dir.h"

namespace weightcast::bench {
namespace {

PaperResult result_of(std::string_view name) {
  const auto item = paper_item(name);
  EXPECT_TRUE(item.has_value()) << item.error().message();
  const auto result = run_paper_item(*item, {});
  EXPECT_TRUE(result.has_value()) << result.error().message();
  return result.has_value() ? *result : PaperResult{};
}

double ours(const PaperResult& result, std::string_view what) {
  for (const PaperRow& row : result.rows) {
    if (row.what == what) return row.ours;
  }
  ADD_FAILURE() << "no row " << what;
  return 0;
}

/// Each item with little work, as a TEST of its own: those with workers start dozens of processes.
class EveryPaperItem : public testing::TestWithParam<std::string_view> {};

TEST_P(EveryPaperItem, Runs) {
  const TempDir dir;
  PaperItem item = *paper_item(GetParam());
  make_quick(item);
#ifndef WEIGHTCAST_TORCH
  if (item.trains()) GTEST_SKIP() << "it trains, and this build has no LibTorch";
#endif
  const auto result = run_paper_item(item, {dir.file("runs"), WEIGHTCAST_TOOLS});
  ASSERT_TRUE(result.has_value()) << result.error().message();
  EXPECT_FALSE(result->rows.empty());
  EXPECT_FALSE(result->claims.empty());
  for (const PaperRow& row : result->rows) EXPECT_EQ(row.ours, row.ours) << row.what << " is no number";
  EXPECT_EQ(to_json(item, *result)["rows"].size(), result->rows.size());
  EXPECT_NE(to_svg(result->figure).find("<svg"), std::string::npos);
}

INSTANTIATE_TEST_SUITE_P(Quick, EveryPaperItem, testing::ValuesIn(paper_item_names()), [](const auto& item) {
  std::string name(item.param);
  std::replace(name.begin(), name.end(), '-', '_');
  return name;
});

TEST(PaperBench, EveryItemHasADigestOfItsOwn) {
  std::set<std::string> digests;
  for (const std::string_view name : paper_item_names()) {
    EXPECT_TRUE(digests.insert(config_digest(*paper_item(name))).second) << name;
  }
}

TEST(PaperBench, AllIsWhatSimulates) {
  const std::vector<std::string_view> all = simulated_item_names();
  EXPECT_NE(std::find(all.begin(), all.end(), "flash-fig9"), all.end());
  EXPECT_EQ(std::find(all.begin(), all.end(), "sparse-staleness"), all.end()) << "it takes an hour";
  EXPECT_TRUE(paper_item("sparse-staleness").has_value());
}

TEST(PaperBench, Table2OfEcho2) {
  const PaperResult result = result_of("echo2-table2");
  for (const PaperRow& row : result.rows) {
    if (!row.paper) continue;
    EXPECT_NEAR(row.ours, *row.paper, 0.005 * *row.paper) << row.what;
  }
  for (const PaperClaim& claim : result.claims) EXPECT_TRUE(claim.holds) << claim.what;
}

TEST(PaperBench, Figure3aOfEcho2) {
  for (const PaperRow& row : result_of("echo2-fig3a").rows) EXPECT_NEAR(row.ours, *row.paper, 0.1) << row.what;
}

TEST(PaperBench, Figure9OfRollFlash) {
  PaperItem item = *paper_item("flash-fig9");
  item.seeds = 1;
  for (RolloutCase& c : item.suite.cases) c.options.steps = 4;
  const PaperResult result = *run_paper_item(item, {});
  for (const PaperClaim& claim : result.claims) EXPECT_TRUE(claim.holds) << claim.what;
}

TEST(PaperBench, GroupsBeatTheirSizeWhereWholeGroupsFail) {
  PaperItem item = *paper_item("flash-fig10");
  item.seeds = 1;
  for (RolloutCase& c : item.suite.cases) c.options.steps = 15;
  const PaperResult result = *run_paper_item(item, {});
  EXPECT_GT(ours(result, "36 groups of 12, speed-up"), 4);
  ASSERT_EQ(result.claims.size(), 3u);
  EXPECT_FALSE(result.claims[1].holds) << "where environments fail alone";
  EXPECT_TRUE(result.claims[2].holds);
}

TEST(PaperBench, TheDigestFollowsFromTheConfiguration) {
  const PaperItem item = *paper_item("flash-fig9");
  EXPECT_EQ(config_digest(item), config_digest(*paper_item("flash-fig9")));
  PaperItem other = item;
  other.suite.cases[3].options.environment_s_sd += 1;
  EXPECT_NE(config_digest(other), config_digest(item));
  other = item;
  ++other.seeds;
  EXPECT_NE(config_digest(other), config_digest(item));
}

TEST(PaperBench, KeepsWhatIsDone) {
  const std::filesystem::path directory =
      std::filesystem::path(testing::TempDir()) / ("papers-" + std::to_string(::getpid()));
  PaperItem item = *paper_item("echo2-fig3a");
  ASSERT_TRUE(write_paper_items({item}, {directory, {}}).has_value());
  const std::filesystem::path json = directory / "echo2-fig3a.json";
  const std::filesystem::path svg = directory / "echo2-fig3a.svg";
  ASSERT_TRUE(std::filesystem::exists(json));
  std::filesystem::remove(svg);
  ASSERT_TRUE(write_paper_items({item}, {directory, {}}).has_value());
  EXPECT_FALSE(std::filesystem::exists(svg)) << "it ran again";
  // Another configuration, or a damaged file, is no result of this one.
  item.inputs["A100"] = 4;
  ASSERT_TRUE(write_paper_items({item}, {directory, {}}).has_value());
  EXPECT_TRUE(std::filesystem::exists(svg));
  std::filesystem::remove(svg);
  std::ofstream(json) << "{";
  ASSERT_TRUE(write_paper_items({item}, {directory, {}}).has_value());
  EXPECT_TRUE(std::filesystem::exists(svg));
  std::filesystem::remove_all(directory);
}

TEST(PaperBench, NamesTheNearestItem) {
  const auto item = paper_item("flash-fig90");
  ASSERT_FALSE(item.has_value());
  EXPECT_NE(item.error().message().find("the nearest is 'flash-fig9'"), std::string::npos) << item.error().message();
}

TEST(Propositions, TheBestShareMakesBothSidesEqual) {
  const BatchWork work{400'000, 600, 8'000, 40, 32};
  for (const double ratio : {0.0, 1.0, 4.0}) {
    const double best = best_train_share(work, ratio);
    EXPECT_NEAR(asynchronous_step_bound_s(work, ratio, best), work.train_gpu_s / (best * work.gpus), 1e-6);
    for (double share = 0.02; share < 1; share += 0.02) {
      EXPECT_GE(asynchronous_step_bound_s(work, ratio, share), asynchronous_step_bound_s(work, ratio, best) - 1e-6);
    }
  }
  EXPECT_NEAR(synchronous_step_bound_s(work), 400'000.0 / 1280 + 600 + 200, 1e-9);
}

// By hand, from the paper's equations (9) and (10): N mu = 1200 and L = 90 s, K = 12 GPUs of one slot, 480 s of a GPU
// train.
TEST(Propositions, AreThePapersEquations) {
  const BatchWork work{1200, 90, 480, 12, 1};
  // A third of the GPUs trains, ratio 2: 1200 / 8 + 90 / (3 * 2/3) = 195, and 480 / 4 = 120.
  EXPECT_NEAR(asynchronous_step_bound_s(work, 2, 1.0 / 3), 195, 1e-9);
  // An eighth: 1200 / 10.5 + 90 / (3 * 7/8) = 148.6, and 480 / 1.5 = 320.
  EXPECT_NEAR(asynchronous_step_bound_s(work, 2, 1.0 / 8), 320, 1e-9);
  // (480 / 12) / (480 / 12 + 1200 / 12 + 90 / 3) = 40 / 170; both sides are 170 there.
  EXPECT_NEAR(best_train_share(work, 2), 4.0 / 17, 1e-12);
  EXPECT_NEAR(asynchronous_step_bound_s(work, 2, 4.0 / 17), 170, 1e-9);
  // Ratio 0.5: 40 / (40 + 100 + 60).
  EXPECT_NEAR(best_train_share(work, 0.5), 0.2, 1e-12);
}

}  // namespace
}  // namespace weightcast::bench
