#include "bench/optimiser/stream_loop.h"

namespace weightcast::bench {

void stream_loop(float* __restrict weights, float* __restrict moment1, float* __restrict moment2,
                 const float* __restrict gradient, std::size_t cells) {
  for (std::size_t i = 0; i < cells; ++i) {
    weights[i] += gradient[i];
    moment1[i] += gradient[i];
    moment2[i] += gradient[i];
  }
}

}  // namespace weightcast::bench
