#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "bench/paper/paper_item.h"
#include "bench/paper/run_statistics.h"

namespace weightcast::bench {
namespace {

constexpr const char* kOurs = "GRPO, our default";
constexpr const char* kLiteral = "GRPO, equation 24";
constexpr std::size_t kStepsOfAPoint = 5;

/// Table 7's columns, and what it prints of Qwen3-0.6B before and after GRPO.
struct Column {
  std::string_view opponent;
  double before, after;
};
constexpr Column kColumns[] = {{to_string(PokerRule::kTightPassive), .571, -.195},
                               {to_string(PokerRule::kLooseAggressive), .514, -.599},
                               {to_string(PokerRule::kPotOdds), .592, -.451},
                               {kFrozenModel, -1.677, 1.245}};

/// The pieces of the task's texts: a turn is some forty tokens instead of two hundred bytes.
std::vector<std::string> poker_words() {
  std::vector<std::string> words{"Hand: [",
                                 "], Board: [",
                                 "], Pot: ",
                                 ", To call: ",
                                 ", Stack: ",
                                 ", Odds: 0.",
                                 "\nYou may: Fold, Check",
                                 "\nYou may: Fold, Call",
                                 ", Raise ",
                                 " to ",
                                 ", ",
                                 "Action: Fold",
                                 "Action: Check",
                                 "Action: Call",
                                 "Action: Raise ",
                                 "Action: All-in",
                                 "That was no action that is allowed (",
                                 " so far): it counted as a check.\n",
                                 " so far): it counted as a fold.\n"};
  for (std::uint8_t index = 0; index < kDeckCards; ++index) words.push_back(to_string(Card{index}));
  return words;
}

PokerSuite poker_suite() {
  PokerSuite suite;
  suite.words = poker_words();
  suite.settings = {{"task", "poker"},
                    {"chat_template", "none"},
                    {"init_hidden_size", "64"},
                    {"init_intermediate_size", "192"},
                    {"init_num_hidden_layers", "2"},
                    {"init_num_attention_heads", "4"},
                    {"init_num_key_value_heads", "2"},
                    {"max_prompt_length", "128"},
                    {"max_new_tokens", "8"},
                    {"turns_max", "64"},
                    {"max_sequence_length", "4096"},
                    {"top_p", "1"},
                    // Whoever waits for the frozen model's answers samples with it: so many are answered together.
                    {"reward_threads", "32"},
                    {"reward_time_max", "3600"},
                    {"episode_time_max", "36000"},
                    {"sft_batch_size", "32"},
                    {"sft_learning_rate", "2e-3"}};
  suite.training = {{"rollout_batch_size", "256"},
                    {"group_size", "16"},
                    {"updates_per_step", "2"},
                    // In chips. Divided by its deviation a group in which all lose a blind counts as much as one that
                    // goes all in; a run with that learned to fold.
                    {"advantage_norm", "none"},
                    {"learning_rate", "7e-4"},
                    {"lr_schedule", "cosine"},
                    {"weight_decay", "0"},
                    {"checkpoint_interval", "10"}};
  suite.table = {2, PokerPrompt::kState};
  suite.base = {{PokerRule::kPotOdds}, 600, 300, 1};
  suite.opponent = {{PokerRule::kLooseAggressive}, 1500, 300, 2};
  suite.cases = {{kOurs, {}}, {kLiteral, {{"pg_variant", "echo2"}, {"tis_cap", "0"}, {"ratio_high", "2"}}}};
  suite.steps = 60;
  suite.deals = 500;
  suite.match_seed = 7;
  return suite;
}

std::vector<const PokerCell*> cells_of(const PokerOutcome& outcome, std::string_view policy,
                                       std::string_view opponent) {
  std::vector<const PokerCell*> cells;
  for (const PokerCell& cell : outcome.cells) {
    if (cell.policy == policy && cell.opponent == opponent) cells.push_back(&cell);
  }
  return cells;
}

double half_width(const PokerCell& cell) { return std::max(cell.high - cell.mean, cell.mean - cell.low); }

/// Means of a few steps, of each seed.
void draw(const PokerOutcome& outcome, std::string_view name, Figure& figure) {
  Figure::Panel& panel = figure.panels.emplace_back();
  panel.title = name;
  double last = 0;
  for (const TrainingRun* run : runs_of(outcome.runs, name)) {
    Figure::Series& series = panel.series.emplace_back();
    series.name = fmt::format("seed {}", run->seed);
    const std::vector<double>& rewards = run->columns.at("reward");
    for (std::size_t begin = 0; begin < rewards.size(); begin += kStepsOfAPoint) {
      const std::size_t count = std::min(kStepsOfAPoint, rewards.size() - begin);
      last = static_cast<double>(begin + count);
      series.points.push_back({last, last_mean(std::span(rewards).subspan(begin, count), count)});
    }
  }
  panel.series.push_back({"neither wins", true, {{0, 0}, {last, 0}}});
}

void evaluate_table(const PokerSuite& suite, const PokerOutcome& outcome, PaperResult& result) {
  for (const Column& column : kColumns) {
    const PokerCell& cell = *cells_of(outcome, kWarmedUp, column.opponent).at(0);
    result.rows.push_back({fmt::format("{}, against {}: net chips a hand", kWarmedUp, column.opponent), column.before,
                           cell.mean, half_width(cell)});
  }
  const PokerCell& before = *cells_of(outcome, kWarmedUp, kFrozenModel).at(0);
  result.rows.push_back(
      {fmt::format("{}: answers that are not allowed, %", kWarmedUp), {}, 100 * before.refused_share});
  result.claims.push_back({"the frozen model beats the warmed-up one (interval below 0)", before.high < 0});
  for (const PokerCase& c : suite.cases) {
    bool is_worse_against_rules = true;
    for (const Column& column : kColumns) {
      std::vector<double> means;
      for (const PokerCell* cell : cells_of(outcome, c.name, column.opponent)) {
        means.push_back(cell->mean);
        result.rows.push_back({fmt::format("{}, seed {}, against {}", c.name, cell->seed, column.opponent),
                               {},
                               cell->mean,
                               half_width(*cell)});
      }
      const Estimate all = estimate_of(means);
      result.rows.push_back({fmt::format("{}, against {}: net chips a hand", c.name, column.opponent), column.after,
                             all.mean, all.half_width});
      const bool is_rule = column.opponent != kFrozenModel;
      if (is_rule && all.mean >= cells_of(outcome, kWarmedUp, column.opponent).at(0)->mean) {
        is_worse_against_rules = false;
      }
    }
    std::size_t profits = 0;
    std::vector<double> refused;
    for (const PokerCell* cell : cells_of(outcome, c.name, kFrozenModel)) {
      profits += before.high < 0 && cell->low > 0 ? 1 : 0;
      refused.push_back(100 * cell->refused_share);
    }
    const Estimate not_allowed = estimate_of(refused);
    result.rows.push_back(
        {fmt::format("{}: answers that are not allowed, %", c.name), {}, not_allowed.mean, not_allowed.half_width});
    result.claims.push_back(
        {fmt::format("{}: from loss to profit against the frozen model, in two of three seeds", c.name),
         3 * profits >= 2 * suite.seeds.size()});
    result.claims.push_back(
        {fmt::format("{}: it wins less against each rule than before", c.name), is_worse_against_rules});
  }
  result.figure = {"Net chips a hand in training, against the frozen model",
                   fmt::format("rollouts of the policy that learns, means of {} steps", kStepsOfAPoint),
                   {"training step"},
                   {"chips a hand"},
                   {}};
  for (const PokerCase& c : suite.cases) draw(outcome, c.name, result.figure);
}

}  // namespace

std::vector<PaperItem> poker_items() {
  PaperItem item;
  item.name = "echo2-table7";
  item.of = "ECHO-2, table 7";
  item.fitted = "the frozen model, so that it beats the warmed-up one; learning rate and advantage_norm, by seed 42";
  item.poker = poker_suite();
  item.evaluate_poker = evaluate_table;
  return {item};
}

}  // namespace weightcast::bench
