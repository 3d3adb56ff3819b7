#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "sim/random.h"

namespace weightcast::sim {

/// BF16 weights as training leaves them: few exponents, and a step moves some of the mantissas.
class Weights {
 public:
  Weights(Random& random, std::uint64_t bytes);

  void step(double changed_share);

  /// As a safetensors file of two tensors.
  [[nodiscard]] std::string file() const;

 private:
  Random& random_;
  std::vector<std::uint16_t> cells_;
};

}  // namespace weightcast::sim
