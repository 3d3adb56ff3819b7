#include "trainer/metrics/metrics_figures.h"

#include <algorithm>
#include <cmath>
#include <string_view>

namespace weightcast {
namespace {

constexpr std::size_t kWindow = 11;
constexpr std::size_t kPointsMax = 400;  // more marks than that are a bar

std::vector<Figure::Point> points_of(std::span<const Metrics> steps, std::string_view name) {
  std::vector<Figure::Point> points;
  for (const Metrics& metrics : steps) {
    const auto step = metrics.find("training/global_step"), value = metrics.find(name);
    if (step == metrics.end() || value == metrics.end() || !std::isfinite(value->second)) continue;
    points.push_back({step->second, value->second});
  }
  return points;
}

/// The mean of the points up to five before and behind each.
std::vector<Figure::Point> smoothed(const std::vector<Figure::Point>& points) {
  std::vector<Figure::Point> means;
  for (std::size_t i = 0; i < points.size(); ++i) {
    const std::size_t first = i - std::min(i, kWindow / 2), last = std::min(i + kWindow / 2, points.size() - 1);
    double sum = 0;
    for (std::size_t j = first; j <= last; ++j) sum += points[j].y;
    means.push_back({points[i].x, sum / static_cast<double>(last - first + 1)});
  }
  return means;
}

std::vector<Figure::Point> thinned(std::vector<Figure::Point> points) {
  const std::size_t every = (points.size() + kPointsMax - 1) / kPointsMax;
  if (every < 2) return points;
  std::vector<Figure::Point> kept;
  for (std::size_t i = 0; i < points.size(); i += every) kept.push_back(points[i]);
  return kept;
}

std::vector<std::string> names_of(std::span<const Metrics> steps, const std::string& prefix) {
  std::vector<std::string> names;
  for (const Metrics& metrics : steps) {
    for (auto at = metrics.lower_bound(prefix); at != metrics.end() && at->first.starts_with(prefix); ++at) {
      if (std::find(names.begin(), names.end(), at->first) == names.end()) names.push_back(at->first);
    }
  }
  return names;
}

}  // namespace

std::vector<NamedFigure> metrics_figures(std::span<const Metrics> steps) {
  std::vector<NamedFigure> figures;
  const auto add = [&](std::string name, std::string title, std::string unit, const std::vector<std::string>& prefixes,
                       bool smooth) {
    Figure figure;
    figure.title = std::move(title);
    figure.x.label = "training step";
    figure.y.label = std::move(unit);
    Figure::Panel panel;
    for (const std::string& prefix : prefixes) {
      for (const std::string& metric : names_of(steps, prefix)) {
        const std::vector<Figure::Point> points = points_of(steps, metric);
        if (points.empty()) continue;
        panel.series.push_back({metric, false, thinned(points)});
        if (smooth && points.size() >= kWindow && metric.starts_with("critic/")) {
          panel.series.push_back({"mean of 11 steps", true, thinned(smoothed(points))});
        }
      }
    }
    if (panel.series.empty()) return;
    figure.panels.push_back(std::move(panel));
    figures.push_back({std::move(name), std::move(figure)});
  };
  add("reward", "Reward", "reward", {"critic/score/mean", "eval/avg@"}, true);
  add("success", "Success", "share", {"critic/success_rate", "eval/success_rate", "eval/pass@"}, true);
  add("divergence", "Divergence from sampler and reference", "nats",
      {"actor/ppo_kl", "rollout_corr/k3_kl", "actor/kl_loss"}, false);
  add("entropy", "Entropy", "nats", {"actor/entropy"}, false);
  add("staleness", "Staleness of trained rollouts", "training steps",
      {"off_policy/max", "off_policy/mean", "off_policy/median"}, false);
  add("time", "Time of a step", "seconds", {"timing_s/"}, false);
  add("publication", "Bytes per publication", "bytes", {"publish/bytes"}, false);
  return figures;
}

}  // namespace weightcast
