#pragma once

#include <cstdint>
#include <vector>

#include "trainer/model/config.h"

namespace weightcast {

/// Angles per position, [head_dim / 2]: transformers' modeling_rope_utils.py, with yarn's factor as config.json says
/// it. `length` is that of the whole sequence: it counts where rope.depends_on_length(), and the sequence is longer
/// than those of the pre-training.
[[nodiscard]] std::vector<float> rope_frequencies(const RopeConfig& rope, std::int64_t head_dim,
                                                  std::int64_t length = 0);

}  // namespace weightcast
