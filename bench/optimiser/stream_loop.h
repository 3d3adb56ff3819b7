#pragma once

#include <cstddef>

namespace weightcast::bench {

/// Reads four arrays of `cells` floats and writes three of them: the traffic that no AdamW in FP32 can avoid.
void stream_loop(float* weights, float* moment1, float* moment2, const float* gradient, std::size_t cells);

}  // namespace weightcast::bench
