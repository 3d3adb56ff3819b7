#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/settings/settings.h"
#include "bench/paper/poker/poker_match.h"
#include "bench/paper/training_suite.h"

namespace weightcast::bench {

/// Supervised updates on a log of rules' games, which make a policy of random weights one that plays.
struct PokerWarmUp {
  std::vector<PokerRule> players;  ///< whose games are logged; see PokerLogOptions
  std::uint64_t tables = 100;
  std::uint64_t updates = 100;
  std::uint64_t seed = 0;
};

/// Settings of the learner that make a case.
struct PokerCase {
  std::string name;
  std::vector<Setting> settings;
};

/// Training runs of the product's learner at poker, in this process: each case under each seed, from the weights of
/// `base`, against one frozen model.
struct PokerSuite {
  std::vector<Setting> settings;   ///< of the learner, for all runs
  std::vector<Setting> training;   ///< of those alone that train by rewards
  std::vector<std::string> words;  ///< that are tokens; see word_tokenizer_json()
  PokerTableOptions table;
  PokerWarmUp base;
  PokerWarmUp opponent;  ///< of the frozen model
  std::vector<PokerCase> cases;
  std::vector<std::uint64_t> seeds = {42, 123, 456};
  std::uint64_t steps = 0;
  std::uint64_t deals = 500;  ///< of a match; see PokerMatchOptions
  std::uint64_t match_seed = 0;
};

/// A policy against an opponent: net chips a hand, with a 95 % interval by bootstrap over the sequences of hands.
struct PokerCell {
  std::string policy;      ///< "warmed up", or the name of a case
  std::uint64_t seed = 0;  ///< of the run; 0 for what all runs start from
  std::string opponent;    ///< a rule's name, or kFrozenModel
  double mean = 0, low = 0, high = 0;
  std::uint64_t hands = 0;
  double refused_share = 0;  ///< of the policy's answers
};

NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(PokerCell, policy, seed, opponent, mean, low, high, hands, refused_share)

inline constexpr std::string_view kWarmedUp = "warmed up";
inline constexpr std::string_view kFrozenModel = "frozen model";

struct PokerOutcome {
  std::vector<TrainingRun> runs;  ///< columns reward (chips of a hand), loss, kl, entropy, tokens
  std::vector<PokerCell> cells;
};

/// All that the suite's figures follow from.
[[nodiscard]] nlohmann::json to_json(const PokerSuite& suite);

/// Of a cell's JSON: absent if it is none.
[[nodiscard]] std::optional<PokerCell> poker_cell(const nlohmann::json& json);

}  // namespace weightcast::bench
