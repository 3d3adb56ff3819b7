#include "bench/publish/delta_bench.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <vector>

#include "bench/publish/bench_trainer.h"

namespace weightcast::bench {
namespace {

DeltaBenchCase a_case(std::uint64_t tensor_bytes, std::uint64_t cells, double origin_cpu_s, double worker_cpu_s) {
  DeltaBenchCase one;
  one.tensor_bytes = tensor_bytes;
  one.changed_share = 2 * double(cells) / double(tensor_bytes);
  one.changed_cells = cells;
  one.patch_bytes = 2 * cells;
  one.floor_s = 0.01;
  one.call_s = 0.02;
  one.installed_s = 0.05;
  one.origin.cpu_s = origin_cpu_s;
  one.worker.cpu_s = worker_cpu_s;
  return one;
}

TEST(DeltaBench, DrawsALineThroughTheCasesOfEachSize) {
  const std::vector<DeltaBenchCase> cases = {a_case(kGiB, 1000, 3, 1.5), a_case(kGiB, 2000, 5, 1.5),
                                             a_case(kGiB, 3000, 7, 1.5), a_case(2 * kGiB, 1000, 1, 1)};
  const auto lines = cpu_lines(cases);
  ASSERT_EQ(lines.size(), 1u);  // one case has no line
  EXPECT_EQ(lines[0].tensor_bytes, kGiB);
  EXPECT_NEAR(lines[0].origin.intercept_s, 1, 1e-9);
  EXPECT_NEAR(lines[0].origin.slope_s, 0.002, 1e-12);
  EXPECT_NEAR(lines[0].worker.intercept_s, 1.5, 1e-9);
  EXPECT_NEAR(lines[0].worker.slope_s, 0, 1e-12);
}

TEST(DeltaBench, DrawsAPanelForEachSizeWithItsFloor) {
  std::vector<DeltaBenchCase> cases = {a_case(kGiB, 1000, 3, 1), a_case(8 * kGiB, 1000, 1, 1)};
  cases[1].single_copy = true;
  cases[1].link_s = 0.3;
  const Figure figure = delta_figure(cases);
  ASSERT_EQ(figure.panels.size(), 2u);
  EXPECT_NE(figure.panels[1].title.find("one copy"), std::string::npos);
  const auto bounds = [](const Figure::Panel& panel) {
    return std::ranges::count_if(panel.series, &Figure::Series::bound);
  };
  EXPECT_EQ(bounds(figure.panels[0]), 1);
  EXPECT_EQ(bounds(figure.panels[1]), 2);
}

TEST(BenchTrainer, AppliesWhatItChose) {
  auto trainer = BenchTrainer::make(64 * kKiB, 4, 0.1);
  ASSERT_TRUE(trainer.has_value());
  const auto cells = [&](std::size_t t) {
    const auto* first = static_cast<const std::uint16_t*>(trainer->data(t));
    return std::vector<std::uint16_t>(first, first + trainer->infos()[t].shape[0]);
  };
  std::vector<std::vector<std::uint16_t>> expected;
  for (std::size_t t = 0; t < 4; ++t) expected.push_back(cells(t));
  trainer->choose();
  std::size_t changed_cells = 0;
  for (std::size_t t = 0; t < 4; ++t) {
    EXPECT_EQ(cells(t), expected[t]);  // not yet
    const BenchTrainer::Changed& changed = trainer->changed()[t];
    changed_cells += changed.indices.size();
    for (std::size_t i = 0; i < changed.indices.size(); ++i) {
      EXPECT_NE(expected[t][changed.indices[i]], changed.values[i]);
      expected[t][changed.indices[i]] = changed.values[i];
    }
  }
  EXPECT_NEAR(double(changed_cells), 3277, 300);
  trainer->apply();
  for (std::size_t t = 0; t < 4; ++t) EXPECT_EQ(cells(t), expected[t]);
}

}  // namespace
}  // namespace weightcast::bench
