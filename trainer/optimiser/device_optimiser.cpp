#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <numeric>

#include "base/random.h"
#include "trainer/optimiser/tensor_optimiser.h"

#if defined(WEIGHTCAST_PATCH_CUDA)
#include <c10/core/DeviceGuard.h>

#include "patch/cuda/device_cells.h"
#endif

namespace weightcast {
namespace {

using torch::Tensor;

constexpr auto kBlock = static_cast<std::int64_t>(AdamW::kBlockCells);

/// The cells as integers: bits are compared, not numbers.
Tensor bits_of(const Tensor& cells) { return cells.view(cells.element_size() == 2 ? at::kShort : at::kInt); }

/// The sums of squares over blocks of FP32 numbers, in FP64.
Tensor block_sums(const Tensor& cells) {
  const std::int64_t whole = cells.numel() / kBlock * kBlock;
  const auto sums = [](const Tensor& rows) { return rows.square().sum(-1, false, at::kDouble); };
  std::vector<Tensor> parts;
  if (whole > 0) parts.push_back(sums(cells.narrow(0, 0, whole).view({-1, kBlock})));
  if (whole < cells.numel()) parts.push_back(sums(cells.narrow(0, whole, cells.numel() - whole).view({1, -1})));
  return at::cat(parts);
}

std::int64_t blocks_in(const Tensor& cells) { return (cells.numel() + kBlock - 1) / kBlock; }

struct Part {
  LearningCells of;
  Tensor master;  // the cells themselves where those are FP32
  Tensor moment1, moment2;
  Tensor published;  // the cells as take_changes() left them

  [[nodiscard]] const Tensor& state(TensorOptimiser::State kind) const {
    switch (kind) {
      case TensorOptimiser::State::kMaster: return master;
      case TensorOptimiser::State::kMoment1: return moment1;
      case TensorOptimiser::State::kMoment2: return moment2;
      case TensorOptimiser::State::kChanged: break;
    }
    WC_CHECK(false);
  }
  [[nodiscard]] std::size_t words() const { return (static_cast<std::size_t>(of.cells.numel()) + 63) / 64; }
};

class DeviceOptimiser final : public TensorOptimiser {
 public:
  DeviceOptimiser(const AdamWOptions& options, std::vector<LearningCells> parts) : options_(options) {
    const at::NoGradGuard no_grad;
    for (LearningCells& of : parts) {
      Part part;
      const bool is_wide = of.cells.scalar_type() == at::kFloat;
      part.master = is_wide ? of.cells : of.cells.to(at::kFloat);
      part.moment1 = at::zeros_like(part.master);
      part.moment2 = at::zeros_like(part.master);
      part.published = of.cells.clone();
      part.of = std::move(of);
      parts_.push_back(std::move(part));
    }
  }

  Result<AdamWUpdate> update(double learning_rate, std::span<const Tensor> gradients,
                             std::optional<double> grad_norm) override {
    const at::NoGradGuard no_grad;
    if (!grad_norm) {
      WC_ASSIGN(const std::vector<double> sums, sums_of_squares(gradients));
      grad_norm = std::sqrt(std::accumulate(sums.begin(), sums.end(), 0.0));
    }
    const AdamWUpdate result = begin_update(options_, *grad_norm, counters_);
    if (!result.applied) return result;
    const auto t = static_cast<double>(counters_.applied);
    const double step_size = learning_rate / (1 - std::pow(options_.beta1, t));
    const double inverse_root = 1 / std::sqrt(1 - std::pow(options_.beta2, t));
    for (std::size_t i = 0; i < parts_.size(); ++i) {
      if (!gradients[i].defined()) continue;
      const Part& part = parts_[i];
      const Tensor gradient = result.gradient_scale == 1 ? gradients[i] : gradients[i] * result.gradient_scale;
      part.moment1.mul_(options_.beta1).add_(gradient, 1 - options_.beta1);
      part.moment2.mul_(options_.beta2).addcmul_(gradient, gradient, 1 - options_.beta2);
      const Tensor root = part.moment2.sqrt().mul_(inverse_root).add_(options_.epsilon);
      part.master.mul_(1 - learning_rate * part.of.weight_decay).addcdiv_(part.moment1, root, -step_size);
      if (!part.master.is_same(part.of.cells)) part.of.cells.copy_(rounded(part));
    }
    return result;
  }

  Result<std::vector<double>> sums_of_squares(std::span<const Tensor> gradients) override {
    const at::NoGradGuard no_grad;
    std::vector<Tensor> sums;
    for (std::size_t i = 0; i < parts_.size(); ++i) {
      sums.push_back(gradients[i].defined()
                         ? block_sums(gradients[i])
                         : at::zeros({blocks_in(parts_[i].of.cells)}, parts_[i].master.options().dtype(at::kDouble)));
    }
    const Tensor host = at::cat(sums).to(at::kCPU);
    return std::vector<double>(host.data_ptr<double>(), host.data_ptr<double>() + host.numel());
  }

