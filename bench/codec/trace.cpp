#include "bench/codec/trace.h"

#include <algorithm>
#include <bit>

#include "base/parallel.h"
#include "base/result.h"
#include "bench/codec/cells.h"

// Determinism. Random numbers come from a counter (SplitMix64 addressed by position), so a cell's history needs no
// state of its neighbours. Normal deviates are a count of random bits, made smooth by a dither: integers, then one
// multiplication. After that only +, -, *, / and square root occur, which IEEE 754 rounds exactly; this file is built
// with contraction off, because a fused multiply-add rounds once where two operations round twice.

namespace weightcast::bench {
namespace {

constexpr std::uint64_t kGolden = 0x9e3779b97f4a7c15;

// Steele, Lea and Flood, "Fast splittable pseudorandom number generators" (2014): the variant of table 1 that is
// known as SplitMix64.
constexpr std::uint64_t mix(std::uint64_t z) {
  z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9;
  z = (z ^ (z >> 27)) * 0x94d049bb133111eb;
  return z ^ (z >> 31);
}

constexpr std::uint64_t draw(std::uint64_t key, std::uint64_t index) { return mix(key + (index + 1) * kGolden); }

enum Stream : std::uint64_t {
  kWeight,
  kFirstMoment,
  kSecondMoment,
  kTensorScale,
  kRowScale,
  kRowSeen,
  kGradient,  // and every number above: one stream per step
};

// A stationary AdamW state under gradients of standard deviation 1: the moments' standard deviations are
// sqrt((1 - beta1) / (1 + beta1)) and, around a mean of 1, sqrt(2 (1 - beta2) / (1 + beta2)).
struct Stationary {
  float first_sd;
  float second_sd;

  explicit Stationary(const AdamW& adamw)
      : first_sd(std::sqrt((1.0f - adamw.beta1) / (1.0f + adamw.beta1))),
        second_sd(std::sqrt(2.0f * (1.0f - adamw.beta2) / (1.0f + adamw.beta2))) {}
};

constexpr float kWeightSd = 0.02f;
constexpr float kNormSd = 0.05f;
// Of the embedding's rows, one in four belongs to a token that the run has ever seen.
constexpr std::uint64_t kRowsPerSeenRow = 4;
// F8 trainers scale a tensor into the format's range; a power of two brings 0.02 to 41 and the norms to 64.
constexpr float kF8WeightScale = 2048.0f;
constexpr float kF8NormScale = 64.0f;

enum class Role { kEmbedding, kNorm, kMatrix };

struct Tensor {
  Role role;
  std::uint64_t rows;
  std::uint64_t columns;
  std::uint64_t key;
};

// A power of two between 2^-reach and 2^reach, times a factor in [1, 2).
float scale_draw(std::uint64_t bits, int reach) {
  const int exponent = static_cast<int>(bits % static_cast<std::uint64_t>(2 * reach + 1)) - reach;
  const float factor = 1.0f + static_cast<float>(bits >> 41) * 0x1p-23f;
  return std::ldexp(factor, exponent);
}

// Gradients of RL fine-tuning are small: 2^-22 to 2^-15 per tensor, and rows within 2^-3 to 2^4 of that, so that the
// quietest rows feel epsilon.
float gradient_sd(const Tensor& tensor, std::uint64_t row) {
  if (tensor.role == Role::kEmbedding && draw(mix(tensor.key + kRowSeen), row) % kRowsPerSeenRow != 0) return 0.0f;
  return 0x1p-19f * scale_draw(draw(mix(tensor.key + kTensorScale), 0), 3) *
         scale_draw(draw(mix(tensor.key + kRowScale), row), 3);
}

/// Rows [first, last) of one tensor, from their initial weights to both snapshots.
void run_rows(const TraceSpec& spec, const Tensor& tensor, std::uint64_t first, std::uint64_t last, std::byte* base,
              std::byte* result) {
  const Stationary stationary(spec.adamw);
  const bool is_norm = tensor.role == Role::kNorm;
  const CellKind kind = cell_kind_of(spec.dtype);
  const float scale = kind != CellKind::kF8E4M3 ? 1.0f : is_norm ? kF8NormScale : kF8WeightScale;
  const std::uint64_t weight_key = mix(tensor.key + kWeight);
  const std::uint64_t first_key = mix(tensor.key + kFirstMoment);
  const std::uint64_t second_key = mix(tensor.key + kSecondMoment);

  for (std::uint64_t row = first; row < last; ++row) {
    const float sd = gradient_sd(tensor, row);
    for (std::uint64_t i = row * tensor.columns; i < (row + 1) * tensor.columns; ++i) {
      AdamWCell cell;
      cell.weight = is_norm ? 1.0f + kNormSd * normal_draw(weight_key, i) : kWeightSd * normal_draw(weight_key, i);
      store_float(kind, base, i, cell.weight * scale);
      if (sd > 0.0f) {
        cell.first_moment = sd * stationary.first_sd * normal_draw(first_key, i);
        cell.second_moment = sd * sd * (1.0f + stationary.second_sd * normal_draw(second_key, i));
        for (unsigned step = 0; step < spec.steps; ++step) {
          adamw_step(spec.adamw, sd * normal_draw(mix(tensor.key + kGradient + step), i), cell);
        }
      }
      store_float(kind, result, i, cell.weight * scale);
    }
  }
}

class Builder {
 public:
  Builder(const TraceSpec& spec, Trace& trace) : spec_(spec), trace_(trace) {}

