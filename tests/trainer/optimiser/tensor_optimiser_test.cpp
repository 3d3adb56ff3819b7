#include "trainer/optimiser/tensor_optimiser.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>

namespace weightcast {
namespace {

using torch::Tensor;
using State = TensorOptimiser::State;

struct Both {
  std::unique_ptr<TensorOptimiser> host, device;
  std::vector<LearningCells> on_host, on_device;
};

/// The two optimisers over the same cells; that of devices runs on the CPU, too. The second part is longer than a
/// block.
Both make_both(torch::ScalarType type, const AdamWOptions& options) {
  const at::Generator generator = at::detail::createCPUGenerator(5);
  Both both;
  std::size_t tensor = 0;
  for (const std::int64_t cells : {130, 70000, 64}) {
    const Tensor values = at::empty({cells}, at::TensorOptions(at::kFloat)).normal_(0, 0.1, generator).to(type);
    both.on_host.push_back({values.clone(), tensor == 2 ? 0 : 0.1, tensor, 0});
    both.on_device.push_back({values.clone(), tensor == 2 ? 0 : 0.1, tensor, 0});
    ++tensor;
  }
  both.host = make_host_optimiser(options, both.on_host).value();
  both.device = make_device_optimiser(options, both.on_device).value();
  return both;
}

std::vector<Tensor> gradients_of(const Both& both, std::uint64_t seed) {
  const at::Generator generator = at::detail::createCPUGenerator(seed);
  std::vector<Tensor> gradients;
  for (const LearningCells& part : both.on_host) {
    gradients.push_back(at::empty(part.cells.sizes(), at::TensorOptions(at::kFloat)).normal_(0, 1, generator));
  }
  return gradients;
}

void expect_near(const Both& both, double tolerance) {
  for (std::size_t i = 0; i < both.on_host.size(); ++i) {
    const Tensor a = both.on_host[i].cells.to(at::kFloat), b = both.on_device[i].cells.to(at::kFloat);
    EXPECT_LE(((a - b).abs() / (a.abs() + 1e-3)).max().item<double>(), tolerance) << i;
  }
}

/// The cells as they were, with the changes written over them.
Tensor with_changes(const Tensor& before, const ChangedCells& changes) {
  Tensor after = before.clone();
  const auto size = static_cast<std::size_t>(after.element_size());
  for (std::size_t i = 0; i < changes.indices.size(); ++i) {
    std::memcpy(static_cast<std::byte*>(after.data_ptr()) + changes.indices[i] * size, changes.values.data() + i * size,
                size);
  }
  return after;
}

struct EachType : testing::TestWithParam<torch::ScalarType> {};
INSTANTIATE_TEST_SUITE_P(TensorOptimiser, EachType, testing::Values(at::kFloat, at::kBFloat16));

TEST_P(EachType, ComputesOnADeviceWhatAdamWDoes) {
  const Both both = make_both(GetParam(), {.grad_norm_max = 50});
  for (std::uint64_t update = 0; update < 5; ++update) {
    std::vector<Tensor> gradients = gradients_of(both, update);
    if (update == 2) gradients[0] = Tensor();  // none
    const AdamWUpdate host = both.host->update(0.01, gradients, std::nullopt).value();
    const AdamWUpdate device = both.device->update(0.01, gradients, std::nullopt).value();
    EXPECT_NEAR(device.grad_norm, host.grad_norm, 1e-5 * host.grad_norm);
    EXPECT_LT(device.gradient_scale, 1);
    EXPECT_NEAR(device.gradient_scale, host.gradient_scale, 1e-5);
    // BF16 has 8 bits: a number between two of them may go either way.
    expect_near(both, GetParam() == at::kFloat ? 1e-4 : 1.0 / 128);
  }
  EXPECT_EQ(both.device->counters().applied, 5u);
}

TEST_P(EachType, FindsOnADeviceWhatHasChanged) {
  const Both both = make_both(GetParam(), {});
  EXPECT_TRUE(both.device->take_changes(1).indices.empty());
  std::vector<Tensor> before;
  for (const LearningCells& part : both.on_device) before.push_back(part.cells.clone());
  for (std::uint64_t update = 0; update < 2; ++update) {
    ASSERT_TRUE(both.device->update(1e-4, gradients_of(both, update), std::nullopt).has_value());
  }
  for (std::size_t i = 0; i < before.size(); ++i) {
    const ChangedCells changes = both.device->take_changes(i);
    EXPECT_TRUE(std::is_sorted(changes.indices.begin(), changes.indices.end()));
    EXPECT_EQ(changes.values.size(), changes.indices.size() * before[i].element_size());
    EXPECT_EQ(changes.indices.size(), (before[i] != both.on_device[i].cells).sum().item<std::int64_t>());
    EXPECT_TRUE(at::equal(with_changes(before[i], changes), both.on_device[i].cells)) << i;
    EXPECT_TRUE(both.device->take_changes(i).indices.empty());
  }
}

TEST_P(EachType, TakesTheStateOfTheOther) {
  const Both both = make_both(GetParam(), {});
  ASSERT_TRUE(both.host->update(0.01, gradients_of(both, 1), std::nullopt).has_value());
  (void)both.host->take_changes(0);
  for (std::size_t i = 0; i < both.on_host.size(); ++i) both.on_device[i].cells.copy_(both.on_host[i].cells);
  std::vector<State> kinds{State::kMoment1, State::kMoment2, State::kChanged};
  if (GetParam() == at::kBFloat16) kinds.push_back(State::kMaster);
  for (const State kind : kinds) {
    const std::vector<std::byte> state = both.host->read_state(kind);
    both.device->write_state(kind, state);
    EXPECT_EQ(both.device->read_state(kind), state);
  }
  both.device->restore_counters(both.host->counters());
  EXPECT_EQ(both.device->take_changes(0).indices, both.host->take_changes(0).indices);
  const ChangedCells of_host = both.host->take_changes(1), of_device = both.device->take_changes(1);
  EXPECT_GT(of_host.indices.size(), 0u);
  EXPECT_EQ(of_device.indices, of_host.indices);
  EXPECT_EQ(of_device.values, of_host.values);
  const std::vector<Tensor> gradients = gradients_of(both, 2);
  ASSERT_TRUE(both.host->update(0.01, gradients, std::nullopt).has_value());
  ASSERT_TRUE(both.device->update(0.01, gradients, std::nullopt).has_value());
  expect_near(both, GetParam() == at::kFloat ? 1e-4 : 1.0 / 128);
}

TEST_P(EachType, SkipsOnADeviceWhatIsNotFinite) {
  const Both both = make_both(GetParam(), {});
  std::vector<Tensor> gradients = gradients_of(both, 1);
  gradients[2][3] = std::numeric_limits<float>::quiet_NaN();
  const Tensor before = both.on_device[0].cells.clone();
  EXPECT_FALSE(both.device->update(0.01, gradients, std::nullopt)->applied);
  EXPECT_TRUE(at::equal(both.on_device[0].cells, before));
  EXPECT_EQ(both.device->counters().skipped, 1u);
}

TEST(DeviceOptimiser, RoundsByChanceWithoutBias) {
  AdamWOptions options;
  options.rounding = Bf16Rounding::kStochastic;
  options.grad_norm_max = 0;
  const Tensor cells = at::ones({1 << 16}, at::TensorOptions(at::kBFloat16));
  const auto optimiser = make_device_optimiser(options, {{cells, 0, 0, 0}}).value();
  // A step of 0.001 down from 1, where BF16's numbers below lie 1/256 apart.
  const std::vector<Tensor> gradients{at::ones({1 << 16})};
  ASSERT_TRUE(optimiser->update(0.001, gradients, std::nullopt).has_value());
  EXPECT_NEAR(cells.to(at::kFloat).mean().item<double>(), 1 - 0.001, 3e-5);
  EXPECT_NEAR((cells != 1).to(at::kFloat).mean().item<double>(), 0.256, 0.01);
}

TEST(DeviceOptimiser, RefusesWhatAdamWRefuses) {
  const Tensor cells = at::ones({3});
  EXPECT_EQ(make_device_optimiser({.beta1 = 1}, {{cells, 0, 0, 0}}).error().code, Errc::kInvalidArgument);
}

}  // namespace
}  // namespace weightcast
