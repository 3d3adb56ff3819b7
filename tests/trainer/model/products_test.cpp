#include "trainer/model/layers/products.h"

#include <gtest/gtest.h>

#include <ctime>
#include <functional>

namespace weightcast {
namespace {

using torch::Tensor;

Tensor bf16(const std::vector<std::int64_t>& sizes) { return at::rand(sizes, at::kFloat).sub_(0.5).to(at::kBFloat16); }

Tensor wide_leaf(const Tensor& x) { return x.detach().to(at::kFloat).set_requires_grad(true); }

// One rounding to the 8 bits of BF16, of numbers up to `largest`.
void expect_rounded(const Tensor& got, const Tensor& exact, const char* what) {
  ASSERT_EQ(got.scalar_type(), at::kBFloat16) << what;
  ASSERT_EQ(got.sizes(), exact.sizes()) << what;
  const double largest = exact.abs().max().item<double>();
  EXPECT_LE((got.to(at::kFloat) - exact).abs().max().item<double>(), largest / 128) << what;
}

double processor_seconds(const std::function<void()>& work) {
  const std::clock_t begin = std::clock();
  work();
  return static_cast<double>(std::clock() - begin) / CLOCKS_PER_SEC;
}

TEST(Products, ValuesAndGradientsOfBf16AreThoseOfFp32Rounded) {
  torch::manual_seed(1);
  for (const bool has_bias : {false, true}) {
    const Tensor x = bf16({2, 5, 24}).set_requires_grad(true), weight = bf16({7, 24}).set_requires_grad(true);
    const Tensor bias = has_bias ? bf16({7}).set_requires_grad(true) : Tensor();
    const Tensor seed = bf16({2, 5, 7});
    const Tensor result = linear_product(x, weight, bias);
    result.backward(seed);

    const Tensor wide_x = wide_leaf(x), wide_weight = wide_leaf(weight);
    const Tensor wide_bias = has_bias ? wide_leaf(bias) : Tensor();
    const Tensor exact = at::linear(wide_x, wide_weight, wide_bias);
    exact.backward(seed.to(at::kFloat));

    expect_rounded(result, exact, "x weight^T + bias");
    expect_rounded(x.grad(), wide_x.grad(), "the gradient of x");
    expect_rounded(weight.grad(), wide_weight.grad(), "the gradient of the weight");
    if (has_bias) expect_rounded(bias.grad(), wide_bias.grad(), "the gradient of the bias");
  }
  const Tensor a = bf16({3, 2, 4, 8}), b = bf16({3, 2, 8, 5});
  expect_rounded(product(a, b), at::matmul(a.to(at::kFloat), b.to(at::kFloat)), "a b");
}

TEST(Products, WhatNeedsNoGradientGetsNone) {
  const Tensor x = bf16({3, 8}), weight = bf16({4, 8}).set_requires_grad(true);
  linear_product(x, weight).sum().backward();
  EXPECT_FALSE(x.grad().defined());
  EXPECT_TRUE(weight.grad().defined());
}

TEST(Products, Bf16CostsNotManyTimesWhatFp32Does) {
  const Tensor x = bf16({256, 1024}).set_requires_grad(true), weight = bf16({1024, 1024}).set_requires_grad(true);
  const Tensor wide_x = wide_leaf(x), wide_weight = wide_leaf(weight);
  double narrow = 0, wide = 0;
  for (int round = 0; round < 4; ++round) {
    const double of_bf16 = processor_seconds([&] { linear_product(x, weight).sum().backward(); });
    const double of_fp32 = processor_seconds([&] { linear_product(wide_x, wide_weight).sum().backward(); });
    if (round == 0) continue;  // threads start, memory is touched
    narrow += of_bf16;
    wide += of_fp32;
  }
  EXPECT_LT(narrow, 8 * wide) << "37 times where LibTorch multiplies BF16 without the processor's help";
}

}  // namespace
}  // namespace weightcast
