#pragma once

#include <torch/types.h>

#include "trainer/model/layers/rope_frequencies.h"

namespace weightcast {

/// Cosines and sines of positions, each [..., head_dim / 2] for positions of shape [...].
struct Rotation {
  torch::Tensor cosine;
  torch::Tensor sine;
};

/// The rotation for integer positions; `frequencies` are [head_dim / 2], or have a row for each position. Angles,
/// cosines and sines are computed in FP32, then rounded to `dtype`.
[[nodiscard]] Rotation rope_rotation(const torch::Tensor& frequencies, double attention_factor,
                                     const torch::Tensor& positions, torch::ScalarType dtype);

/// Rotates heads [..., heads, head_dim] by their position's angles; the two halves of a head are pairs, as in
/// transformers. Differentiable in `heads`.
[[nodiscard]] torch::Tensor rotate(const torch::Tensor& heads, const Rotation& rotation);

}  // namespace weightcast