  ChangedCells take_changes(std::size_t index) override {
    const at::NoGradGuard no_grad;
    const Part& part = parts_[index];
    ChangedCells changes;
#if defined(WEIGHTCAST_PATCH_CUDA)
    if (part.of.cells.is_cuda()) {
      const c10::DeviceGuard guard(part.of.cells.device());
      Result<DeviceChanges> found = find_changes_on_device(part.published.data_ptr(), part.of.cells.data_ptr(),
                                                           static_cast<std::size_t>(part.of.cells.numel()),
                                                           static_cast<unsigned>(part.of.cells.element_size()));
      // As where LibTorch's operations fail: the caller ends the update with the device's words.
      TORCH_CHECK(found.has_value(), found.error().message());
      changes = {std::move(found->indices), std::move(found->cells)};
      part.published.copy_(part.of.cells);
      return changes;
    }
#endif
    const Tensor places = (bits_of(part.published) != bits_of(part.of.cells)).nonzero().flatten();
    const Tensor indices = places.to(at::kCPU);
    const Tensor values = part.of.cells.index_select(0, places).to(at::kCPU);
    changes.indices.assign(indices.data_ptr<std::int64_t>(), indices.data_ptr<std::int64_t>() + indices.numel());
    changes.values.resize(values.nbytes());
    if (!changes.values.empty()) std::memcpy(changes.values.data(), values.data_ptr(), changes.values.size());
    part.published.copy_(part.of.cells);
    return changes;
  }

  std::vector<std::byte> read_state(State kind) const override {
    const at::NoGradGuard no_grad;
    std::vector<std::byte> bytes;
    for (const Part& part : parts_) {
      if (kind != State::kChanged) {
        const Tensor host = part.state(kind).to(at::kCPU);
        const auto* data = static_cast<const std::byte*>(host.data_ptr());
        bytes.insert(bytes.end(), data, data + host.nbytes());
        continue;
      }
      const Tensor differs = (bits_of(part.published) != bits_of(part.of.cells)).to(at::kCPU);
      const bool* flags = differs.data_ptr<bool>();
      std::vector<std::uint64_t> words(part.words(), 0);
      for (std::int64_t i = 0; i < differs.numel(); ++i) words[i / 64] |= std::uint64_t{flags[i]} << (i % 64);
      const auto of_part = std::as_bytes(std::span(words));
      bytes.insert(bytes.end(), of_part.begin(), of_part.end());
    }
    return bytes;
  }

  void write_state(State kind, Bytes bytes) override {
    const at::NoGradGuard no_grad;
    const auto take = [&](void* into, std::size_t count) {
      WC_CHECK(count <= bytes.size());
      std::memcpy(into, bytes.data(), count);
      bytes = bytes.subspan(count);
    };
    for (const Part& part : parts_) {
      if (kind != State::kChanged) {
        const Tensor host = at::empty(part.master.sizes(), at::TensorOptions(at::kFloat));
        take(host.data_ptr(), host.nbytes());
        part.state(kind).copy_(host);
        continue;
      }
      std::vector<std::uint64_t> words(part.words());
      take(words.data(), words.size() * sizeof(std::uint64_t));
      const Tensor differs = at::empty(part.of.cells.sizes(), at::TensorOptions(at::kBool));
      bool* flags = differs.data_ptr<bool>();
      for (std::int64_t i = 0; i < differs.numel(); ++i) flags[i] = ((words[i / 64] >> (i % 64)) & 1) != 0;
      // What was published is not in the state; any other bits will do.
      const Tensor now = bits_of(part.of.cells);
      bits_of(part.published).copy_(at::where(differs.to(now.device()), now.bitwise_not(), now));
    }
    WC_CHECK(bytes.empty());
  }

  AdamWCounters counters() const override { return counters_; }
  void restore_counters(const AdamWCounters& counters) override { counters_ = counters; }

 private:
  /// The masters in the cells' type, or in FP32 with the bits that it cuts off being 0.
  [[nodiscard]] Tensor rounded(const Part& part) const {
    if (options_.rounding == Bf16Rounding::kNearest) return part.master;
    at::Generator generator = at::globalContext().defaultGenerator(part.master.device()).clone();
    // Another one for each update and each part.
    generator.set_current_seed(
        Random(Random(Random(options_.rounding_seed).next() ^ counters_.applied).next() ^ part.of.tensor).next() ^
        part.of.first);
    const Tensor bits = part.master.view(at::kInt);
    const Tensor drawn = at::empty_like(bits).random_(0, 1 << 16, generator);
    return bits.add(drawn).bitwise_and_(-(1 << 16)).view(at::kFloat);
  }

  const AdamWOptions options_;
  std::vector<Part> parts_;
  AdamWCounters counters_;
};

}  // namespace

Result<std::unique_ptr<TensorOptimiser>> make_device_optimiser(const AdamWOptions& options,
                                                               std::vector<LearningCells> parts) {
  // Its checks of the options hold here, too.
  if (const Result<AdamW> checked = AdamW::make(options, {}); !checked.has_value()) return checked.error();
  for (const LearningCells& part : parts) {
    if (part.cells.numel() <= std::int64_t{0xffffffff}) continue;
    return fail(
        Errc::kTooLarge, Op::kConfigure,
        fmt::format("optimiser: parameter {} has {} cells; the most is 4294967295", part.tensor, part.cells.numel()));
  }
  try {
    return std::unique_ptr<TensorOptimiser>(std::make_unique<DeviceOptimiser>(options, std::move(parts)));
  } catch (const std::exception& exception) {
    const std::string_view words = exception.what();
    return fail(Errc::kTooLarge, Op::kConfigure,
                fmt::format("the optimiser's state: LibTorch says: {}", words.substr(0, words.find('\n'))));
  }
}

}  // namespace weightcast
