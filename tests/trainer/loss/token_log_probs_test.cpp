#include "trainer/loss/token_log_probs.h"

#include <gtest/gtest.h>

#include <c10/core/Allocator.h>
#include <c10/core/CPUAllocator.h>
#include <torch/version.h>

#include <atomic>
#include <cstdlib>

namespace weightcast {
namespace {

using torch::Tensor;

struct Case {
  Tensor hidden, head, targets;
};

Case make_case(std::int64_t tokens, std::int64_t width, std::int64_t vocabulary) {
  torch::manual_seed(3);
  return {torch::randn({tokens, width}), torch::randn({vocabulary, width}) * 0.5,
          torch::randint(vocabulary, {tokens}, torch::kLong)};
}

TokenLogProbs plain(const Case& c, double temperature) {
  const Tensor logs = torch::log_softmax(torch::mm(c.hidden, c.head.t()) / temperature, 1);
  const Tensor present = c.targets >= 0;
  const Tensor chosen = logs.gather(1, c.targets.clamp_min(0).unsqueeze(1)).squeeze(1);
  const Tensor entropy = -(logs.exp() * logs).sum(1);
  return {torch::where(present, chosen, torch::zeros({})), torch::where(present, entropy, torch::zeros({}))};
}

struct Gradients {
  Tensor hidden, head;
};

Gradients gradients_of(Case c, const Tensor& of_log_probs, const Tensor& of_entropy, const auto& function) {
  c.hidden = c.hidden.detach().requires_grad_();
  c.head = c.head.detach().requires_grad_();
  const TokenLogProbs result = function(c);
  Tensor sum = torch::zeros({});
  if (of_log_probs.defined()) sum = sum + (result.log_probs * of_log_probs).sum();
  if (of_entropy.defined()) sum = sum + (result.entropy * of_entropy).sum();
  sum.backward();
  return {c.hidden.grad(), c.head.grad()};
}

void expect_close(const Tensor& got, const Tensor& wanted, double bound) {
  ASSERT_EQ(got.sizes(), wanted.sizes());
  const double scale = std::max(1.0, wanted.abs().max().item<double>());
  EXPECT_LE((got - wanted).abs().max().item<double>(), bound * scale);
}

TEST(TokenLogProbs, AreThoseOfThePlainComputation) {
  Case c = make_case(23, 16, 301);
  c.targets[5] = -1;
  c.targets[22] = -100;
  const Tensor g = torch::randn({23}), h = torch::randn({23});
  for (const double temperature : {1.0, 0.6}) {
    for (const std::int64_t tokens_at_a_time : {1, 3, 23, 1000}) {
      const std::int64_t bytes = tokens_at_a_time * 301 * 4;
      const auto chunked = [&](const Case& x) {
        return token_log_probs(x.hidden, x.head, x.targets, temperature, bytes);
      };
      const auto whole = [&](const Case& x) { return plain(x, temperature); };
      expect_close(chunked(c).log_probs, plain(c, temperature).log_probs, 3e-6);
      expect_close(chunked(c).entropy, plain(c, temperature).entropy, 3e-6);
      EXPECT_EQ(chunked(c).log_probs[5].item<float>(), 0);
      for (const auto& [of_log_probs, of_entropy] : {std::pair(g, h), std::pair(g, Tensor()), std::pair(Tensor(), h)}) {
        const Gradients got = gradients_of(c, of_log_probs, of_entropy, chunked);
        const Gradients wanted = gradients_of(c, of_log_probs, of_entropy, whole);
        expect_close(got.hidden, wanted.hidden, 1e-5);
        expect_close(got.head, wanted.head, 1e-5);
        EXPECT_EQ(got.hidden[5].abs().max().item<float>(), 0);
      }
    }
  }
}

TEST(TokenLogProbs, OnlyWhatWantsAGradientGetsOne) {
  Case c = make_case(7, 4, 11);
  c.hidden.requires_grad_();
  token_log_probs(c.hidden, c.head, c.targets).log_probs.sum().backward();
  EXPECT_TRUE(c.hidden.grad().defined());
  EXPECT_FALSE(c.head.grad().defined());
  c.head.requires_grad_();
  token_log_probs(c.hidden.detach(), c.head, c.targets).log_probs.sum().backward();
  EXPECT_TRUE(c.head.grad().defined());
  EXPECT_FALSE(token_log_probs(c.hidden.detach(), c.head.detach(), c.targets).log_probs.requires_grad());
}

/// Only gradients are rounded: logits and softmax are FP32.
TEST(TokenLogProbs, TakesBf16WithLogitsInFp32) {
  Case exact = make_case(40, 32, 500);
  Case rounded{exact.hidden.to(torch::kBFloat16), exact.head.to(torch::kBFloat16), exact.targets};
  exact.hidden = rounded.hidden.to(torch::kFloat);
  exact.head = rounded.head.to(torch::kFloat);
  const auto function = [](const Case& c) { return token_log_probs(c.hidden, c.head, c.targets, 1, 7 * 500 * 4); };
  const TokenLogProbs got = function(rounded), wanted = function(exact);
  EXPECT_EQ(got.log_probs.scalar_type(), torch::kFloat);
  EXPECT_EQ(got.entropy.scalar_type(), torch::kFloat);
  expect_close(got.log_probs, wanted.log_probs, 3e-6);
  expect_close(got.entropy, wanted.entropy, 3e-6);
  // Probabilities from these logits must sum to 1 in FP32: BF16 would be off by 1e-2.
  const Tensor all = torch::arange(500, torch::kLong);
  const Tensor row = rounded.hidden.narrow(0, 0, 1).expand({500, 32}).contiguous();
  EXPECT_NEAR(token_log_probs(row, rounded.head, all).log_probs.exp().sum().item<double>(), 1, 1e-5);
  const Tensor g = torch::randn({40});
  const Gradients got_gradients = gradients_of(rounded, g, g, function);
  const Gradients wanted_gradients = gradients_of(exact, g, g, function);
  EXPECT_EQ(got_gradients.head.scalar_type(), torch::kBFloat16);
  expect_close(got_gradients.hidden.to(torch::kFloat), wanted_gradients.hidden, 0.03);
  expect_close(got_gradients.head.to(torch::kFloat), wanted_gradients.head, 0.03);
}

/// Counts the bytes of live tensors.
class CountingAllocator final : public c10::Allocator {
 public:
#if TORCH_VERSION_MAJOR >= 2
  c10::DataPtr allocate(std::size_t bytes) override { return count(bytes); }
  void copy_data(void* to, const void* from, std::size_t bytes) const override { default_copy_data(to, from, bytes); }
#else
  c10::DataPtr allocate(std::size_t bytes) const override { return count(bytes); }
#endif
  static std::size_t peak() { return peak_; }
  static std::size_t live() { return live_; }
  static void start() { peak_ = live_; }

