#include "trainer/optimiser/adamw.h"

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <cstring>
#include <limits>

#include "base/digest/instruction_set.h"
#include "base/random.h"
#include "trainer/optimiser/adamw_kernels.h"

namespace weightcast {
namespace {

using Floats = std::vector<float>;
using Bf16s = std::vector<Bf16Bits>;
using Kind = AdamW::StatePart::Kind;

float float_of(Bf16Bits bits) { return std::bit_cast<float>(std::uint32_t{bits} << 16); }
Bf16Bits cut(float value) { return static_cast<Bf16Bits>(std::bit_cast<std::uint32_t>(value) >> 16); }

/// Roughly normal, of deviation `scale`.
float draw(Random& random, double scale) {
  double sum = -6;
  for (int i = 0; i < 12; ++i) sum += random.unit();
  return static_cast<float>(scale * sum);
}

Floats draw_many(Random& random, std::size_t count, double scale) {
  Floats values(count);
  for (float& value : values) value = draw(random, scale);
  return values;
}

Bf16s cut_all(const Floats& values) {
  Bf16s result;
  for (const float value : values) result.push_back(cut(value));
  return result;
}

GradientCells cells(const Floats& values) { return std::span<const float>(values); }
GradientCells cells(const Bf16s& values) { return std::span<const Bf16Bits>(values); }

AdamW make(const AdamWOptions& options, std::vector<AdamWParameter> parameters) {
  auto made = AdamW::make(options, std::move(parameters));
  EXPECT_TRUE(made.has_value()) << made.error().detail;
  return std::move(*made);
}

std::span<float> master_of(AdamW& optimiser) {
  for (const auto& part : optimiser.state()) {
    if (part.kind != Kind::kMaster) continue;
    return {reinterpret_cast<float*>(part.bytes.data()), part.bytes.size() / sizeof(float)};
  }
  return {};
}

/// The formulas of torch.optim.AdamW in double.
struct Reference {
  AdamWOptions options;
  std::vector<double> weights, moment1 = std::vector<double>(weights.size()), moment2 = moment1;
  double t = 0;

