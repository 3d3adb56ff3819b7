#pragma once

#include <cstdint>

#include "base/random.h"
#include "trainer/update/updates.h"

namespace weightcast {

/// A prompt and a response of random bytes; the response counts.
inline Sample random_sample(std::uint64_t seed, std::size_t prompt, std::size_t response) {
  Random random(seed);
  Sample sample;
  for (std::size_t i = 0; i < prompt + response; ++i) sample.tokens.push_back(std::int32_t(random.below(256)));
  sample.loss_mask.assign(prompt, 0);
  sample.loss_mask.resize(prompt + response, 1);
  sample.weights.assign(sample.loss_mask.begin(), sample.loss_mask.end());
  return sample;
}

}  // namespace weightcast
