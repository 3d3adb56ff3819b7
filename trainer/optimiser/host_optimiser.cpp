#include <cstring>

#include "trainer/optimiser/tensor_optimiser.h"

namespace weightcast {
namespace {

class HostOptimiser final : public TensorOptimiser {
 public:
  HostOptimiser(AdamW adamw, std::vector<LearningCells> parts) : adamw_(std::move(adamw)), parts_(std::move(parts)) {}

  Result<AdamWUpdate> update(double learning_rate, std::span<const torch::Tensor> gradients,
                             std::optional<double> grad_norm) override {
    return adamw_.update(learning_rate, spans_of(gradients), grad_norm);
  }
  Result<std::vector<double>> sums_of_squares(std::span<const torch::Tensor> gradients) override {
    return adamw_.sums_of_squares(spans_of(gradients));
  }
  ChangedCells take_changes(std::size_t index) override { return adamw_.take_changes(index); }

  std::vector<std::byte> read_state(State kind) const override {
    std::vector<std::byte> bytes;
    for (const AdamW::StatePart& part : adamw_.state()) {
      if (part.kind == kind) bytes.insert(bytes.end(), part.bytes.begin(), part.bytes.end());
    }
    return bytes;
  }
  void write_state(State kind, Bytes bytes) override {
    for (const AdamW::StatePart& part : adamw_.state()) {
      if (part.kind != kind) continue;
      WC_CHECK(part.bytes.size() <= bytes.size());
      std::memcpy(part.bytes.data(), bytes.data(), part.bytes.size());
      bytes = bytes.subspan(part.bytes.size());
    }
    WC_CHECK(bytes.empty());
  }
  AdamWCounters counters() const override { return adamw_.counters(); }
  void restore_counters(const AdamWCounters& counters) override { adamw_.restore_counters(counters); }

 private:
  static std::vector<GradientCells> spans_of(std::span<const torch::Tensor> gradients) {
    std::vector<GradientCells> spans;
    for (const torch::Tensor& gradient : gradients) {
      spans.emplace_back(gradient.defined() ? std::span<const float>(gradient.data_ptr<float>(),
                                                                     static_cast<std::size_t>(gradient.numel()))
                                            : std::span<const float>());
    }
    return spans;
  }

  mutable AdamW adamw_;               // state() gives memory to write to, too
  std::vector<LearningCells> parts_;  // keeps the memory that it works in
};

}  // namespace

Result<std::unique_ptr<TensorOptimiser>> make_host_optimiser(const AdamWOptions& options,
                                                             std::vector<LearningCells> parts) {
  std::vector<AdamWParameter> parameters;
  for (const LearningCells& part : parts) {
    AdamWParameter parameter;
    const auto cells = static_cast<std::size_t>(part.cells.numel());
    if (part.cells.scalar_type() == at::kBFloat16) {
      parameter.weights = std::span(static_cast<Bf16Bits*>(part.cells.data_ptr()), cells);
    } else {
      parameter.weights = std::span(part.cells.data_ptr<float>(), cells);
    }
    parameter.weight_decay = part.weight_decay;
    parameter.tensor = part.tensor;
    parameter.first = part.first;
    parameters.push_back(parameter);
  }
  WC_ASSIGN(AdamW adamw, AdamW::make(options, std::move(parameters)));
  return std::unique_ptr<TensorOptimiser>(std::make_unique<HostOptimiser>(std::move(adamw), std::move(parts)));
}

}  // namespace weightcast
