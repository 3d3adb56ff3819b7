#pragma once

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "patch/codec/cell.h"
#include "patch/snapshot/tensor.h"

namespace weightcast::bench {

/// AdamW as trainers run it late in a run: FP32 state, and so many steps taken that both bias corrections are one.
/// Loshchilov and Hutter, arXiv 1711.05101, algorithm 2.
struct AdamW {
  float learning_rate = 1e-6f;
  float beta1 = 0.9f;
  float beta2 = 0.999f;
  float epsilon = 1e-8f;
  float weight_decay = 0.0f;
};

/// One master weight with its moments.
struct AdamWCell {
  float weight = 0;
  float first_moment = 0;
  float second_moment = 0;
};

/// One optimiser step of one cell. Uses only operations that IEEE 754 rounds exactly (square root included), so that
/// every machine gets the same bits as long as the compiler does not fuse multiplications with additions.
inline void adamw_step(const AdamW& adamw, float gradient, AdamWCell& cell) {
  cell.first_moment = adamw.beta1 * cell.first_moment + (1.0f - adamw.beta1) * gradient;
  cell.second_moment = adamw.beta2 * cell.second_moment + (1.0f - adamw.beta2) * gradient * gradient;
  cell.weight -= adamw.learning_rate * adamw.weight_decay * cell.weight;
  cell.weight -= adamw.learning_rate * (cell.first_moment / (std::sqrt(cell.second_moment) + adamw.epsilon));
}

enum class TraceModel {
  /// A decoder: an embedding of which most rows never see a gradient, then layers of a norm near one and two matrices.
  kDecoder,
  /// One matrix of independent weights: the textbook case, for comparing with closed formulas.
  kMatrix,
};

/// Everything that a trace depends on.
struct TraceSpec {
  std::string name;
  TraceModel model = TraceModel::kDecoder;
  std::string dtype = "BF16";  ///< of the weights that the trainer publishes: BF16, F32 or F8_E4M3
  AdamW adamw;
  /// Optimiser steps between base and result.
  unsigned steps = 1;
  /// The trace has at least this many, and at most an eighth more (from 4096 on).
  std::uint64_t cells_min = 0;
  std::uint64_t seed = 1;
};

/// Two consecutive publications. `tensors` lie back to back from offset 0 in both.
struct Trace {
  std::string name;
  std::vector<TensorInfo> tensors;
  std::vector<std::byte> base;
  std::vector<std::byte> result;
  std::uint64_t cells = 0;
};

/// The traces of the bench: BF16 at learning rates 1e-6, 3e-6 and 1e-5 with 1 and 10 steps per patch, the textbook
/// matrix, and one trace each for F32 and F8_E4M3.
[[nodiscard]] std::vector<TraceSpec> standard_traces(std::uint64_t cells_min, std::uint64_t seed);

/// Runs the optimiser. Each cell depends on `spec` and on its own position alone, so the bytes are the same for every
/// number of threads and on every machine. Memory: base and result, and nothing that grows with them.
[[nodiscard]] Trace make_trace(const TraceSpec& spec, unsigned threads);

/// FP32 to BF16, to F16 (of magnitudes below 65504) and to F8_E4M3 (the "fn" kind: no infinity, saturating at 448), to
/// the nearest, ties to even. Finite inputs only: weights.
[[nodiscard]] std::uint16_t to_bf16(float value);
[[nodiscard]] std::uint16_t to_f16(float value);
[[nodiscard]] std::uint8_t to_f8_e4m3(float value);

/// Stores `value` as cell `index` of that kind: one of these three, or F32.
void store_float(CellKind kind, std::byte* cells, std::size_t index, float value);

/// Draw `index` of the stream `key`: standard normal to within an excess kurtosis of -0.03, never beyond 8.3.
[[nodiscard]] float normal_draw(std::uint64_t key, std::uint64_t index);

}  // namespace weightcast::bench
