#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <span>
#include <utility>

#include "bench/paper/arithmetic_suite.h"
#include "bench/paper/paper_item.h"
#include "bench/paper/run_statistics.h"
#include "bench/paper/training_figures.h"

namespace weightcast::bench {
namespace {

constexpr const char* kOnPolicy = "synchronous";
constexpr std::size_t kSmoothed = 11;  // steps of the paper's means

struct Variant {
  const char* name;
  std::vector<Setting> settings;
};

/// The losses of the paper, each without a further correction.
std::vector<Variant> variants() {
  std::vector<Variant> all;
  for (const char* name : {"ppo", "decoupled_ppo", "tis", "cispo", "topr", "weighted_topr"}) {
    all.push_back({name, {{"pg_variant", name}, {"tis_cap", "0"}}});
  }
  all.back().settings.push_back({"topr_negative_weight", "0.5"});
  return all;
}

constexpr std::array<std::uint64_t, 2> kRatios{2, 8};

std::string case_name(const char* variant, std::uint64_t ratio) { return fmt::format("{}, ratio {}", variant, ratio); }

/// Mean rewards of 11 steps, of rollouts as they came.
double smoothed_reward(const TrainingRun& run) { return last_mean(run.columns.at("reward"), kSmoothed); }

/// The mean over a case's runs of means of 11 steps, by the last of these.
Figure::Series smoothed(const Runs& runs, const std::string& name, std::string label) {
  Figure::Series series{std::move(label), false, {}};
  const auto of_case = runs_of(runs, name);
  for (std::size_t end = kSmoothed; !of_case.empty() && end <= of_case[0]->columns.at("reward").size(); ++end) {
    double sum = 0;
    for (const TrainingRun* run : of_case) {
      const std::vector<double>& rewards = run->columns.at("reward");
      if (rewards.size() < end) continue;
      sum += last_mean(std::span(rewards).first(end), kSmoothed) / static_cast<double>(of_case.size());
    }
    series.points.push_back({static_cast<double>(end), sum});
  }
  return series;
}

PaperItem figure_4() {
  PaperItem item;
  item.name = "flash-fig4";
  item.of = "ROLL Flash, figure 4";
  item.fitted = "the learning rate, chosen for sparse-staleness; weighted_topr's weight of negatives, 0.5";
  TrainingSuite suite = arithmetic_suite("roll_flash", "3e-4");
  suite.settings.insert(suite.settings.end(),
                        {{"rollout_batch_size", "512"}, {"updates_per_step", "2"}, {"lr_warmup_updates", "0"}});
  const auto with_ratio = [](std::vector<Setting> settings, std::uint64_t ratio) {
    settings.push_back({"async_generation_ratio", fmt::format("{}", ratio)});
    return settings;
  };
  suite.cases.push_back({kOnPolicy, 1, 0, {0}, with_ratio({{"pg_variant", "ppo"}, {"tis_cap", "0"}}, 0)});
  for (const std::uint64_t ratio : kRatios) {
    std::vector<std::uint64_t> lags;
    for (std::uint64_t lag = 1; lag <= ratio; ++lag) lags.push_back(lag);
    for (const Variant& variant : variants()) {
      suite.cases.push_back({case_name(variant.name, ratio), 1, ratio, lags, with_ratio(variant.settings, ratio)});
    }
  }
  item.training = std::move(suite);
  item.evaluate_runs = [](const Runs& runs, PaperResult& result) {
    const std::vector<double> base = each(runs, kOnPolicy, final_reward);
    const std::vector<double> base_smoothed = each(runs, kOnPolicy, smoothed_reward);
    const auto rows = [&](const std::string& name) {
      add_row(result, fmt::format("{}: reward", name), {}, each(runs, name, final_reward));
      add_row(result, fmt::format("{}: reward of the last 11 steps' rollouts", name), {},
              each(runs, name, smoothed_reward));
      add_row(result, fmt::format("{}: greatest KL(generator, learner)", name), {},
              each(runs, name, [](const TrainingRun& run) { return most_of(run, "kl"); }));
      add_row(result, fmt::format("{}: collapsed, share of runs", name), {}, each(runs, name, collapsed));
    };
    rows(kOnPolicy);
    for (const std::uint64_t ratio : kRatios) {
      std::vector<std::vector<double>> of_ratio;
      bool all_hold = true, all_smoothed_hold = true;
      for (const Variant& variant : variants()) {
        const std::string name = case_name(variant.name, ratio);
        rows(name);
        of_ratio.push_back(differences(each(runs, name, final_reward), base));
        add_row(result, fmt::format("{}: reward less synchronous", name), {}, of_ratio.back());
        all_hold = all_hold && estimate_of(of_ratio.back()).contains(0);
        const std::vector<double> smoothed_less = differences(each(runs, name, smoothed_reward), base_smoothed);
        add_row(result, fmt::format("{}: the last 11 steps' rollouts less synchronous", name), {}, smoothed_less);
        all_smoothed_hold = all_smoothed_hold && estimate_of(smoothed_less).contains(0);
      }
      add_row(result, fmt::format("all six by seed, ratio {}: reward less synchronous", ratio), {},
              means_by_seed(of_ratio));
      const auto claim = [&](const char* what, bool holds) {
        result.claims.push_back({fmt::format("ratio {}: {} holds 0", ratio, what), holds});
      };
      claim("the interval of each variant's difference from synchronous", all_hold);
      claim("that of each variant's last 11 steps' rollouts", all_smoothed_hold);
      claim("that of all six together", estimate_of(means_by_seed(of_ratio)).contains(0));
    }
    result.figure = {
        "Reward by training step, for off-policy losses",
        "means of 11 steps' rollouts, of three seeds; each group's weights are 1 to 2, or 1 to 8, steps old",
        {"training step"},
        {"reward"},
        {}};
    for (const std::uint64_t ratio : kRatios) {
      Figure::Panel& panel = result.figure.panels.emplace_back();
      panel.title = fmt::format("ratio {}", ratio);
      panel.series.push_back(smoothed(runs, kOnPolicy, kOnPolicy));
      for (const Variant& variant : variants()) {
        panel.series.push_back(smoothed(runs, case_name(variant.name, ratio), variant.name));
      }
    }
  };
  return item;
}

/// The five ways of figure 11 and its hours. Which bar is which way is our reading.
struct Way {
  const char* name;
  double swe_h, alfworld_h;
};
constexpr std::array<Way, 5> kWays{{{"synchronous", 10.22, 13.37},
                                    {"synchronous, environments by themselves", 8.32, 8.44},
                                    {"the same, with redundant ones", 7.66, 7.85},
                                    {"asynchronous, environments by themselves", 6.09, 5.87},
                                    {"asynchronous, with redundant ones", 5.65, 4.91}}};
// Processes start, and the first batches find nothing under way.
constexpr std::size_t kFirstSteps = 2;

/// The mean of a column without those steps.
double later_mean(const TrainingRun& run, const char* column) {
  const std::vector<double>& values = run.columns.at(column);
  return last_mean(values, std::max<std::size_t>(1, values.size() - std::min(kFirstSteps, values.size())));
}

double step_s(const TrainingRun& run) { return later_mean(run, "step_s"); }

PaperItem figure_11() {
  PaperItem item;
  item.name = "flash-fig11";
  item.of = "ROLL Flash, figure 11";
  TrainingSuite suite;
  suite.task_program = "weightcast-bench-sokoban";
  // At most 50 episodes are under way, and each sleeps in a process of its own. A few more may not have ended yet.
  const std::vector<Setting> side_by_side = {{"task_program.processes", "64"},
                                             {"task_program.call_time_max", "60"},
                                             {"reward_threads", "64"},
                                             {"reward_time_max", "150"}};
  suite.settings = {{"task", "program"},
                    {"task_options.delay_median_s", "0.5"},
                    {"task_options.delay_sigma", "1"},
                    {"task_options.rows", "5"},
                    {"task_options.columns", "5"},
                    {"task_options.boxes", "1"},
                    {"task_options.steps_min", "1"},
                    {"init_hidden_size", "16"},
                    {"init_intermediate_size", "16"},
                    {"init_num_hidden_layers", "1"},
                    {"init_num_attention_heads", "2"},
                    {"init_num_key_value_heads", "1"},
                    {"turns_max", "4"},
                    {"max_prompt_length", "512"},
                    {"max_new_tokens", "8"},
                    {"rollout_batch_size", "16"},
                    {"group_size", "4"},
                    {"paced_step_s", "2"}};
  suite.settings.insert(suite.settings.end(), side_by_side.begin(), side_by_side.end());
  suite.worker_settings = side_by_side;
  suite.worker_settings.push_back({"running_max", "64"});
  suite.quick_settings = {{"task_options.delay_median_s", "0.01"}, {"paced_step_s", "0.05"}, {"eval_interval", "0"}};
  suite.steps = 10;
  const std::vector<Setting> redundant = {{"num_env_groups", "5"}, {"group_size_redundancy", "1"}};
  std::vector<Setting> ahead = {{"async_generation_ratio", "1"}};
  suite.cases = {{kWays[0].name, 1, 0},
                 {kWays[1].name, 1, 0, {0}, {}, 1},
                 {kWays[2].name, 1, 0, {0}, redundant, 1},
                 {kWays[3].name, 1, {}, {0}, ahead, 1}};
  ahead.insert(ahead.end(), redundant.begin(), redundant.end());
  suite.cases.push_back({kWays[4].name, 1, {}, {0}, ahead, 1});
  item.training = std::move(suite);
  item.evaluate_runs = [](const Runs& runs, PaperResult& result) {
    const std::vector<double> first = each(runs, kWays[0].name, step_s);
    Figure::Series swe{"SWE (P)", false, {}}, alfworld{"ALFWorld (P)", false, {}}, ours{"ours", false, {}};
    Figure::Series least{"95 % interval", true, {}}, most{"95 % interval", true, {}};
    std::vector<Estimate> estimates;
    for (std::size_t i = 0; i < kWays.size(); ++i) {
      const Way& way = kWays[i];
      const std::vector<double> seconds = each(runs, way.name, step_s);
      std::vector<double> shares;
      for (std::size_t run = 0; run < std::min(first.size(), seconds.size()); ++run) {
        shares.push_back(seconds[run] / first[run]);
      }
      estimates.push_back(estimate_of(shares));
      add_row(result, fmt::format("{}: seconds of a step", way.name), {}, seconds);
      add_row(result, fmt::format("{}: of synchronous, SWE", way.name), way.swe_h / kWays[0].swe_h, shares, 'D');
      add_row(result, fmt::format("{}: of synchronous, ALFWorld", way.name), way.alfworld_h / kWays[0].alfworld_h,
              shares, 'D');
      add_row(result, fmt::format("{}: seconds of a step that wait for rollouts", way.name), {},
              each(runs, way.name, [](const TrainingRun& run) { return later_mean(run, "collect_s"); }));
      add_row(result, fmt::format("{}: mean lag", way.name), {}, each(runs, way.name, &TrainingRun::lag_mean));
      const auto x = static_cast<double>(i + 1);
      swe.points.push_back({x, way.swe_h / kWays[0].swe_h});
      alfworld.points.push_back({x, way.alfworld_h / kWays[0].alfworld_h});
      ours.points.push_back({x, estimates[i].mean});
      if (!estimates[i].half_width) continue;
      least.points.push_back({x, estimates[i].mean - *estimates[i].half_width});
      most.points.push_back({x, estimates[i].mean + *estimates[i].half_width});
    }
    for (std::size_t i = 1; i < kWays.size(); ++i) {
      result.claims.push_back({fmt::format("'{}' is faster than '{}'", kWays[i].name, kWays[i - 1].name),
                               estimates[i].mean < estimates[i - 1].mean});
    }
    result.figure = {"Time of a step in five ways, against the first",
                     "1 synchronous, 2 environments by themselves, 3 redundant ones, 4 and 5 the same, asynchronous",
                     {"way"},
                     {"time of a step, of the first way's"},
                     {}};
    result.figure.panels.emplace_back();
    for (Figure::Series* series : {&swe, &alfworld, &ours, &least, &most}) {
      if (!series->points.empty()) result.figure.panels[0].series.push_back(std::move(*series));
    }
  };
  return item;
}

}  // namespace

std::vector<PaperItem> flash_training_items() { return {figure_4(), figure_11()}; }

}  // namespace weightcast::bench
