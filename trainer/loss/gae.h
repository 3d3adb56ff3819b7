#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "base/result.h"

namespace weightcast {

struct GaeOptions {
  double gamma = 1;   ///< in [0, 1]
  double lambda = 1;  ///< in [0, 1]
};

struct Gae {
  std::vector<double> advantages;  ///< 0 in slots that do not count
  std::vector<double> returns;     ///< what the value head is to learn: advantage + value; 0 in slots that do not count
};

/// Generalised advantage estimation (Schulman et al., 2016) of one sequence: delta_t = r_t + gamma v_t+1 - v_t,
/// A_t = delta_t + gamma lambda A_t+1; after the last token there is nothing. Slots that the mask leaves out (what an
/// environment said) take no part: the token before them is followed by the one after them.
/// `values` are those of the value head. Without one there are none: then advantages and returns are both the
/// discounted rewards to come, whatever lambda is. `mask` may be empty: every slot counts. Errors: kInvalidArgument:
/// lengths differ, an option out of range, a reward or a value that counts is not finite, a sum overflows.
[[nodiscard]] Result<Gae> gae(std::span<const double> rewards, std::optional<std::span<const double>> values,
                              std::span<const std::uint8_t> mask, const GaeOptions& options);

/// Shifts and scales the values of slots that count to mean 0 and variance 1 (n - 1, plus 1e-8), and sets the others to
/// 0. With less than two, or equal ones, all become 0. `mask` may be empty.
void whiten(std::span<double> values, std::span<const std::uint8_t> mask);

}  // namespace weightcast