  void update(double rate, double decay, double scale, const Floats& gradient) {
    ++t;
    for (std::size_t i = 0; i < weights.size(); ++i) {
      const double g = gradient[i] * scale;
      moment1[i] = options.beta1 * moment1[i] + (1 - options.beta1) * g;
      moment2[i] = options.beta2 * moment2[i] + (1 - options.beta2) * g * g;
      weights[i] *= 1 - rate * decay;
      const double m = moment1[i] / (1 - std::pow(options.beta1, t));
      const double v = moment2[i] / (1 - std::pow(options.beta2, t));
      weights[i] -= rate * m / (std::sqrt(v) + options.epsilon);
    }
  }
};

TEST(AdamW, FollowsTheFormulasInDouble) {
  Random random(1);
  const AdamWOptions options{.grad_norm_max = 2};
  Floats first = draw_many(random, 1000, 0.02), second = draw_many(random, 77, 1);
  Reference reference_1{options, {first.begin(), first.end()}}, reference_2{options, {second.begin(), second.end()}};
  AdamW optimiser = make(options, {{std::span(first), 0.1}, {std::span(second), 0}});
  for (int step = 0; step < 50; ++step) {
    const Floats gradient_1 = draw_many(random, 1000, step % 2 == 0 ? 1e-3 : 1),
                 gradient_2 = draw_many(random, 77, 0.1);
    double squares = 0;
    for (const float g : gradient_1) squares += double{g} * g;
    for (const float g : gradient_2) squares += double{g} * g;
    const double norm = std::sqrt(squares), scale = std::min(1.0, 2 / (norm + 1e-6));
    const auto update = optimiser.update(1e-3, std::array{cells(gradient_1), cells(gradient_2)});
    ASSERT_TRUE(update.has_value());
    EXPECT_TRUE(update->applied);
    EXPECT_NEAR(update->grad_norm, norm, 1e-12 * norm);
    EXPECT_NEAR(update->gradient_scale, scale, 1e-12);
    reference_1.update(1e-3, 0.1, scale, gradient_1);
    reference_2.update(1e-3, 0, scale, gradient_2);
  }
  // 50 updates of at most some 1e-3, each rounded to FP32 a few times.
  for (std::size_t i = 0; i < first.size(); ++i) ASSERT_NEAR(first[i], reference_1.weights[i], 2e-7) << i;
  for (std::size_t i = 0; i < second.size(); ++i) ASSERT_NEAR(second[i], reference_2.weights[i], 5e-6) << i;
}

TEST(AdamW, Bf16WeightsAreTheRoundedMasterWeights) {
  Random random(2);
  Floats exact = draw_many(random, 300, 0.02);
  Bf16s weights = cut_all(exact);
  for (std::size_t i = 0; i < exact.size(); ++i) exact[i] = float_of(weights[i]);
  AdamW of_bf16 = make({}, {{std::span(weights), 0.01}});
  AdamW of_float = make({}, {{std::span(exact), 0.01}});
  for (int step = 0; step < 10; ++step) {
    const Bf16s gradient = cut_all(draw_many(random, 300, 1));
    Floats same;
    for (const Bf16Bits bits : gradient) same.push_back(float_of(bits));
    ASSERT_TRUE(of_bf16.update(1e-3, std::array{cells(gradient)})->applied);
    ASSERT_TRUE(of_float.update(1e-3, std::array{cells(same)})->applied);
    const auto master = master_of(of_bf16);
    for (std::size_t i = 0; i < exact.size(); ++i) {
      ASSERT_EQ(master[i], exact[i]) << i;
      const float below = float_of(cut(exact[i])), above = float_of(static_cast<Bf16Bits>(cut(exact[i]) + 1));
      const float chosen = float_of(weights[i]);
      ASSERT_TRUE(chosen == below || chosen == above);
      ASSERT_LE(std::abs(chosen - exact[i]), std::abs(above - below) / 2) << i;
    }
  }
}

TEST(AdamW, RoundsToNearestEven) {
  struct Case {
    std::uint32_t master;
    Bf16Bits rounded;
  };
  const std::vector<Case> cases{
      {0x3f800000, 0x3f80}, {0x3f807fff, 0x3f80}, {0x3f808000, 0x3f80}, {0x3f808001, 0x3f81}, {0x3f818000, 0x3f82},
      {0xbf818000, 0xbf82}, {0x00000000, 0x0000}, {0x80000000, 0x8000}, {0x00008001, 0x0001}, {0x7f7fffff, 0x7f80},
      {0x7f800000, 0x7f80}, {0xff800000, 0xff80}, {0x7f800001, 0x7fc0}, {0x7fffffff, 0x7fff}, {0xffffffff, 0xffff},
  };
  Bf16s weights(cases.size());
  AdamW optimiser = make({}, {{std::span(weights), 0}});
  for (std::size_t i = 0; i < cases.size(); ++i) master_of(optimiser)[i] = std::bit_cast<float>(cases[i].master);
  const Floats gradient(cases.size(), 0);
  ASSERT_TRUE(optimiser.update(0, std::array{cells(gradient)})->applied);
  for (std::size_t i = 0; i < cases.size(); ++i) EXPECT_EQ(weights[i], cases[i].rounded) << i;
}

TEST(AdamW, StochasticRoundingIsUnbiasedAndRepeatable) {
  constexpr std::size_t kCells = 40000;
  const auto rounded = [](std::uint64_t seed, int updates) {
    Bf16s weights(kCells);
    AdamW optimiser = make({.rounding = Bf16Rounding::kStochastic, .rounding_seed = seed}, {{std::span(weights), 0}});
    for (std::size_t i = 0; i < kCells; ++i) {
      master_of(optimiser)[i] = std::bit_cast<float>(i % 2 == 0 ? 0x3f804000u : 0x3f800000u);
    }
    const Floats gradient(kCells, 0);
    for (int i = 0; i < updates; ++i) EXPECT_TRUE(optimiser.update(0, std::array{cells(gradient)})->applied);
    return weights;
  };
  const Bf16s weights = rounded(7, 1);
  std::size_t up = 0;
  for (std::size_t i = 0; i < kCells; ++i) {
    ASSERT_TRUE(weights[i] == 0x3f80 || (i % 2 == 0 && weights[i] == 0x3f81)) << i;  // what is representable stays
    up += weights[i] == 0x3f81 ? 1 : 0;
  }
  EXPECT_NEAR(static_cast<double>(up), 0.25 * kCells / 2, 5 * std::sqrt(0.25 * 0.75 * kCells / 2));
  EXPECT_EQ(rounded(7, 1), weights);
  EXPECT_NE(rounded(8, 1), weights);
  EXPECT_NE(rounded(7, 2), weights);
}

TEST(AdamW, KernelsGiveTheSameBits) {
#if defined(WEIGHTCAST_ADAMW_X86)
  if (instruction_set() < InstructionSet::kAvx2) GTEST_SKIP() << "no AVX2";
  const AdamWKernels plain = adamw_kernels_plain(), avx2 = adamw_kernels_avx2();
  Random random(3);
  for (std::size_t count = 1; count < 1400; count = count < 140 ? count + 1 : count + 211) {
    for (const auto weights : {WeightCells::kFloat, WeightCells::kBf16Nearest, WeightCells::kBf16Stochastic}) {
      for (const bool gradient_is_bf16 : {false, true}) {
        struct State {
          Floats master, moment1, moment2;
          Bf16s bf16;
          std::vector<std::uint64_t> changed;
          bool operator==(const State&) const = default;
        };
        State before{draw_many(random, count, 0.02), draw_many(random, count, 1e-3), {}, {}, {}};
        before.moment2 = draw_many(random, count, 1);
        for (float& value : before.moment2) value = value * value * 1e-6f;
        before.bf16 = cut_all(before.master);
        before.changed.assign((count + 63) / 64, 0);
        Floats gradient = draw_many(random, count, 1e-3);
        gradient[random.below(count)] = 1e-42f;  // denormal
        gradient[random.below(count)] = 0;
        const Bf16s gradient_bf16 = cut_all(gradient);
        const void* const g = gradient_is_bf16 ? static_cast<const void*>(gradient_bf16.data()) : gradient.data();
        const AdamWScalars scalars{.gradient_scale = 0.7f,
                                   .decay = 0.9999f,
                                   .beta1 = 0.9f,
                                   .beta1_rest = 0.1f,
                                   .beta2 = 0.999f,
                                   .beta2_rest = 0.001f,
                                   .step_size = 3e-5f,
                                   .inverse_root = 1.3f,
                                   .epsilon = 1e-8f,
                                   .rounding_key = random.next()};
        const auto run = [&](const AdamWKernels& kernels) {
          State state = before;
          kernels.update({.master = state.master.data(),
                          .moment1 = state.moment1.data(),
                          .moment2 = state.moment2.data(),
                          .gradient = g,
                          .bf16 = weights == WeightCells::kFloat ? nullptr : state.bf16.data(),
                          .changed = state.changed.data(),
                          .cells = count,
                          .first = 64},
                         scalars, gradient_is_bf16, weights);
          return state;
        };
        const State result = run(plain);
        ASSERT_EQ(run(avx2), result) << count;
        ASSERT_NE(result, before);
        ASSERT_EQ(std::bit_cast<std::uint64_t>(plain.sum_of_squares(g, gradient_is_bf16, count)),
                  std::bit_cast<std::uint64_t>(avx2.sum_of_squares(g, gradient_is_bf16, count)));
      }
    }
  }
#else
  GTEST_SKIP() << "there is one instruction set";
#endif
}

TEST(AdamW, ThreadsMakeNoDifference) {
  constexpr std::size_t kCells = 200'001;
  const auto run = [](unsigned threads) {
    Random random(4);
    Bf16s weights = cut_all(draw_many(random, kCells, 0.02));
    Floats others = draw_many(random, 70'000, 0.02);
    AdamW optimiser = make({.rounding = Bf16Rounding::kStochastic, .threads_max = threads},
                           {{std::span(weights), 0.1}, {std::span(others), 0}});
    std::vector<double> norms;
    for (int step = 0; step < 3; ++step) {
      const Floats gradient = draw_many(random, kCells, 1), gradient_2 = draw_many(random, 70'000, 1);
      norms.push_back(optimiser.update(1e-4, std::array{cells(gradient), cells(gradient_2)})->grad_norm);
    }
    return std::tuple(weights, others, norms, optimiser.take_changes(0).indices, optimiser.take_changes(1).indices);
  };
  EXPECT_EQ(run(1), run(3));
}

/// As ranks do that keep the state of a part each: the norm is that of all parts.
TEST(AdamW, PartsComeToTheBitsOfTheWhole) {
  constexpr std::size_t kFirst = AdamW::kBlockCells, kCells = 2 * kFirst + 777;
  Random random(5);
  const Floats start = draw_many(random, kCells, 1);
  Bf16s whole = cut_all(start), parts = whole;
  const AdamWOptions options{.rounding = Bf16Rounding::kStochastic, .rounding_seed = 3};
  AdamW of_whole = make(options, {{std::span(whole), 0.1}});
  AdamW of_first = make(options, {{std::span(parts).first(kFirst), 0.1, 0, 0}});
  AdamW of_rest = make(options, {{std::span(parts).subspan(kFirst), 0.1, 0, kFirst}});
  for (int update = 0; update < 3; ++update) {
    const Floats gradient = draw_many(random, kCells, 3);
    const std::vector<GradientCells> all{cells(gradient)};
    const std::vector<GradientCells> first{std::span(gradient).first(kFirst)},
        rest{std::span(gradient).subspan(kFirst)};
    double sum = 0;
    const std::vector<double> of_blocks = of_first.sums_of_squares(first).value();
    const std::vector<double> further = of_rest.sums_of_squares(rest).value();
    for (const double of_block : of_blocks) sum += of_block;
    for (const double of_block : further) sum += of_block;
    const double norm = std::sqrt(sum);
    EXPECT_EQ(of_whole.update(1e-2, all)->grad_norm, norm);
    EXPECT_EQ(of_first.update(1e-2, first, norm)->gradient_scale, of_rest.update(1e-2, rest, norm)->gradient_scale);
    EXPECT_EQ(parts, whole) << "update " << update;
  }
  EXPECT_FALSE(of_rest.update(1e-2, std::vector<GradientCells>{cells(start)}, 1.0).has_value()) << "another length";
  EXPECT_FALSE(of_rest.sums_of_squares({}).has_value());
}

template <class Cell>
void expect_changes(const ChangedCells& changed, const std::vector<Cell>& before, const std::vector<Cell>& now) {
  std::vector<std::uint32_t> expected;
  for (std::uint32_t i = 0; i < now.size(); ++i) {
    if (std::memcmp(&now[i], &before[i], sizeof(Cell)) != 0) expected.push_back(i);
  }
  ASSERT_EQ(changed.indices, expected);
  ASSERT_EQ(changed.values.size(), sizeof(Cell) * expected.size());
  for (std::size_t i = 0; i < expected.size(); ++i) {
    ASSERT_EQ(std::memcmp(changed.values.data() + sizeof(Cell) * i, &now[expected[i]], sizeof(Cell)), 0);
  }
}

TEST(AdamW, ChangedCellsAreThoseWhoseBitsDiffer) {
  Random random(5);
  Bf16s weights = cut_all(draw_many(random, 5000, 0.02));
  Floats others = draw_many(random, 1001, 1e3);
  AdamW optimiser = make({}, {{std::span(weights), 0}, {std::span(others), 0}});
  std::size_t changed_sum = 0;
  for (int step = 0; step < 20; ++step) {
    const Bf16s before = weights;
    const Floats others_before = others;
    const Floats gradient = draw_many(random, 5000, 1), gradient_2 = draw_many(random, 1001, 1);
    ASSERT_TRUE(optimiser.update(1e-5, std::array{cells(gradient), cells(gradient_2)})->applied);
    const ChangedCells changed = optimiser.take_changes(0);
    expect_changes(changed, before, weights);
    expect_changes(optimiser.take_changes(1), others_before, others);
    changed_sum += changed.indices.size();
  }
  // Both kinds occur: cells that change, and cells that do not.
  EXPECT_GT(changed_sum, 100u);
  EXPECT_LT(changed_sum, 20u * 5000 / 2);
}

TEST(AdamW, ChangesAddUpUntilTheyAreTaken) {
  Random random(6);
  Bf16s weights = cut_all(draw_many(random, 3000, 0.02));
  const Bf16s before = weights;
  AdamW optimiser = make({}, {{std::span(weights), 0}});
  for (int step = 0; step < 5; ++step) {
    const Floats gradient = draw_many(random, 3000, 1);
    ASSERT_TRUE(optimiser.update(1e-5, std::array{cells(gradient)})->applied);
  }
  const ChangedCells changed = optimiser.take_changes(0);
  Bf16s rebuilt = before;
  for (std::size_t i = 0; i < changed.indices.size(); ++i) {
    std::memcpy(&rebuilt[changed.indices[i]], changed.values.data() + 2 * i, 2);
  }
  EXPECT_EQ(rebuilt, weights);
  EXPECT_NE(before, weights);
  EXPECT_TRUE(optimiser.take_changes(0).indices.empty());
}

TEST(AdamW, ARestoredStateGoesOnBitEqual) {
  Random random(7);
  Bf16s weights = cut_all(draw_many(random, 2000, 0.02));
  Floats others = draw_many(random, 100, 1);
  const AdamWOptions options{.rounding = Bf16Rounding::kStochastic, .rounding_seed = 3};
  AdamW optimiser = make(options, {{std::span(weights), 0.1}, {std::span(others), 0}});
  const auto updates = [&random](AdamW& target, int count) {
    for (int i = 0; i < count; ++i) {
      const Floats gradient = draw_many(random, 2000, 1), gradient_2 = draw_many(random, 100, 1);
      ASSERT_TRUE(target.update(1e-4, std::array{cells(gradient), cells(gradient_2)})->applied);
    }
  };
  updates(optimiser, 5);
  const AdamWCounters counters = optimiser.counters();
  std::vector<std::vector<std::byte>> saved;
  for (const auto& part : optimiser.state()) saved.emplace_back(part.bytes.begin(), part.bytes.end());
  Bf16s weights_again = weights;
  Floats others_again = others;
  const Random random_then = random;
  updates(optimiser, 5);

  AdamW restored = make(options, {{std::span(weights_again), 0.1}, {std::span(others_again), 0}});
  const auto parts = restored.state();
  ASSERT_EQ(parts.size(), saved.size());
  for (std::size_t i = 0; i < parts.size(); ++i) {
    ASSERT_EQ(parts[i].bytes.size(), saved[i].size());
    std::memcpy(parts[i].bytes.data(), saved[i].data(), saved[i].size());
  }
  restored.restore_counters(counters);
  random = random_then;
  updates(restored, 5);
  EXPECT_EQ(weights_again, weights);
  EXPECT_EQ(others_again, others);
  const auto parts_then = optimiser.state(), parts_now = restored.state();
  for (std::size_t i = 0; i < parts_now.size(); ++i) {
    EXPECT_TRUE(std::ranges::equal(parts_now[i].bytes, parts_then[i].bytes)) << i;
  }
  EXPECT_EQ(restored.take_changes(0).indices, optimiser.take_changes(0).indices);
}

TEST(AdamW, SkipsAndCountsGradientsThatAreNotFinite) {
  Random random(8);
  Bf16s weights = cut_all(draw_many(random, 100, 0.02));
  Floats others = draw_many(random, 100, 1);
  AdamW optimiser = make({}, {{std::span(weights), 0.1}, {std::span(others), 0.1}});
  const Floats fine = draw_many(random, 100, 1);
  ASSERT_TRUE(optimiser.update(1e-2, std::array{cells(fine), cells(fine)})->applied);
  const Bf16s weights_before = weights;
  const Floats others_before = others;
  for (const float bad : {std::numeric_limits<float>::quiet_NaN(), std::numeric_limits<float>::infinity(),
                          -std::numeric_limits<float>::infinity()}) {
    for (const std::size_t where : {0u, 63u, 99u}) {
      Floats gradient = fine;
      gradient[where] = bad;
      const auto update = optimiser.update(1e-2, std::array{cells(fine), cells(gradient)});
      ASSERT_TRUE(update.has_value());
      EXPECT_FALSE(update->applied);
      EXPECT_FALSE(std::isfinite(update->grad_norm));
    }
  }
  EXPECT_EQ(weights, weights_before);
  EXPECT_EQ(others, others_before);
  EXPECT_EQ(optimiser.counters().applied, 1u);
  EXPECT_EQ(optimiser.counters().skipped, 9u);
  // The greatest finite gradients are no overflow of the norm.
  const Floats large(100, std::numeric_limits<float>::max());
  EXPECT_TRUE(optimiser.update(1e-2, std::array{cells(large), cells(large)})->applied);
  for (const float value : others) ASSERT_TRUE(std::isfinite(value));
}

/// A row of an embedding whose token no longer occurs.
TEST(AdamW, MomentsWithoutGradientsEndAtZeroAndNotAsDenormals) {
  Floats weights(100, 1);
  AdamW optimiser = make({.beta2 = 0.9}, {{std::span(weights), 0}});
  Floats gradient(100, 1);
  ASSERT_TRUE(optimiser.update(1e-3, std::array{cells(gradient)})->applied);
  gradient.assign(100, 0);
  for (int step = 0; step < 1500; ++step) {
    ASSERT_TRUE(optimiser.update(1e-3, std::array{cells(gradient)})->applied);
    for (const auto& part : optimiser.state()) {
      if (part.kind == Kind::kChanged) continue;
      const auto* moments = reinterpret_cast<const float*>(part.bytes.data());
      for (std::size_t i = 0; i < 100; ++i) ASSERT_NE(std::fpclassify(moments[i]), FP_SUBNORMAL) << step;
    }
  }
  for (const auto& part : optimiser.state()) {
    for (const std::byte byte : part.bytes) ASSERT_TRUE(part.kind == Kind::kChanged || byte == std::byte{0});
  }
}

TEST(AdamW, LeavesAParameterWithoutAGradientAsItIs) {
  Random random(9);
  Floats first = draw_many(random, 100, 1), second = first;
  const Floats before = first, gradient = draw_many(random, 100, 1), none;
  AdamW optimiser = make({}, {{std::span(first), 0.1}, {std::span(second), 0.1}});
  ASSERT_TRUE(optimiser.update(1e-2, std::array{cells(gradient), cells(none)})->applied);
  EXPECT_NE(first, before);
  EXPECT_EQ(second, before);
}

TEST(AdamW, RefusesBadInput) {
  Floats weights(10);
  const auto refusal = [&](const AdamWOptions& options, double decay = 0) {
    return AdamW::make(options, {{std::span(weights), decay}}).error().detail;
  };
  EXPECT_EQ(refusal({.beta1 = 1}), "optimiser: beta1 is 1, not in [0, 1)");
  EXPECT_EQ(refusal({.beta2 = std::nan("")}), "optimiser: beta2 is nan, not in [0, 1)");
  EXPECT_EQ(refusal({.epsilon = 0}), "optimiser: epsilon is 0, not in [1.2e-38, 1]");
  EXPECT_EQ(refusal({.grad_norm_max = -1}), "optimiser: grad_norm_max is -1: give a positive one, or 0 for none");
  EXPECT_EQ(refusal({}, -0.5), "optimiser: the weight decay of parameter 0 is -0.5");
  AdamW optimiser = make({}, {{std::span(weights), 0}});
  const Floats gradient(9);
  EXPECT_EQ(optimiser.update(1e-3, {}).error().detail, "optimiser: 0 gradients for 1 parameters");
  EXPECT_EQ(optimiser.update(1e-3, std::array{cells(gradient)}).error().detail,
            "optimiser: gradient 0 has 9 cells, its parameter 10");
  EXPECT_EQ(optimiser.update(std::nan(""), std::array{cells(weights)}).error().detail,
            "optimiser: the learning rate is nan");
}

}  // namespace
}  // namespace weightcast
