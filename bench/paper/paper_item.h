#pragma once

#include <cstdint>
#include <functional>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "bench/paper/poker/poker_suite.h"
#include "bench/paper/training_suite.h"
#include "bench/plot/figure.h"
#include "bench/rollout/rollout_bench.h"

namespace weightcast::bench {

/// A figure of a paper beside ours.
struct PaperRow {
  std::string what;             ///< "36 groups of 12, speed-up"
  std::optional<double> paper;  ///< absent: the paper has none
  double ours = 0;
  std::optional<double> half_width = {};  ///< of the 95 % interval around ours; absent: one value
  char source = 'P';                      ///< of `paper`: P, it prints that; D, it follows from what it prints
};

/// A statement of the paper, in words or by the order of its figures, and whether our figures bear it out.
struct PaperClaim {
  std::string what;
  bool holds = false;
};

struct PaperResult {
  std::vector<PaperRow> rows;
  std::vector<PaperClaim> claims;
  Figure figure;
  nlohmann::json runs;  ///< training runs step by step; null if there are none
};

/// Seconds of a step for each case of an item's suite: the mean over the seeds.
class StepTimes {
 public:
  /// `runs`: the same suite, once per seed, each with its results.
  explicit StepTimes(const std::vector<RolloutSuite>& runs) : runs_(runs) {}

  /// Of a name and a place that the suite has.
  [[nodiscard]] double at(std::string_view name, double x) const;
  [[nodiscard]] const std::vector<RolloutSuite>& runs() const { return runs_; }
  /// The suite's cases as series, in seconds per step.
  [[nodiscard]] std::vector<Figure::Series> series() const;

 private:
  const std::vector<RolloutSuite>& runs_;
};

/// A table or figure of a paper that formulas, the simulated loop or training runs give again.
struct PaperItem {
  std::string_view name;  ///< of the command line: "flash-fig9"
  std::string_view of;    ///< "ROLL Flash, figure 9"
  std::string fitted;     ///< what was chosen so that one of the paper's figures comes out; "": nothing
  std::uint64_t seeds = 1;
  nlohmann::json inputs;  ///< of its formulas
  RolloutSuite suite;     ///< cases to simulate; none where formulas are all
  /// Fills in the result. Its figure has the suite's series by then, if there are cases.
  std::function<Status(const StepTimes&, PaperResult&)> evaluate;
  /// Of an item that trains: its runs, and what fills in the result then. It has no suite, and no `evaluate`.
  std::optional<TrainingSuite> training = {};
  std::function<void(const std::vector<TrainingRun>&, PaperResult&)> evaluate_runs = {};
  /// The same of an item that trains at poker.
  std::optional<PokerSuite> poker = {};
  std::function<void(const PokerSuite&, const PokerOutcome&, PaperResult&)> evaluate_poker = {};

  [[nodiscard]] bool trains() const { return training || poker; }
};

/// Cost and capacity: ECHO-2 (arXiv 2602.02192), table 2, figures 3a and 3c.
[[nodiscard]] std::vector<PaperItem> echo2_items();
/// Scheduling: ROLL Flash (arXiv 2510.11345), propositions, figures 1b, 3, 7 to 10, table 1.
[[nodiscard]] std::vector<PaperItem> flash_items();
/// Reward by staleness: the extension of ECHO-2 by sparse patches, tables 1 and 2, figures 2 and 3; ECHO-2, figures 3b
/// and 6. They train.
[[nodiscard]] std::vector<PaperItem> staleness_items();
/// ECHO-2, table 7: heads-up poker. It trains.
[[nodiscard]] std::vector<PaperItem> poker_items();
/// Its two modes beside one process that does all: ECHO (arXiv 2508.05387), figure 2. They train, over the network.
[[nodiscard]] std::vector<PaperItem> echo_items();
/// Losses and environments of asynchronous training: ROLL Flash, figures 4 and 11. They train.
[[nodiscard]] std::vector<PaperItem> flash_training_items();

}  // namespace weightcast::bench
