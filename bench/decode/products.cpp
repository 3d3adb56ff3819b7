#include "bench/decode/products.h"

#ifdef WEIGHTCAST_TORCH
#include <ATen/Parallel.h>
#include <torch/types.h>

#include <map>

namespace weightcast::bench {

bool multiply_all(std::span<const WeightMatrix> matrices, std::size_t rows, unsigned threads) {
  const at::NoGradGuard no_gradients;
  at::set_num_threads(static_cast<int>(threads));
  std::map<std::int64_t, torch::Tensor> inputs;
  for (const WeightMatrix& matrix : matrices) {
    const auto dtype = matrix.is_bfloat16 ? at::kBFloat16 : at::kFloat;
    torch::Tensor& input = inputs[matrix.inputs];
    if (!input.defined()) {
      input = at::ones({static_cast<std::int64_t>(rows), matrix.inputs}, at::TensorOptions(dtype));
    }
    // Only read.
    const torch::Tensor weight =
        at::from_blob(const_cast<void*>(matrix.data), {matrix.outputs, matrix.inputs}, at::TensorOptions(dtype));
    static_cast<void>(at::linear(input, weight));
  }
  return true;
}

}  // namespace weightcast::bench
#else
namespace weightcast::bench {

bool multiply_all(std::span<const WeightMatrix>, std::size_t, unsigned) { return false; }

}  // namespace weightcast::bench
#endif
