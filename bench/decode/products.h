#pragma once

#include <cstddef>
#include <span>

#include "worker/engine/weights.h"

namespace weightcast::bench {

/// Multiplies `rows` rows with each of these matrices, one after the other, as LibTorch does it: at::linear in the
/// dtype of the weights. False where the build has no LibTorch.
bool multiply_all(std::span<const WeightMatrix> matrices, std::size_t rows, unsigned threads);

}  // namespace weightcast::bench
