#pragma once

#include <vector>

#include "trainer/model/decoder.h"
#include "trainer/optimiser/adamw.h"

namespace weightcast {

/// The weights of a decoder with an adapter as the plain model that is published, in the host's memory, and which of
/// their cells change. What has no adapter is the decoder's own memory.
class MergedWeights {
 public:
  /// Merges the adapter of now. `decoder` is the same each time.
  void refresh(const Decoder& decoder);
  [[nodiscard]] const std::vector<Parameter>& tensors() const { return now_; }
  /// The cells of tensor `index` whose bits differ from those at the last call for it, or at the first refresh().
  [[nodiscard]] ChangedCells take_changes(std::size_t index);

 private:
  std::vector<Parameter> now_;
  std::vector<torch::Tensor> taken_;
};

}  // namespace weightcast
