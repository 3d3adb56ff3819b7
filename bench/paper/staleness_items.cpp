#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "bench/paper/arithmetic_suite.h"
#include "bench/paper/paper_item.h"
#include "bench/paper/run_statistics.h"
#include "bench/paper/training_figures.h"

namespace weightcast::bench {
namespace {

const std::string kSynchronous = "synchronous";

/// The lags that rollouts have where kappa lies between two publications, and the generator hears of each `late` steps
/// late: all equally often.
std::vector<std::uint64_t> lags_of(std::uint64_t kappa, const std::vector<std::uint64_t>& late) {
  std::vector<std::uint64_t> lags;
  for (std::uint64_t since = 0; since < kappa; ++since) {
    for (const std::uint64_t steps : late) lags.push_back(since + steps);
  }
  return lags;
}

struct Published {
  std::uint64_t kappa;
  double reward;                 // of the paper
  std::optional<double> kl_max;  // the same
};
constexpr Published kPublished[] = {{10, .809, {}}, {14, .698, .703}, {19, .664, {}}};
constexpr const char* kEachStep = "kappa 1";
constexpr const char* kNever = "never";

std::string kappa_name(std::uint64_t kappa) { return fmt::format("kappa {}", kappa); }
std::string drawn_name(std::uint64_t kappa) { return fmt::format("kappa 1, lags of kappa {}", kappa); }

/// The deciding comparison: equal lags, once from rare publications, once drawn.
void decide(const Runs& runs, PaperResult& result) {
  std::vector<std::vector<double>> kappa_losses, drawn_losses, drawn_less_kappa;
  const std::vector<double> best = each(runs, kEachStep, final_reward);
  for (const Published& p : kPublished) {
    const auto of_kappa = each(runs, kappa_name(p.kappa), final_reward);
    const auto of_drawn = each(runs, drawn_name(p.kappa), final_reward);
    kappa_losses.push_back(differences(best, of_kappa));
    drawn_losses.push_back(differences(best, of_drawn));
    drawn_less_kappa.push_back(differences(of_drawn, of_kappa));
    add_row(result, fmt::format("reward with drawn lags less that with kappa {}", p.kappa), {},
            drawn_less_kappa.back());
  }
  const auto of_kappa = means_by_seed(kappa_losses), of_drawn = means_by_seed(drawn_losses),
             between = means_by_seed(drawn_less_kappa);
  add_row(result, "kappa 1 less kappa 10, 14, 19, by seed: what rare publication costs", {}, of_kappa);
  add_row(result, "kappa 1 less the same with drawn lags, by seed: what lag costs", {}, of_drawn);
  add_row(result, "drawn lags less kappa 10, 14, 19, by seed", {}, between);
  const Estimate kappa_cost = estimate_of(of_kappa), lag_cost = estimate_of(of_drawn), rest = estimate_of(between);
  result.claims.push_back({"rare publication costs reward (interval above 0)", kappa_cost.is_above_0()});
  result.claims.push_back({"lag costs reward at kappa 1 (interval above 0)", lag_cost.is_above_0()});
  result.claims.push_back({"equal harm: the interval of the difference holds 0", rest.contains(0)});
}

PaperItem sparse_staleness() {
  PaperItem item;
  item.name = "sparse-staleness";
  item.of = "Sparse patches, tables 1 and 2, figures 2 and 3";
  item.fitted =
      "the generator hears of a publication 1, 2 or 3 steps late, so that kappa 1 has the paper's median and P90; the "
      "learning rate, chosen at kappa 1";
  const std::vector<std::uint64_t> late = {1, 2, 3};
  TrainingSuite suite = arithmetic_suite("sparse_patches", "3e-4");
  suite.cases.push_back({kEachStep, 1, 11, late});
  for (const Published& p : kPublished) suite.cases.push_back({kappa_name(p.kappa), p.kappa, p.kappa + 1, late});
  suite.cases.push_back({kNever, {}, {}, late});
  for (const Published& p : kPublished) {
    suite.cases.push_back({drawn_name(p.kappa), 1, p.kappa + 1, lags_of(p.kappa, late)});
  }
  item.training = std::move(suite);
  item.evaluate_runs = [](const Runs& runs, PaperResult& result) {
    const auto rows = [&](const std::string& name, std::optional<double> reward, std::optional<double> kl) {
      add_row(result, fmt::format("{}: reward", name), reward, each(runs, name, final_reward));
      add_row(result, fmt::format("{}: reward of the last ten steps' rollouts", name), {},
              each(runs, name, late_rollouts));
      add_row(result, fmt::format("{}: greatest KL(generator, learner)", name), kl,
              each(runs, name, [](const TrainingRun& run) { return most_of(run, "kl"); }));
      add_row(result, fmt::format("{}: mean lag", name), {}, each(runs, name, &TrainingRun::lag_mean));
      add_row(result, fmt::format("{}: admissible share", name), {},
              each(runs, name, [](const TrainingRun& run) { return last_of(run, "admitted"); }));
      add_row(result, fmt::format("{}: collapsed, share of runs", name), {}, each(runs, name, collapsed));
      add_row(result, fmt::format("{}: collapsed by reward alone", name), {}, each(runs, name, collapsed_in_reward));
    };
    rows(kEachStep, {}, {});  // the paper prints bounds: .80 to .84, and at most .005
    for (const Published& p : kPublished) rows(kappa_name(p.kappa), p.reward, p.kl_max);
    rows(kNever, .627, 7.07);
    for (const Published& p : kPublished) rows(drawn_name(p.kappa), {}, {});

    const auto admitted = [](const TrainingRun& run) { return 100 * last_of(run, "admitted"); };
    // The paper's figures are those of its row kappa 10 with S = 11, which it simulates.
    const std::string rare = kappa_name(10);
    add_row(result, "kappa 10: median staleness", 8.67, each(runs, rare, &TrainingRun::lag_median));
    add_row(result, "kappa 1: median staleness", 2.0, each(runs, kEachStep, &TrainingRun::lag_median));
    add_row(result, "kappa 10: P90 of staleness", 15.67, each(runs, rare, &TrainingRun::lag_p90));
    add_row(result, "kappa 1: P90 of staleness", 3.0, each(runs, kEachStep, &TrainingRun::lag_p90));
    add_row(result, "kappa 10: admissible, %", 67.7, each(runs, rare, admitted));
    add_row(result, "kappa 1: admissible, %", 100, each(runs, kEachStep, admitted));
    for (const auto& [what, column] :
         {std::pair("changed share of a step", "changed"), std::pair("patch of a step to the weights", "ratio"),
          std::pair("changed share over ten steps", "ten_changed"),
          std::pair("patch over ten steps to the weights", "ten_ratio")}) {
      add_row(result, fmt::format("kappa 1: {}", what), {},
              each(runs, kEachStep, [&](const TrainingRun& run) { return mean_of(run, column); }));
    }
    for (const Published& p : kPublished) {
      add_row(result, fmt::format("kappa {}: patch of a publication to the weights", p.kappa), {},
              each(runs, kappa_name(p.kappa), [](const TrainingRun& run) { return mean_of(run, "event_ratio"); }));
    }
    decide(runs, result);

    const auto reward = [&](const std::string& name) { return estimate_of(each(runs, name, final_reward)).mean; };
    result.claims.push_back(
        {"reward falls as kappa grows: 1, 10, 14, 19, never",
         reward(kEachStep) > reward(kappa_name(10)) && reward(kappa_name(10)) > reward(kappa_name(14)) &&
             reward(kappa_name(14)) > reward(kappa_name(19)) && reward(kappa_name(19)) > reward(kNever)});
    const auto all_hold = [&](const std::string& name) {
      return std::ranges::none_of(each(runs, name, collapsed), [](double c) { return c > 0; });
    };
    result.claims.push_back({"no run with kappa 1, 10 or 14 collapses",
                             all_hold(kEachStep) && all_hold(kappa_name(10)) && all_hold(kappa_name(14))});
    result.claims.push_back({"all runs without publication collapse",
                             std::ranges::all_of(each(runs, kNever, collapsed), [](double c) { return c > 0; })});
    result.figure = {"Reward by training step, for how often weights are published",
                     "evaluations of the learner, mean of three seeds; lags drawn: each step published, the same lags",
                     {"training step"},
                     {"reward"},
                     {}};
    for (const Published& p : kPublished) {
      Figure::Panel& panel = result.figure.panels.emplace_back();
      panel.title = kappa_name(p.kappa);
      for (const std::string& name : {std::string(kEachStep), kappa_name(p.kappa), drawn_name(p.kappa)}) {
        draw(panel, runs, name);
      }
    }
    Figure::Panel& panel = result.figure.panels.emplace_back();
    panel.title = kNever;
    draw(panel, runs, kEachStep);
    draw(panel, runs, kNever);
  };
  return item;
}

PaperItem echo2_staleness() {
  PaperItem item;
  item.name = "echo2-staleness";
  item.of = "ECHO-2, figures 3b and 6";
  item.fitted = "the generator hears of a publication 1 or 2 steps late; the learning rate, chosen at kappa 1";
  TrainingSuite suite = arithmetic_suite("echo2", "3e-4");
  suite.cases.push_back({kSynchronous, 1, 0, {0}});
  const auto name_of = [](std::uint64_t bound) { return fmt::format("S = {}", bound); };
  for (const std::uint64_t bound : {3, 6, 11}) suite.cases.push_back({name_of(bound), bound - 1, bound, {1, 2}});
  item.training = std::move(suite);
  item.evaluate_runs = [name_of](const Runs& runs, PaperResult& result) {
    const std::vector<double> synchronous = each(runs, kSynchronous, final_reward);
    add_row(result, "synchronous: reward", {}, synchronous);
    std::vector<double> shares;
    std::vector<std::vector<double>> losses;
    for (const std::uint64_t bound : {3, 6, 11}) {
      const std::string name = name_of(bound);
      const std::vector<double> rewards = each(runs, name, final_reward);
      std::vector<double> ratios;
      for (std::size_t i = 0; i < rewards.size(); ++i) ratios.push_back(100 * (rewards[i] / synchronous[i] - 1));
      add_row(result, fmt::format("{}: reward", name), {}, rewards);
      add_row(result, fmt::format("{}: reward against synchronous, %", name), {}, ratios);
      add_row(result, fmt::format("{}: mean lag", name), {}, each(runs, name, &TrainingRun::lag_mean));
      add_row(result, fmt::format("{}: greatest KL(generator, learner)", name), {},
              each(runs, name, [](const TrainingRun& run) { return most_of(run, "kl"); }));
      add_row(result, fmt::format("{}: collapsed, share of runs", name), {}, each(runs, name, collapsed));
      add_row(result, fmt::format("{}: collapsed by reward alone", name), {}, each(runs, name, collapsed_in_reward));
      shares.push_back(estimate_of(ratios).mean);
      losses.push_back(each(runs, name, collapsed));
    }
    result.claims = {
        {"S = 3 and S = 6 end within 5 % of synchronous", std::abs(shares[0]) <= 5 && std::abs(shares[1]) <= 5},
        {"S = 11 is unstable: a run collapses", std::ranges::any_of(losses[2], [](double c) { return c > 0; })},
        {"S = 11 ends more than 5 % below synchronous", shares[2] < -5}};
    result.figure = {"Reward by training step, for bounds on staleness",
                     "evaluations of the learner, mean of three seeds; publication every S - 1 steps",
                     {"training step"},
                     {"reward"},
                     {}};
    for (const std::uint64_t bound : {3, 6, 11}) {
      Figure::Panel& panel = result.figure.panels.emplace_back();
      panel.title = name_of(bound);
      draw(panel, runs, kSynchronous);
      draw(panel, runs, name_of(bound));
    }
  };
  return item;
}

}  // namespace

std::vector<PaperItem> staleness_items() { return {sparse_staleness(), echo2_staleness()}; }

}  // namespace weightcast::bench
