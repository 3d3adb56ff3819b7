#include "bench/paper/training_figures.h"

#include <algorithm>
#include <cmath>
#include <iterator>
#include <utility>

#include "bench/paper/run_statistics.h"

namespace weightcast::bench {
namespace {

constexpr std::size_t kLastEvaluations = 3;

}  // namespace

double final_reward(const TrainingRun& run) { return last_mean(run.columns.at("evaluation"), kLastEvaluations); }
double late_rollouts(const TrainingRun& run) { return last_mean(run.columns.at("reward"), 10); }
double mean_of(const TrainingRun& run, const char* column) {
  return last_mean(run.columns.at(column), run.columns.at(column).size());
}
double most_of(const TrainingRun& run, const char* column) {
  double most = 0;
  for (const double value : run.columns.at(column)) most = std::isfinite(value) ? std::max(most, value) : most;
  return most;
}
double last_of(const TrainingRun& run, const char* column) { return run.columns.at(column).back(); }
double collapsed(const TrainingRun& run) {
  return run.has_diverged || collapse_of(run.columns.at("loss"), run.columns.at("reward")).any() ? 1 : 0;
}
double collapsed_in_reward(const TrainingRun& run) {
  return run.has_diverged || collapse_of({}, run.columns.at("reward")).reward ? 1 : 0;
}

void add_row(PaperResult& result, std::string what, std::optional<double> paper, const std::vector<double>& values,
             char source) {
  // A run that ended early may have no such figure, and three steps have none over ten.
  std::vector<double> numbers;
  std::ranges::copy_if(values, std::back_inserter(numbers), [](double value) { return std::isfinite(value); });
  if (numbers.empty()) return;
  const Estimate estimate = estimate_of(numbers);
  result.rows.push_back({std::move(what), paper, estimate.mean, estimate.half_width, source});
}

std::vector<double> means_by_seed(const std::vector<std::vector<double>>& cases) {
  std::vector<double> means;
  const auto seeds = std::ranges::min(cases, {}, &std::vector<double>::size).size();
  for (std::size_t seed = 0; seed < seeds; ++seed) {
    double sum = 0;
    for (const auto& of_case : cases) sum += of_case[seed];
    means.push_back(sum / static_cast<double>(cases.size()));
  }
  return means;
}

std::vector<double> differences(const std::vector<double>& a, const std::vector<double>& b) {
  std::vector<double> result;
  for (std::size_t i = 0; i < std::min(a.size(), b.size()); ++i) result.push_back(a[i] - b[i]);
  return result;
}

void draw(Figure::Panel& panel, const Runs& runs, std::string_view name, const char* column) {
  const std::vector<const TrainingRun*> of_case = runs_of(runs, name);
  Figure::Series mean{std::string(name), false, {}}, least{"95 % interval", true, {}}, most{"95 % interval", true, {}};
  std::size_t steps = 0;
  for (const TrainingRun* run : of_case) steps = std::max(steps, run->columns.at(column).size());
  for (std::size_t step = 0; step < steps; ++step) {
    std::vector<double> values;
    for (const TrainingRun* run : of_case) {
      const std::vector<double>& entries = run->columns.at(column);
      if (step < entries.size() && std::isfinite(entries[step])) values.push_back(entries[step]);
    }
    if (values.empty()) continue;
    const Estimate estimate = estimate_of(values);
    const double x = static_cast<double>(step + 1);
    mean.points.push_back({x, estimate.mean});
    if (!estimate.half_width) continue;
    least.points.push_back({x, estimate.mean - *estimate.half_width});
    most.points.push_back({x, estimate.mean + *estimate.half_width});
  }
  for (Figure::Series* series : {&mean, &least, &most}) {
    if (!series->points.empty()) panel.series.push_back(std::move(*series));
  }
}

}  // namespace weightcast::bench
