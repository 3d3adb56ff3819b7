#include "worker/engine/kernels/kernels.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <string_view>
#include <vector>

#include "base/random.h"

namespace weightcast {
namespace {

using kernels::Kernels;
using kernels::LinearTask;

std::vector<float> drawn(Random& random, std::size_t count) {
  std::vector<float> result(count);
  for (float& value : result) value = static_cast<float>(2 * random.unit() - 1);
  return result;
}

std::vector<std::uint16_t> cut(const std::vector<float>& values) {
  std::vector<std::uint16_t> result;
  for (const float value : values) {
    std::uint32_t bits = 0;
    std::memcpy(&bits, &value, 4);
    result.push_back(static_cast<std::uint16_t>(bits >> 16));
  }
  return result;
}

float wide(std::uint16_t half) {
  const std::uint32_t bits = std::uint32_t{half} << 16;
  float value = 0;
  std::memcpy(&value, &bits, 4);
  return value;
}

TEST(Kernels, MultiplyAsThePlainestLoopAndAlikeForAnyRowsAndOutputs) {
  for (const Kernels* kernel : kernels::available()) {
    Random random(1);
    for (const std::size_t size : {1, 7, 16, 33, 64, 100, 128, 129}) {
      for (const std::size_t rows : {1, 2, 5, 6, 13, 17, 33, 50}) {
        const std::size_t outputs = 1 + random.below(100);
        const auto x = drawn(random, rows * size);
        const auto w = drawn(random, outputs * size);
        const auto bias = drawn(random, outputs);
        const auto narrow = cut(w);
        for (const bool bfloat16 : {false, true}) {
          const auto compute = bfloat16 ? kernel->linear_bfloat16 : kernel->linear_float;
          LinearTask task;
          task.x = x.data();
          task.rows = rows;
          task.x_stride = task.weight_stride = task.size = size;
          task.weight = bfloat16 ? static_cast<const void*>(narrow.data()) : w.data();
          task.bias = bias.data();
          task.output_end = outputs;
          std::vector<float> y(rows * outputs, 77);
          task.y = y.data();
          task.y_stride = outputs;
          compute(task);
          for (std::size_t row = 0; row < rows; ++row) {
            for (std::size_t output = 0; output < outputs; ++output) {
              double sum = bias[output];
              for (std::size_t k = 0; k < size; ++k) {
                const std::size_t cell = output * size + k;
                sum += static_cast<double>(x[row * size + k]) * (bfloat16 ? wide(narrow[cell]) : w[cell]);
              }
              const float whole = y[row * outputs + output];
              ASSERT_NEAR(whole, sum, bfloat16 ? 5e-5 : 1e-5) << kernel->name;  // AMX splits rows
              // The same element alone.
              LinearTask single = task;
              float alone = 0;
              single.x += row * size;
              single.rows = 1;
              single.output_begin = output;
              single.output_end = output + 1;
              single.y = &alone - output;
              compute(single);
              ASSERT_EQ(alone, whole) << kernel->name;
            }
          }
        }
      }
    }
  }
}

TEST(Kernels, AreNearWhatTheyApproximate) {
  for (const Kernels* kernel : kernels::available()) {
    Random random(2);
    for (const std::size_t size : {1, 5, 16, 31, 1000}) {
      const auto x = drawn(random, size);
      const auto up = drawn(random, size);

      std::vector<float> normal(size);
      kernel->rms_norm(normal.data(), x.data(), up.data(), size, 1e-6F);
      double squares = 0;
      for (const float value : x) squares += static_cast<double>(value) * value;
      const double scale = 1 / std::sqrt(squares / static_cast<double>(size) + 1e-6);
      for (std::size_t i = 0; i < size; ++i) EXPECT_NEAR(normal[i], x[i] * scale * up[i], 1e-6);

      std::vector<float> gate = x;
      for (float& value : gate) value *= 20;
      const std::vector<float> before = gate;
      kernel->swiglu(gate.data(), up.data(), size);
      for (std::size_t i = 0; i < size; ++i) {
        EXPECT_NEAR(gate[i], before[i] / (1 + std::exp(-static_cast<double>(before[i]))) * up[i], 1e-5);
      }

      std::vector<float> values = before;
      const float most = kernel->greatest(values.data(), size);
      EXPECT_EQ(most, *std::max_element(values.begin(), values.end()));
      const float sum = kernel->exponentials(values.data(), size, most, 3);
      double expected = 0;
      for (std::size_t i = 0; i < size; ++i) {
        const double exact = std::exp(3 * (static_cast<double>(before[i]) - most));
        // The rounding of the argument counts as well.
        const double tolerance = 1e-6 + 1.2e-7 * std::abs(std::log(exact + 1e-300));
        EXPECT_NEAR(values[i], exact, tolerance * exact + 1e-37);
        expected += exact;
      }
      EXPECT_NEAR(sum, expected, 1e-5 * expected);

      const std::size_t count = 13;
      const auto rows = drawn(random, count * size);
      const auto weights = drawn(random, count);
      const auto narrow = cut(rows);
      for (const bool bfloat16 : {false, true}) {
        std::vector<float> out = x;
        (bfloat16 ? kernel->add_weighted_bfloat16 : kernel->add_weighted_float)(
            out.data(), weights.data(), bfloat16 ? static_cast<const void*>(narrow.data()) : rows.data(), count, size);
        for (std::size_t i = 0; i < size; ++i) {
          double exact = x[i];
          for (std::size_t k = 0; k < count; ++k) {
            exact += static_cast<double>(weights[k]) * (bfloat16 ? wide(narrow[k * size + i]) : rows[k * size + i]);
          }
          EXPECT_NEAR(out[i], exact, 1e-5);
        }
      }
    }
  }
}

TEST(Kernels, MakeNothingOfWhatIsFarBelow) {
  for (const Kernels* kernel : kernels::available()) {
    std::vector<float> values{0, -200, -std::numeric_limits<float>::infinity(), -80};
    kernel->exponentials(values.data(), values.size(), 0, 1);
    EXPECT_EQ(values[0], 1);
    EXPECT_EQ(values[1], 0);
    EXPECT_EQ(values[2], 0);
    EXPECT_GT(values[3], 0);
  }
}

TEST(Kernels, RoundToBfloat16TiesToEven) {
  for (const Kernels* kernel : kernels::available()) {
    const std::vector<float> values{1.0F, 1.00390625F, 1.01171875F, -3.0e38F, std::numeric_limits<float>::quiet_NaN()};
    std::vector<std::uint16_t> bits(values.size());
    kernel->to_bfloat16(bits.data(), values.data(), values.size());
    EXPECT_EQ(wide(bits[0]), 1.0F);
    EXPECT_EQ(wide(bits[1]), 1.0F);
    EXPECT_EQ(wide(bits[2]), 1.015625F);
    EXPECT_NEAR(wide(bits[3]), -3.0e38, 1e36);
    EXPECT_TRUE(std::isnan(wide(bits[4])));
    std::vector<float> back(values.size());
    kernel->from_bfloat16(back.data(), bits.data(), 3);
    EXPECT_EQ(back[2], 1.015625F);
  }
}

}  // namespace
}  // namespace weightcast
