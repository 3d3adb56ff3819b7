#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "bench/paper/paper_item.h"
#include "bench/paper/run_statistics.h"
#include "bench/paper/training_figures.h"

namespace weightcast::bench {
namespace {

constexpr const char* kBefore = "before";
constexpr const char* kTogether = "one process";
constexpr const char* kSequential = "sequential";
constexpr const char* kAsynchronous = "asynchronous";
constexpr std::uint64_t kWorkers = 2;
constexpr std::uint64_t kDriftMax = 2;

/// The paper's two modes, beside one process that does all, and what the weights are worth that all begin with: an
/// evaluation after one step that changes nothing.
std::vector<TrainingCase> echo_cases(const std::vector<Setting>& settings) {
  const auto with = [&](std::vector<Setting> more) {
    more.insert(more.begin(), settings.begin(), settings.end());
    return more;
  };
  return {
      {kBefore, 1, 0, {0}, with({{"learning_rate", "0"}, {"total_training_steps", "1"}, {"eval_interval", "1"}})},
      {kTogether, 1, 0, {0}, settings},
      {kSequential, 1, 0, {0}, settings, kWorkers},
      {kAsynchronous, 1, 2 * kDriftMax + 2, {0}, with({{"sync_drift_max", fmt::format("{}", kDriftMax)}}), kWorkers}};
}

/// Settings for a model of 140,000 parameters, which reads bytes.
TrainingSuite echo_suite(const char* preset) {
  TrainingSuite suite;
  suite.settings = {{"preset", preset},
                    {"chat_template", "none"},
                    {"init_hidden_size", "64"},
                    {"init_intermediate_size", "256"},
                    {"init_num_hidden_layers", "2"},
                    {"lora_rank", "0"},
                    {"kl_loss_coef", "0"},
                    {"clip_ratio_c", "3"},
                    {"sft_learning_rate", "2e-3"},
                    {"sft_batch_size", "16"},
                    {"learning_rate", "5e-4"},
                    {"lr_schedule", "cosine"},
                    {"weight_decay", "0"},
                    {"rollout_batch_size", "32"},
                    {"group_size", "8"},
                    {"eval_interval", "10"},
                    {"eval_prompts", "32"},
                    {"eval_samples", "4"}};
  suite.steps = 20;
  return suite;
}

double success(const TrainingRun& run) { return 100 * last_mean(run.columns.at("success"), 1); }

/// Whether a run came to the same weights in each step, by the same rewards and losses.
bool is_same(const TrainingRun& a, const TrainingRun& b) {
  const auto same_column = [&](const char* column) {
    return std::ranges::equal(a.columns.at(column), b.columns.at(column),
                              [](double x, double y) { return x == y || (x != x && y != y); });
  };
  return a.digests.size() > 1 && a.digests == b.digests && same_column("reward") && same_column("success") &&
         same_column("loss") && same_column("grad_norm");
}

double same_digests(const TrainingRun& a, const TrainingRun& b) {
  double same = 0;
  for (std::size_t i = 0; i < std::min(a.digests.size(), b.digests.size()); ++i) same += a.digests[i] == b.digests[i];
  return 100 * same / static_cast<double>(std::max(a.digests.size(), b.digests.size()));
}

void evaluate_modes(const Runs& runs, const char* task, PaperResult& result) {
  for (const char* name : {kBefore, kTogether, kSequential, kAsynchronous}) {
    add_row(result, fmt::format("{}: success, %", name), {}, each(runs, name, success));
  }
  for (const char* name : {kTogether, kSequential, kAsynchronous}) {
    add_row(result, fmt::format("{}: reward of the last ten steps' rollouts", name), {},
            each(runs, name, late_rollouts));
    add_row(result, fmt::format("{}: mean lag", name), {}, each(runs, name, &TrainingRun::lag_mean));
  }
  const auto together = runs_of(runs, kTogether), sequential = runs_of(runs, kSequential);
  bool all_same = !together.empty() && together.size() == sequential.size();
  std::vector<double> shares;
  for (std::size_t i = 0; i < std::min(together.size(), sequential.size()); ++i) {
    all_same = all_same && is_same(*together[i], *sequential[i]);
    shares.push_back(same_digests(*together[i], *sequential[i]));
  }
  add_row(result, "sequential: steps with the weights of one process, %", {}, shares);
  const std::vector<double> gain = differences(each(runs, kSequential, success), each(runs, kBefore, success));
  const std::vector<double> loss = differences(each(runs, kAsynchronous, success), each(runs, kSequential, success));
  add_row(result, "sequential less before: success, points", {}, gain);
  add_row(result, "asynchronous less sequential: success, points", {}, loss);
  result.claims = {
      {"sequential comes to the bits of one process: weights, rewards, losses, in each step", all_same},
      {"training raises success (interval above 0)", estimate_of(gain).is_above_0()},
      {"asynchronous is as good as sequential: the interval of the difference holds 0", estimate_of(loss).contains(0)}};
  result.figure = {fmt::format("{}: success by training step", task),
                   "evaluations of the learner, mean over the seeds; workers are two processes",
                   {"training step"},
                   {"share of answers that succeed"},
                   {}};
  for (const char* name : {kTogether, kSequential, kAsynchronous}) {
    Figure::Panel& panel = result.figure.panels.emplace_back();
    panel.title = name;
    draw(panel, runs, name, "success");
  }
}

PaperItem figure_2() {
  PaperItem item;
  item.name = "echo-fig2";
  item.of = "ECHO, figure 2, Sokoban";
  TrainingSuite suite = echo_suite("sokoban");
  suite.settings.insert(suite.settings.end(), {{"task_options.rows", "5"},
                                               {"task_options.columns", "5"},
                                               {"task_options.boxes", "1"},
                                               {"task_options.steps_min", "1"},
                                               {"task_options.actions_per_turn", "3"},
                                               {"turns_max", "2"},
                                               {"max_prompt_length", "512"},
                                               {"max_new_tokens", "48"}});
  suite.warm_up_steps = 250;
  // Rewards as they are: by their deviation the price of a step, 0.1, would count as much as a solved level.
  suite.cases = echo_cases({{"advantage_norm", "none"}, {"eval_prompts", "64"}});
  item.training = std::move(suite);
  item.evaluate_runs = [](const Runs& runs, PaperResult& result) { evaluate_modes(runs, "Sokoban", result); };
  return item;
}

PaperItem knights() {
  PaperItem item;
  item.name = "echo-knights";
  item.of = "ECHO, figure 2, knights and knaves";
  TrainingSuite suite = echo_suite("knights_and_knaves");
  suite.settings.insert(suite.settings.end(), {{"task_options.people_min", "2"},
                                               {"task_options.people_max", "3"},
                                               {"max_prompt_length", "1024"},
                                               {"max_new_tokens", "112"}});
  suite.warm_up_steps = 300;
  suite.seeds.resize(1);
  // The warm-up makes whole weights, as a model of others has them; what learns then is an adapter, as in the preset.
  // Rewards are for each person, since so small a model is right about all of them too rarely to learn from that.
  suite.cases = echo_cases({{"lora_rank", "16"}, {"task_options.reward", "graded"}});
  item.training = std::move(suite);
  item.evaluate_runs = [](const Runs& runs, PaperResult& result) {
    evaluate_modes(runs, "Knights and knaves, two or three people", result);
  };
  return item;
}

}  // namespace

std::vector<PaperItem> echo_items() { return {figure_2(), knights()}; }

}  // namespace weightcast::bench
