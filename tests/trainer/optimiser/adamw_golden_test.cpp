// What torch.optim.AdamW makes of the same gradients: tests/oracles/torch_adamw.py.
#include <gtest/gtest.h>

#include <cmath>

#include "tests/golden_lines.h"
#include "trainer/optimiser/adamw.h"

namespace weightcast {
namespace {

using Floats = std::vector<float>;

TEST(AdamWGolden, UpdatesAreThoseOfTorch) {
  std::size_t clipped = 0;
  for (const auto& line : golden_lines(WEIGHTCAST_TRAINER_GOLDEN "/torch_adamw.jsonl")) {
    const AdamWOptions options{.beta1 = line["beta1"],
                               .beta2 = line["beta2"],
                               .epsilon = line["epsilon"],
                               .grad_norm_max = line["grad_norm_max"]};
    std::vector<Floats> weights = line["weights"];
    const std::vector<double> decays = line["weight_decay"];
    std::vector<AdamWParameter> parameters;
    for (std::size_t i = 0; i < weights.size(); ++i) parameters.push_back({std::span(weights[i]), decays[i]});
    auto optimiser = AdamW::make(options, std::move(parameters));
    ASSERT_TRUE(optimiser.has_value());
    double rates = 0;
    for (const auto& step : line["updates"]) {
      const std::vector<Floats> gradients = step["gradients"], expected = step["weights"];
      std::vector<GradientCells> cells;
      for (const Floats& gradient : gradients) cells.emplace_back(std::span<const float>(gradient));
      const double rate = step["learning_rate"], norm = step["grad_norm"];
      const auto update = optimiser->update(rate, cells);
      ASSERT_TRUE(update.has_value());
      ASSERT_NEAR(update->grad_norm, norm, 1e-6 * norm);
      clipped += update->gradient_scale < 1 ? 1 : 0;
      // An update moves a cell by some learning rates; each is a few roundings, and so is the cell itself.
      rates += rate;
      for (std::size_t i = 0; i < weights.size(); ++i) {
        for (std::size_t j = 0; j < weights[i].size(); ++j) {
          const double bound = 4e-6 * rates + 3e-7 * std::abs(expected[i][j]);
          ASSERT_NEAR(weights[i][j], expected[i][j], bound);
        }
      }
    }
  }
  EXPECT_GT(clipped, 5u);
}

}  // namespace
}  // namespace weightcast
