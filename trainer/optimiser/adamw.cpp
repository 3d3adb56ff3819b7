#include "trainer/optimiser/adamw.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <limits>
#include <numeric>

#include "base/parallel.h"
#include "base/random.h"
#include "trainer/optimiser/adamw_kernels.h"

namespace weightcast {
namespace {

// Small enough that threads end together, large enough that a block's sum costs nothing. The norm depends on it.
constexpr std::size_t kBlockCells = AdamW::kBlockCells;
static_assert(kBlockCells % 64 == 0, "two threads would write one word of changed bits");

Error refuse(std::string why) { return fail(Errc::kInvalidArgument, Op::kConfigure, "optimiser: " + std::move(why)); }

std::size_t cells_of(const auto& cells) {
  return std::visit([](const auto& span) { return span.size(); }, cells);
}

bool is_bf16(const GradientCells& cells) { return std::holds_alternative<std::span<const Bf16Bits>>(cells); }

/// Those from `first` on.
const void* cells_at(const GradientCells& cells, std::size_t first) {
  return std::visit([&](const auto& span) -> const void* { return span.data() + first; }, cells);
}

/// Another one for each update and each tensor.
std::uint64_t rounding_key(std::uint64_t seed, std::uint64_t update, std::size_t tensor) {
  return Random(Random(Random(seed).next() ^ update).next() ^ tensor).next();
}

MutableBytes bytes_of(auto& cells) { return std::as_writable_bytes(std::span(cells)); }

}  // namespace

Result<AdamW> AdamW::make(const AdamWOptions& options, std::vector<AdamWParameter> parameters) {
  const auto is_share = [](double value) { return value >= 0 && value < 1; };
  if (!is_share(options.beta1)) return refuse(fmt::format("beta1 is {}, not in [0, 1)", options.beta1));
  if (!is_share(options.beta2)) return refuse(fmt::format("beta2 is {}, not in [0, 1)", options.beta2));
  // Below this FP32 has no such number, and a cell without a gradient so far would become 0/0.
  if (!(options.epsilon >= std::numeric_limits<float>::min() && options.epsilon <= 1)) {
    return refuse(fmt::format("epsilon is {}, not in [1.2e-38, 1]", options.epsilon));
  }
  if (!(options.grad_norm_max >= 0)) {
    return refuse(fmt::format("grad_norm_max is {}: give a positive one, or 0 for none", options.grad_norm_max));
  }
  for (std::size_t i = 0; i < parameters.size(); ++i) {
    const AdamWParameter& parameter = parameters[i];
    if (!(parameter.weight_decay >= 0 && std::isfinite(parameter.weight_decay))) {
      return refuse(fmt::format("the weight decay of parameter {} is {}", i, parameter.weight_decay));
    }
    if (cells_of(parameter.weights) > std::numeric_limits<std::uint32_t>::max()) {
      return fail(
          Errc::kTooLarge, Op::kConfigure,
          fmt::format("optimiser: parameter {} has {} cells; the most is 4294967295", i, cells_of(parameter.weights)));
    }
  }
  return AdamW(options, std::move(parameters));
}

AdamW::AdamW(const AdamWOptions& options, std::vector<AdamWParameter> parameters) : options_(options) {
  for (AdamWParameter& parameter : parameters) {
    const std::size_t cells = cells_of(parameter.weights);
    Tensor tensor{.parameter = parameter, .master = {}, .moment1 = {}, .moment2 = {}, .changed = {}};
    tensor.moment1.assign(cells, 0);
    tensor.moment2.assign(cells, 0);
    tensor.changed.assign((cells + 63) / 64, 0);
    if (const auto* bf16 = std::get_if<std::span<Bf16Bits>>(&parameter.weights)) {
      tensor.master.reserve(cells);
      for (const Bf16Bits bits : *bf16) tensor.master.push_back(std::bit_cast<float>(std::uint32_t{bits} << 16));
    }
    for (std::size_t first = 0; first < cells; first += kBlockCells) {
      blocks_.push_back({parameters_.size(), first, std::min(kBlockCells, cells - first)});
    }
    parameters_.push_back(std::move(tensor));
  }
  block_sums_.assign(blocks_.size(), 0);
}

Status AdamW::check(std::span<const GradientCells> gradients) const {
  if (gradients.size() != parameters_.size()) {
    return refuse(fmt::format("{} gradients for {} parameters", gradients.size(), parameters_.size()));
  }
  for (std::size_t i = 0; i < gradients.size(); ++i) {
    const std::size_t cells = cells_of(gradients[i]);
    if (cells != 0 && cells != parameters_[i].cells()) {
      return refuse(fmt::format("gradient {} has {} cells, its parameter {}", i, cells, parameters_[i].cells()));
    }
  }
  return {};
}

Result<std::vector<double>> AdamW::sums_of_squares(std::span<const GradientCells> gradients) {
  WC_TRY(check(gradients));
  sum_blocks(gradients);
  return block_sums_;
}

void AdamW::sum_blocks(std::span<const GradientCells> gradients) {
  for_each_index(blocks_.size(), options_.threads_max, [&](std::size_t i) {
    const Block& block = blocks_[i];
    const GradientCells& gradient = gradients[block.tensor];
    block_sums_[i] = cells_of(gradient) == 0 ? 0
                                             : adamw_kernels().sum_of_squares(cells_at(gradient, block.first),
                                                                              is_bf16(gradient), block.cells);
  });
}

AdamWUpdate begin_update(const AdamWOptions& options, double grad_norm, AdamWCounters& counters) {
  AdamWUpdate result;
  result.grad_norm = grad_norm;
  if (!std::isfinite(grad_norm)) {
    ++counters.skipped;
    return result;
  }
  result.applied = true;
  ++counters.applied;
  if (options.grad_norm_max > 0) {
    // As torch.nn.utils.clip_grad_norm_ does.
    result.gradient_scale = std::min(1.0, options.grad_norm_max / (grad_norm + 1e-6));
  }
  return result;
}

Result<AdamWUpdate> AdamW::update(double learning_rate, std::span<const GradientCells> gradients,
                                  std::optional<double> grad_norm) {
  if (!(learning_rate >= 0 && std::isfinite(learning_rate))) {
    return refuse(fmt::format("the learning rate is {}", learning_rate));
  }
  WC_TRY(check(gradients));
  if (!grad_norm) {
    sum_blocks(gradients);
    grad_norm = std::sqrt(std::accumulate(block_sums_.begin(), block_sums_.end(), 0.0));
  }
  AdamWUpdate result = begin_update(options_, *grad_norm, counters_);
  if (!result.applied) return result;
  const auto t = static_cast<double>(counters_.applied);
  const AdamWScalars common{
      .gradient_scale = static_cast<float>(result.gradient_scale),
      .decay = 1,
      .beta1 = static_cast<float>(options_.beta1),
      .beta1_rest = static_cast<float>(1 - options_.beta1),
      .beta2 = static_cast<float>(options_.beta2),
      .beta2_rest = static_cast<float>(1 - options_.beta2),
      .step_size = static_cast<float>(learning_rate / (1 - std::pow(options_.beta1, t))),
      .inverse_root = static_cast<float>(1 / std::sqrt(1 - std::pow(options_.beta2, t))),
      .epsilon = static_cast<float>(options_.epsilon),
      .rounding_key = 0,
  };
  for_each_index(blocks_.size(), options_.threads_max, [&](std::size_t i) {
    const Block& block = blocks_[i];
    const GradientCells& gradient = gradients[block.tensor];
    if (cells_of(gradient) == 0) return;
    Tensor& tensor = parameters_[block.tensor];
    AdamWScalars scalars = common;
    scalars.decay = static_cast<float>(1 - learning_rate * tensor.parameter.weight_decay);
    const auto* bf16 = std::get_if<std::span<Bf16Bits>>(&tensor.parameter.weights);
    WeightCells weights = WeightCells::kFloat;
    if (bf16 != nullptr && options_.rounding == Bf16Rounding::kNearest) weights = WeightCells::kBf16Nearest;
    if (bf16 != nullptr && options_.rounding == Bf16Rounding::kStochastic) {
      weights = WeightCells::kBf16Stochastic;
      scalars.rounding_key =
          rounding_key(options_.rounding_seed, counters_.applied, tensor.parameter.tensor.value_or(block.tensor));
    }
    float* const master =
        bf16 != nullptr ? tensor.master.data() : std::get<std::span<float>>(tensor.parameter.weights).data();
    adamw_kernels().update({.master = master + block.first,
                            .moment1 = tensor.moment1.data() + block.first,
                            .moment2 = tensor.moment2.data() + block.first,
                            .gradient = cells_at(gradient, block.first),
                            .bf16 = bf16 != nullptr ? bf16->data() + block.first : nullptr,
                            .changed = tensor.changed.data() + block.first / 64,
                            .cells = block.cells,
                            .first = static_cast<std::uint32_t>(tensor.parameter.first + block.first)},
                           scalars, is_bf16(gradient), weights);
  });
  return result;
}

ChangedCells AdamW::take_changes(std::size_t index) {
  WC_CHECK(index < parameters_.size());
  Tensor& tensor = parameters_[index];
  std::size_t count = 0;
  for (const std::uint64_t word : tensor.changed) count += static_cast<std::size_t>(std::popcount(word));
  ChangedCells result;
  result.indices.reserve(count);
  for (std::size_t i = 0; i < tensor.changed.size(); ++i) {
    for (std::uint64_t word = tensor.changed[i]; word != 0; word &= word - 1) {
      result.indices.push_back(static_cast<std::uint32_t>(64 * i + static_cast<std::size_t>(std::countr_zero(word))));
    }
    tensor.changed[i] = 0;
  }
  std::visit(
      [&](const auto& weights) {
        constexpr std::size_t kCellBytes = sizeof weights[0];
        result.values.resize(count * kCellBytes);
        for (std::size_t i = 0; i < count; ++i) {
          std::memcpy(result.values.data() + i * kCellBytes, &weights[result.indices[i]], kCellBytes);
        }
      },
      tensor.parameter.weights);
  return result;
}

std::vector<AdamW::StatePart> AdamW::state() {
  std::vector<StatePart> parts;
  for (std::size_t i = 0; i < parameters_.size(); ++i) {
    Tensor& tensor = parameters_[i];
    if (!tensor.master.empty()) parts.push_back({i, StatePart::Kind::kMaster, bytes_of(tensor.master)});
    parts.push_back({i, StatePart::Kind::kMoment1, bytes_of(tensor.moment1)});
    parts.push_back({i, StatePart::Kind::kMoment2, bytes_of(tensor.moment2)});
    parts.push_back({i, StatePart::Kind::kChanged, bytes_of(tensor.changed)});
  }
  return parts;
}

}  // namespace weightcast