 private:
  static c10::DataPtr count(std::size_t bytes) {
    void* const memory = std::aligned_alloc(64, (bytes + 127) / 64 * 64);
    *static_cast<std::size_t*>(memory) = bytes;
    const std::size_t live = live_ += bytes;
    if (live > peak_) peak_ = live;
    return {static_cast<std::byte*>(memory) + 64, memory, &free_bytes, c10::Device(c10::DeviceType::CPU)};
  }
  static void free_bytes(void* memory) {
    live_ -= *static_cast<std::size_t*>(memory);
    std::free(memory);
  }
  inline static std::size_t live_ = 0, peak_ = 0;
};

TEST(TokenLogProbs, PeakMemoryDoesNotGrowWithTokensTimesVocabulary) {
  constexpr std::int64_t kWidth = 8, kVocabulary = 5000, kChunkBytes = 16 * kVocabulary * 4;
  c10::Allocator* const before = c10::GetCPUAllocator();
  static CountingAllocator counting;
  c10::SetCPUAllocator(&counting, 1);
  const auto peak = [&](std::int64_t tokens) {
    const Case c = make_case(tokens, kWidth, kVocabulary);
    const Tensor g = torch::ones({tokens});
    CountingAllocator::start();
    const std::size_t live = CountingAllocator::live();
    static_cast<void>(gradients_of(
        c, g, g, [](const Case& x) { return token_log_probs(x.hidden, x.head, x.targets, 1, kChunkBytes); }));
    return CountingAllocator::peak() - live;
  };
  static_cast<void>(peak(16));
  const std::size_t small = peak(64), large = peak(1024);
  c10::SetCPUAllocator(before, 1);
  // What grows: hidden's gradient, and a few numbers per token. The logits of all tokens would be 20 MB.
  EXPECT_LE(large, small + 960 * (3 * kWidth * 4 + 100));
  // A chunk is alive about four times: the product, logits, probabilities and a temporary; then the head's gradient.
  EXPECT_LE(large, 4 * kChunkBytes + 2 * kVocabulary * kWidth * 4 + 1024 * (3 * kWidth * 4 + 100));
}

TEST(TokenLogProbs, RefusesWhatDoesNotFit) {
  const Case c = make_case(4, 8, 10);
  EXPECT_THROW(static_cast<void>(token_log_probs(c.hidden, c.head.narrow(1, 0, 7), c.targets)), c10::Error);
  EXPECT_THROW(static_cast<void>(token_log_probs(c.hidden, c.head, c.targets.narrow(0, 0, 3))), c10::Error);
  EXPECT_THROW(static_cast<void>(token_log_probs(c.hidden, c.head.to(torch::kBFloat16), c.targets)), c10::Error);
  EXPECT_THROW(static_cast<void>(token_log_probs(c.hidden, c.head, c.targets, 0)), c10::Error);
  EXPECT_THROW(static_cast<void>(token_log_probs(c.hidden, c.head, c.targets + 100)), c10::Error);
}

}  // namespace
}  // namespace weightcast
