#pragma once

#include <torch/types.h>

#include "model/config.h"

namespace weightcast {

/// Cosines and sines of positions, each [..., head_dim / 2] for positions of shape [...].
struct Rotation {
  torch::Tensor cosine;
  torch::Tensor sine;
};

/// Angles per position, FP32 [head_dim / 2]: transformers' modeling_rope_utils.py, with yarn's factor as config.json
/// says it.
[[nodiscard]] torch::Tensor rope_frequencies(const RopeConfig& rope, std::int64_t head_dim);

/// The rotation for integer positions. Angles, cosines and sines are computed in FP32, then rounded to `dtype`.
[[nodiscard]] Rotation rope_rotation(const torch::Tensor& frequencies, double attention_factor,
                                     const torch::Tensor& positions, torch::ScalarType dtype);

/// Rotates heads [..., heads, head_dim] by their position's angles; the two halves of a head are pairs, as in
/// transformers. Differentiable in `heads`.
[[nodiscard]] torch::Tensor rotate(const torch::Tensor& heads, const Rotation& rotation);

}  // namespace weightcast
