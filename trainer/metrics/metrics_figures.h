#pragma once

#include <span>
#include <string>
#include <vector>

#include "bench/plot/figure.h"
#include "trainer/metrics/metrics.h"

namespace weightcast {

struct NamedFigure {
  std::string name;  ///< of its file, without ".svg"
  Figure figure;
};

/// What a run looks like over its steps: reward and success with their means of 11 steps and the evaluations,
/// divergence, staleness, time of the phases, bytes published. Figures whose metrics the run does not have are left
/// out.
[[nodiscard]] std::vector<NamedFigure> metrics_figures(std::span<const Metrics> steps);

}  // namespace weightcast
