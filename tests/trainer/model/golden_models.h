#pragma once

#include <gtest/gtest.h>
#include <torch/types.h>

#include <algorithm>
#include <cstdint>
#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "base/random.h"
#include "trainer/model/decoder.h"

namespace weightcast {

// What the tests of lines by hf_models.py and hf_lora.py share.

/// fill() of hf_models.py.
inline void fill(const Decoder& decoder, std::uint64_t seed) {
  std::map<std::string, torch::Tensor> by_name;
  for (const Parameter& parameter : decoder.parameters()) by_name.emplace(parameter.name, parameter.tensor);
  for (auto& [name, tensor] : by_name) {
    Random random(seed++);
    const double shift = name.find("norm") == std::string::npos ? -0.5 : 0.5;
    std::vector<float> numbers(static_cast<std::size_t>(tensor.numel()));
    for (float& number : numbers) number = static_cast<float>(random.unit() + shift);
    tensor.copy_(torch::tensor(numbers).view(tensor.sizes()));
  }
}

/// The sequences of a line, packed, and as targets the same reversed.
struct GoldenSequences {
  explicit GoldenSequences(const nlohmann::json& line) {
    std::vector<std::int64_t> all;
    std::vector<std::int64_t> reversed;
    for (const nlohmann::json& sequence : line["sequences"]) {
      starts.push_back(static_cast<std::int64_t>(all.size()));
      for (const nlohmann::json& id : sequence) all.push_back(id.get<std::int64_t>());
      reversed.insert(reversed.end(), all.rbegin(), all.rend() - starts.back());
    }
    ids = torch::tensor(all, at::kLong);
    targets = torch::tensor(reversed, at::kLong);
  }
  torch::Tensor ids;
  torch::Tensor targets;
  std::vector<std::int64_t> starts;
};

/// The model of a line.
inline Decoder golden_decoder(const nlohmann::json& line, const DecoderOptions& options) {
  const Result<ModelConfig> config = parse_model_config(line["config"].dump());
  EXPECT_TRUE(config.has_value()) << config.error().detail;
  Result<Decoder> decoder = Decoder::random(*config, 1, options);
  WC_CHECK(decoder.has_value());
  const at::NoGradGuard no_gradients;
  fill(*decoder, line["seed"].get<std::uint64_t>());
  return *std::move(decoder);
}

/// All elements of `a` less those of `b`, in FP32.
inline torch::Tensor difference_to(const torch::Tensor& a, const std::vector<float>& b) {
  return a.detach().flatten().to(at::kFloat) - torch::tensor(b);
}

inline double distance_max(const torch::Tensor& a, const nlohmann::json& b) {
  return difference_to(a, b.get<std::vector<float>>()).abs().max().item<double>();
}

/// Compares gradients with those of a line, which has some elements of each, and its norm.
inline void expect_gradients(const std::vector<Parameter>& parameters, const nlohmann::json& line) {
  std::size_t compared = 0;
  for (const Parameter& parameter : parameters) {
    const torch::Tensor gradient = parameter.tensor.grad();
    if (!line["gradients"].contains(parameter.name)) {
      EXPECT_TRUE(!gradient.defined() || gradient.abs().max().item<double>() == 0) << parameter.name;
      continue;
    }
    // An expert that no token chose: transformers says 0, we say nothing.
    const torch::Tensor flat = (gradient.defined() ? gradient : at::zeros_like(parameter.tensor)).flatten();
    const auto expected = line["gradients"][parameter.name].get<std::vector<double>>();
    const double tolerance = 1e-3 * expected[0] + 1e-6;
    EXPECT_NEAR(flat.norm().item<double>(), expected[0], tolerance) << parameter.name << line["config"].dump();
    const std::int64_t step = std::max<std::int64_t>(1, flat.numel() / 4);
    for (std::size_t i = 1; i < expected.size(); ++i) {
      EXPECT_NEAR(flat[static_cast<std::int64_t>(i - 1) * step].item<double>(), expected[i], tolerance)
          << parameter.name << line["config"].dump();
    }
    ++compared;
  }
  EXPECT_EQ(compared, line["gradients"].size()) << line["config"].dump();
}

}  // namespace weightcast
