#pragma once

#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "bench/paper/paper_item.h"
#include "bench/paper/training_suite.h"

namespace weightcast::bench {

// Figures of an item's training runs: one of each run, rows with intervals, curves.

using Runs = std::vector<TrainingRun>;

/// One figure of each of a case's runs, in the order of the seeds: what `of` gives, or that member.
template <typename Of>
[[nodiscard]] std::vector<double> each(const Runs& runs, std::string_view name, const Of& of) {
  std::vector<double> values;
  for (const TrainingRun* run : runs_of(runs, name)) values.push_back(std::invoke(of, *run));
  return values;
}

/// The mean of the last three evaluations, and that of the last ten steps' rollouts.
[[nodiscard]] double final_reward(const TrainingRun& run);
[[nodiscard]] double late_rollouts(const TrainingRun& run);
/// Of a column's numbers.
[[nodiscard]] double mean_of(const TrainingRun& run, const char* column);
[[nodiscard]] double most_of(const TrainingRun& run, const char* column);
[[nodiscard]] double last_of(const TrainingRun& run, const char* column);
/// 1 or 0: by any sign of collapse_of(), and by the reward alone.
[[nodiscard]] double collapsed(const TrainingRun& run);
[[nodiscard]] double collapsed_in_reward(const TrainingRun& run);

/// Adds the mean of the numbers among `values` and its interval; nothing if there are none.
void add_row(PaperResult& result, std::string what, std::optional<double> paper, const std::vector<double>& values,
             char source = 'P');

/// Of several cases the mean by seed, as far as all go. Differences from runs that all cases share do not count as
/// independent ones, so a seed counts once.
[[nodiscard]] std::vector<double> means_by_seed(const std::vector<std::vector<double>>& cases);
/// a[i] - b[i], as far as both go.
[[nodiscard]] std::vector<double> differences(const std::vector<double>& a, const std::vector<double>& b);

/// A column of a case by step: the mean over the seeds, and the bounds of its 95 % interval.
void draw(Figure::Panel& panel, const Runs& runs, std::string_view name, const char* column = "evaluation");

}  // namespace weightcast::bench
