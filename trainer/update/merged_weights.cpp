#include "trainer/update/merged_weights.h"

#include <cstring>

namespace weightcast {
namespace {

template <typename Cell>
ChangedCells changes_between(const torch::Tensor& before, const torch::Tensor& now) {
  ChangedCells result;
  const auto* old_cells = static_cast<const Cell*>(before.data_ptr());
  const auto* cells = static_cast<const Cell*>(now.data_ptr());
  const auto count = static_cast<std::size_t>(now.numel());
  for (std::size_t i = 0; i < count; ++i) {
    if (old_cells[i] != cells[i]) result.indices.push_back(static_cast<std::uint32_t>(i));
  }
  result.values.resize(result.indices.size() * sizeof(Cell));
  for (std::size_t i = 0; i < result.indices.size(); ++i) {
    std::memcpy(result.values.data() + i * sizeof(Cell), &cells[result.indices[i]], sizeof(Cell));
  }
  return result;
}

}  // namespace

void MergedWeights::refresh(const Decoder& decoder) {
  const at::NoGradGuard no_grad;
  const std::vector<Parameter> merged = decoder.merged_parameters();
  now_.clear();
  for (const Parameter& parameter : merged) {
    now_.push_back({parameter.name, parameter.tensor.detach().to(at::kCPU).contiguous()});
  }
  if (!taken_.empty()) return;
  for (const Parameter& parameter : now_) taken_.push_back(parameter.tensor);
}

ChangedCells MergedWeights::take_changes(std::size_t index) {
  const torch::Tensor& now = now_[index].tensor;
  // Bits, not numbers: -0 is another value than 0 to whoever installs them.
  ChangedCells result;
  if (taken_[index].data_ptr() != now.data_ptr()) {
    result = now.element_size() == 2 ? changes_between<std::uint16_t>(taken_[index], now)
                                     : changes_between<std::uint32_t>(taken_[index], now);
  }
  taken_[index] = now;
  return result;
}

}  // namespace weightcast
