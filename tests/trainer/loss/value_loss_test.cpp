#include "trainer/loss/value_loss.h"

#include <gtest/gtest.h>

#include <limits>

#include "tests/golden_lines.h"
#include "trainer/loss/gae.h"

namespace weightcast {
namespace {

using torch::Tensor;
using Rows = std::vector<std::vector<double>>;

constexpr double kNan = std::numeric_limits<double>::quiet_NaN();

Tensor matrix_of(const Rows& rows) {
  std::vector<double> cells;
  for (const auto& row : rows) cells.insert(cells.end(), row.begin(), row.end());
  return torch::tensor(cells, torch::kDouble)
      .reshape({static_cast<std::int64_t>(rows.size()), static_cast<std::int64_t>(rows[0].size())});
}

bool near(const Tensor& a, const Tensor& b, double bound) { return (a - b).abs().max().item<double>() <= bound; }

/// tests/oracles/verl_values.py.
TEST(ValuesGolden, AreVerls) {
  std::size_t clipped = 0;
  for (const auto& line : golden_lines(WEIGHTCAST_TRAINER_GOLDEN "/verl_values.jsonl")) {
    const Rows rewards = line["rewards"], values = line["values"], masks = line["response_mask"];
    Rows returns;
    std::vector<double> advantages;
    std::vector<std::uint8_t> counted;
    for (std::size_t i = 0; i < rewards.size(); ++i) {
      const std::vector<std::uint8_t> mask(masks[i].begin(), masks[i].end());
      const auto result = gae(rewards[i], values[i], mask, {.gamma = line["gamma"], .lambda = line["lambda"]});
      ASSERT_TRUE(result.has_value());
      returns.push_back(result->returns);
      advantages.insert(advantages.end(), result->advantages.begin(), result->advantages.end());
      counted.insert(counted.end(), mask.begin(), mask.end());
    }
    whiten(advantages, counted);
    const Tensor wanted = matrix_of(line["advantages"].get<Rows>());
    ASSERT_TRUE(near(torch::tensor(advantages, torch::kDouble).reshape(wanted.sizes()), wanted, 1e-6)) << line.dump();
    ASSERT_TRUE(near(matrix_of(returns), matrix_of(line["returns"].get<Rows>()), 1e-9)) << line.dump();

    const Tensor predicted = matrix_of(line["new_values"].get<Rows>()).requires_grad_();
    const auto loss = value_loss(predicted, matrix_of(values), matrix_of(returns), matrix_of(masks) == 1,
                                 line["clip_range"], *find_word<LossAggMode>(line["loss_agg_mode"].get<std::string>()));
    ASSERT_TRUE(loss.has_value());
    loss->loss.backward();
    ASSERT_NEAR(loss->loss.item<double>(), line["loss"].get<double>(), 1e-7) << line.dump();
    ASSERT_NEAR(loss->clipped_share.item<double>(), line["clipped_share"].get<double>(), 1e-7) << line.dump();
    ASSERT_TRUE(near(predicted.grad(), matrix_of(line["grad_values"].get<Rows>()), 1e-7)) << line.dump();
    clipped += loss->clipped_share.item<double>() > 0 ? 1 : 0;
  }
  EXPECT_GT(clipped, 5u);
}

TEST(ValueLoss, WhatTheMaskLeavesOutNeverLeaks) {
  const Tensor values = matrix_of({{1, kNan}, {kNan, kNan}}).requires_grad_();
  const auto loss = value_loss(values, matrix_of({{0, kNan}, {kNan, kNan}}), matrix_of({{3, kNan}, {kNan, kNan}}),
                               matrix_of({{1, 0}, {0, 0}}) == 1, -1, LossAggMode::kSeqMeanTokenMean);
  ASSERT_TRUE(loss.has_value());
  loss->loss.backward();
  EXPECT_EQ(loss->loss.item<double>(), 2);
  EXPECT_TRUE(near(values.grad(), matrix_of({{-2, 0}, {0, 0}}), 0));
  EXPECT_EQ(value_loss(values, values, matrix_of({{1}}), values == 1, 1, LossAggMode::kTokenMean).error().code,
            Errc::kInvalidArgument);
}

/// Rounding must not make a value within the range one that is clipped.
TEST(ValueLoss, WithinItsRangeNothingIsClipped) {
  torch::manual_seed(1);
  const Tensor old = 0.1 + 0.05 * torch::rand({20, 50}), values = 1e-3 * torch::rand({20, 50});
  const Tensor returns = torch::randn({20, 50}), mask = torch::ones({20, 50});
  const auto loss = value_loss(values, old, returns, mask, 0.2, LossAggMode::kTokenMean);
  EXPECT_EQ(loss->clipped_share.item<double>(), 0);
}

TEST(ValueHead, IsALinearMapThatBeginsAtZero) {
  ValueHead head = ValueHead::zeros(3);
  const Tensor hidden = torch::tensor({1.0f, 2.0f, 3.0f, -1.0f, 0.0f, 1.0f}).reshape({2, 3});
  EXPECT_TRUE(near(head(hidden), torch::zeros({2}), 0));
  head(hidden).sum().backward();
  EXPECT_TRUE(near(head.weight.grad(), torch::tensor({0.0f, 2.0f, 4.0f}), 0));
  EXPECT_EQ(head.bias.grad().item<float>(), 2);
  EXPECT_EQ(head(hidden.to(torch::kBFloat16)).scalar_type(), torch::kFloat);
}

}  // namespace
}  // namespace weightcast
