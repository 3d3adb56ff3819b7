#include "bench/codec/trace.h"

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <cstring>
#include <limits>

#include "bench/codec/cells.h"

namespace weightcast::bench {
namespace {

TraceSpec tiny(const char* name) {
  for (const TraceSpec& spec : standard_traces(20'000, 7)) {
    if (spec.name == name) return spec;
  }
  ADD_FAILURE() << "no trace " << name;
  return {};
}

// Any change here means that figures measured before and after are of different weights.
TEST(Trace, IsTheSameBytesOnEveryMachine) {
  struct Expected {
    const char* name;
    const char* base;
    const char* result;
  };
  const Expected expected[] = {
      {"bf16-lr1e-6-1step", "357b6328db0a69ac0797f2dd54b89064", "00355c9e7bc25950284ef246e7e15bef"},
      {"bf16-lr1e-5-10steps", "357b6328db0a69ac0797f2dd54b89064", "610120385a2a135b95a757996ed0981a"},
      {"f32-lr1e-6-1step", "d18594fae982d2ea149cc14118d29fdf", "9dea6323a985649dfbdc2df4d032df3f"},
      {"f8-lr1e-5-10steps", "daf1b4b3635104e1c3368ba32372a476", "71bd0585de1713f3ce4074c241d5f379"},
  };
  for (const Expected& e : expected) {
    const Trace trace = make_trace(tiny(e.name), 1);
    EXPECT_EQ(checksum_of(trace.base).hex(), e.base) << e.name;
    EXPECT_EQ(checksum_of(trace.result).hex(), e.result) << e.name;
  }
}

TEST(Trace, IsTheSameForEveryNumberOfThreads) {
  TraceSpec spec = tiny("bf16-lr1e-5-1step");
  spec.cells_min = 300'000;  // several ranges
  const Trace one = make_trace(spec, 1);
  for (const unsigned threads : {2u, 5u}) {
    const Trace many = make_trace(spec, threads);
    EXPECT_EQ(one.base, many.base);
    EXPECT_EQ(one.result, many.result);
  }
}

TEST(Trace, DescribesTensorsThatCoverTheSnapshotBackToBack) {
  for (const TraceSpec& spec : standard_traces(20'000, 7)) {
    const Trace trace = make_trace(spec, 2);
    std::uint64_t offset_bytes = 0;
    std::uint64_t cells = 0;
    for (const TensorInfo& tensor : trace.tensors) {
      EXPECT_EQ(tensor.offset_bytes, offset_bytes);
      std::uint64_t shape_cells = 1;
      for (const std::uint64_t d : tensor.shape) shape_cells *= d;
      EXPECT_EQ(tensor.size_bytes, shape_cells * cell_bytes_of(tensor.dtype));
      offset_bytes += tensor.size_bytes;
      cells += shape_cells;
    }
    EXPECT_EQ(offset_bytes, trace.base.size());
    EXPECT_EQ(offset_bytes, trace.result.size());
    EXPECT_EQ(cells, trace.cells);
    EXPECT_GE(cells, spec.cells_min);
    EXPECT_LE(cells, spec.cells_min * 9 / 8);
  }
}

TEST(Trace, LeavesRowsOfUnseenTokensAlone) {
  const Trace trace = make_trace(tiny("f32-lr1e-6-1step"), 1);
  const TensorInfo& embedding = trace.tensors[0];
  ASSERT_EQ(embedding.shape.size(), 2u);
  const std::uint64_t row_bytes = embedding.size_bytes / embedding.shape[0];
  std::uint64_t same = 0;
  for (std::uint64_t row = 0; row < embedding.shape[0]; ++row) {
    if (std::memcmp(&trace.base[row * row_bytes], &trace.result[row * row_bytes], row_bytes) == 0) ++same;
  }
  EXPECT_GT(same, embedding.shape[0] / 2);
  EXPECT_LT(same, embedding.shape[0]);
}

TEST(Trace, MovesWeightsByWhatStationaryMomentsGive) {
  TraceSpec spec = tiny("f32-lr1e-6-1step");
  spec.cells_min = 200'000;
  spec.model = TraceModel::kMatrix;
  spec.adamw.epsilon = 0;
  // Large steps, or rounding to FP32 would show.
  spec.adamw.learning_rate = 1e-2f;
  const Trace trace = make_trace(spec, 2);
  double weights = 0;
  double moves = 0;
  for (std::uint64_t i = 0; i < trace.cells; ++i) {
    const auto before = load_cell<float>(trace.base.data(), i);
    const auto after = load_cell<float>(trace.result.data(), i);
    weights += static_cast<double>(before) * before;
    moves += static_cast<double>(after - before) * (after - before);
  }
  const auto cells = static_cast<double>(trace.cells);
  EXPECT_NEAR(std::sqrt(weights / cells), 0.02, 0.0002);
  // The first moment's deviation, sqrt(0.1 / 1.9), over the gradient's.
  EXPECT_NEAR(std::sqrt(moves / cells), 1e-2 * 0.2294, 1e-2 * 0.003);
}

// The paper's recursion in double precision, bias corrections gone.
TEST(AdamWStep, AgreesWithAScalarReferenceInDoublePrecision) {
  AdamW adamw;
  adamw.learning_rate = 1e-3f;
  adamw.weight_decay = 0.1f;
  AdamWCell cell{0.5f, 0.01f, 0.0004f};
  double w = 0.5;
  double m = 0.01;
  double v = 0.0004;
  for (int step = 0; step < 200; ++step) {
    const double g = 0.02 * std::sin(step * 0.7);
    adamw_step(adamw, static_cast<float>(g), cell);
    m = 0.9 * m + 0.1 * g;
    v = 0.999 * v + 0.001 * g * g;
    w = w - 1e-3 * 0.1 * w - 1e-3 * m / (std::sqrt(v) + 1e-8);
  }
  EXPECT_NEAR(cell.weight, w, 1e-5);
  EXPECT_NEAR(cell.first_moment, m, 1e-6);
  EXPECT_NEAR(cell.second_moment, v, 1e-7);
}

TEST(NormalDraw, HasTheMomentsOfTheStandardNormal) {
  constexpr int kDraws = 400'000;
  double sum1 = 0;
  double sum2 = 0;
  double sum4 = 0;
  double within_one = 0;
  for (int i = 0; i < kDraws; ++i) {
    const double x = normal_draw(11, static_cast<std::uint64_t>(i));
    sum1 += x;
    sum2 += x * x;
    sum4 += x * x * x * x;
    if (std::fabs(x) < 1) ++within_one;
  }
  EXPECT_NEAR(sum1 / kDraws, 0, 0.01);
  EXPECT_NEAR(sum2 / kDraws, 1, 0.01);
  EXPECT_NEAR(sum4 / kDraws, 2.97, 0.06);
  EXPECT_NEAR(within_one / kDraws, 0.6827, 0.004);
}

TEST(ToBf16, RoundsToTheNearestAndTiesToEven) {
  const auto convert = [](std::uint32_t bits) { return to_bf16(std::bit_cast<float>(bits)); };
  EXPECT_EQ(convert(0x3f800000), 0x3f80);  // 1.0
  EXPECT_EQ(convert(0x3f807fff), 0x3f80);  // just below the middle
  EXPECT_EQ(convert(0x3f808000), 0x3f80);  // the middle, even below
  EXPECT_EQ(convert(0x3f818000), 0x3f82);  // the middle, even above
  EXPECT_EQ(convert(0xbf808001), 0xbf81);
  EXPECT_EQ(convert(0x3fffffff), 0x4000);  // carries into the exponent
  EXPECT_EQ(convert(0x80000000), 0x8000);
}

TEST(ToF8E4M3, RoundsToTheNearestRepresentableNumber) {
  // Every finite code and its value, from the format's definition (OCP 8-bit floating point, revision 1.0).
  const auto value_of = [](unsigned code) {
    const int exponent = static_cast<int>(code >> 3);
    const int mantissa = static_cast<int>(code & 7);
    return exponent == 0 ? std::ldexp(mantissa, -9) : std::ldexp(8 + mantissa, exponent - 10);
  };
  for (unsigned code = 0; code < 0x7f; ++code) {
    const double value = value_of(code);
    EXPECT_EQ(to_f8_e4m3(static_cast<float>(value)), code);
    EXPECT_EQ(to_f8_e4m3(static_cast<float>(-value)), code | 0x80);
    if (code == 0x7e) break;
    const double middle = (value + value_of(code + 1)) / 2;
    EXPECT_EQ(to_f8_e4m3(static_cast<float>(middle)), (code + 1) & ~1u) << "a tie above " << value;
    EXPECT_EQ(to_f8_e4m3(std::nextafterf(static_cast<float>(middle), 0.0f)), code);
    EXPECT_EQ(to_f8_e4m3(std::nextafterf(static_cast<float>(middle), 1000.0f)), code + 1);
  }
  EXPECT_EQ(to_f8_e4m3(1e6f), 0x7e);  // 448, the largest
}

}  // namespace
}  // namespace weightcast::bench