  void add(std::string name, Role role, std::vector<std::uint64_t> shape) {
    const bool vector_like = shape.size() == 1;
    const std::uint64_t rows = vector_like ? 1 : shape[0];
    const std::uint64_t columns = shape.back();
    tensors_.push_back({role, rows, columns, mix(mix(spec_.seed) + (tensors_.size() + 1) * kGolden)});
    const std::uint64_t size_bytes = rows * columns * cell_bytes_of(spec_.dtype);
    trace_.tensors.push_back({std::move(name), spec_.dtype, std::move(shape), offset_bytes_, size_bytes});
    offset_bytes_ += size_bytes;
    trace_.cells += rows * columns;
  }

  [[nodiscard]] const std::vector<Tensor>& tensors() const { return tensors_; }
  [[nodiscard]] std::uint64_t size_bytes() const { return offset_bytes_; }

 private:
  const TraceSpec& spec_;
  Trace& trace_;
  std::vector<Tensor> tensors_;
  std::uint64_t offset_bytes_ = 0;
};

void lay_out(const TraceSpec& spec, Trace& trace, Builder& builder) {
  // The widest power of two of which one layer (4 d^2 + d) is at most an eighth of the trace, as far as 2048.
  std::uint64_t width = 16;
  while (width < 2048 && 8 * (16 * width * width + 2 * width) <= spec.cells_min) width *= 2;

  if (spec.model == TraceModel::kMatrix) {
    builder.add("weight", Role::kMatrix, {(spec.cells_min + width - 1) / width, width});
    return;
  }
  builder.add("model.embed_tokens.weight", Role::kEmbedding,
              {std::max<std::uint64_t>(1, spec.cells_min / 8 / width), width});
  for (unsigned layer = 0; layer == 0 || trace.cells < spec.cells_min; ++layer) {
    const std::string prefix = "model.layers." + std::to_string(layer) + ".";
    builder.add(prefix + "input_layernorm.weight", Role::kNorm, {width});
    builder.add(prefix + "self_attn.o_proj.weight", Role::kMatrix, {width, width});
    builder.add(prefix + "mlp.up_proj.weight", Role::kMatrix, {3 * width, width});
  }
}

/// To the nearest, ties to even; a magnitude beyond the greatest one overflows into the exponent.
template <typename Cell, unsigned kExponentBits, unsigned kFractionBits>
Cell to_small_float(float value) {
  constexpr unsigned kDropped = 23 - kFractionBits;
  constexpr int kBias = (1 << (kExponentBits - 1)) - 1;
  const std::uint32_t bits = std::bit_cast<std::uint32_t>(value);
  const auto sign = static_cast<Cell>((bits >> 31) << (kExponentBits + kFractionBits));
  const float magnitude = std::fabs(value);
  if (magnitude < std::ldexp(1.0f, 1 - kBias)) {
    // Subnormals are multiples of the least one. Adding 2^23 leaves no fraction bits, so the addition itself rounds.
    const float units = std::ldexp(magnitude, kBias - 1 + int{kFractionBits}) + 0x1p23f - 0x1p23f;
    return static_cast<Cell>(sign | static_cast<Cell>(units));
  }
  const auto magnitude_bits = std::bit_cast<std::uint32_t>(magnitude);
  const std::uint32_t round = (1u << (kDropped - 1)) - 1 + ((magnitude_bits >> kDropped) & 1);
  constexpr std::uint32_t kRebias = (127u - kBias) << kFractionBits;
  return static_cast<Cell>(sign | (((magnitude_bits + round) >> kDropped) - kRebias));
}

}  // namespace

std::uint16_t to_bf16(float value) {
  const auto bits = std::bit_cast<std::uint32_t>(value);
  const std::uint32_t round = 0x7fff + ((bits >> 16) & 1);
  return static_cast<std::uint16_t>((bits + round) >> 16);
}

std::uint16_t to_f16(float value) { return to_small_float<std::uint16_t, 5, 10>(value); }

std::uint8_t to_f8_e4m3(float value) { return to_small_float<std::uint8_t, 4, 3>(std::clamp(value, -448.0f, 448.0f)); }

void store_float(CellKind kind, std::byte* cells, std::size_t index, float value) {
  switch (kind) {
    case CellKind::kBf16: return store_cell(cells, index, to_bf16(value));
    case CellKind::kF16: return store_cell(cells, index, to_f16(value));
    case CellKind::kF8E4M3: return store_cell(cells, index, to_f8_e4m3(value));
    default: return store_cell(cells, index, value);
  }
}

float normal_draw(std::uint64_t key, std::uint64_t index) {
  // The count of ones among 64 bits has variance 16; the two uniforms spread it over a triangle of variance 1/6, so
  // that the density is continuous. 4.0207794 = sqrt(16 + 1/6).
  constexpr double kScale = 0x1p-32 / 4.020779360604941;
  const std::uint64_t dither = draw(key, 2 * index + 1);
  const std::int64_t count = std::popcount(draw(key, 2 * index)) - 32;
  const auto spread = static_cast<std::int64_t>((dither >> 32) + (dither & 0xffffffff)) - (std::int64_t{1} << 32);
  return static_cast<float>(static_cast<double>(count * (std::int64_t{1} << 32) + spread) * kScale);
}

std::vector<TraceSpec> standard_traces(std::uint64_t cells_min, std::uint64_t seed) {
  const auto spec = [&](std::string name, TraceModel model, std::string dtype, float learning_rate, unsigned steps) {
    AdamW adamw;
    adamw.learning_rate = learning_rate;
    return TraceSpec{std::move(name), model, std::move(dtype), adamw, steps, cells_min, seed};
  };
  using enum TraceModel;
  return {
      spec("bf16-lr1e-6-1step", kDecoder, "BF16", 1e-6f, 1),
      spec("bf16-lr1e-6-10steps", kDecoder, "BF16", 1e-6f, 10),
      spec("bf16-lr3e-6-1step", kDecoder, "BF16", 3e-6f, 1),
      spec("bf16-lr3e-6-10steps", kDecoder, "BF16", 3e-6f, 10),
      spec("bf16-lr1e-5-1step", kDecoder, "BF16", 1e-5f, 1),
      spec("bf16-lr1e-5-10steps", kDecoder, "BF16", 1e-5f, 10),
      spec("bf16-matrix-lr1e-6", kMatrix, "BF16", 1e-6f, 1),
      spec("f32-lr1e-6-1step", kDecoder, "F32", 1e-6f, 1),
      spec("f8-lr1e-5-10steps", kDecoder, "F8_E4M3", 1e-5f, 10),
  };
}

Trace make_trace(const TraceSpec& spec, unsigned threads) {
  Trace trace;
  trace.name = spec.name;
  Builder builder(spec, trace);
  lay_out(spec, trace, builder);
  trace.base.resize(builder.size_bytes());
  // The allocator would put a second 128 MiB right behind the first, and their page of bookkeeping: then each new cell
  // and its old one share a place in the first-level cache of AMD's processors (their addresses' bits 27 and 12
  // differ), and the encoder takes a quarter longer. Where snapshots really lie, one pair of places in hundreds is like
  // that.
  constexpr std::size_t kPageBytes = 4096;
  trace.result.reserve(builder.size_bytes() + kPageBytes);
  trace.result.resize(builder.size_bytes());

  struct Range {
    std::size_t tensor;
    std::uint64_t first_row;
    std::uint64_t last_row;
  };
  constexpr std::uint64_t kRangeCells = 1 << 16;
  std::vector<Range> ranges;
  for (std::size_t t = 0; t < builder.tensors().size(); ++t) {
    const Tensor& tensor = builder.tensors()[t];
    const std::uint64_t rows_per_range = std::max<std::uint64_t>(1, kRangeCells / tensor.columns);
    for (std::uint64_t row = 0; row < tensor.rows; row += rows_per_range) {
      ranges.push_back({t, row, std::min(tensor.rows, row + rows_per_range)});
    }
  }
  for_each_index(ranges.size(), threads, [&](std::size_t r) {
    const Range& range = ranges[r];
    const std::uint64_t offset = trace.tensors[range.tensor].offset_bytes;
    run_rows(spec, builder.tensors()[range.tensor], range.first_row, range.last_row, trace.base.data() + offset,
             trace.result.data() + offset);
  });
  return trace;
}

}  // namespace weightcast::bench
