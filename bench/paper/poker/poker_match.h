#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "base/result.h"
#include "trainer/tasks/poker/poker_player.h"
#include "trainer/tasks/poker/poker_table.h"

namespace weightcast::bench {

/// A table, and who sits there as player 0 and 1. The players outlive it.
struct SeatedTable {
  PokerTable table;
  std::array<const PokerPlayer*, 2> players;
};

/// Plays all tables to their end, side by side: each round asks each player once for all of its turns.
/// Errors: the players'; kInvalidArgument if a player does not answer each turn.
[[nodiscard]] Status play_tables(std::span<SeatedTable> tables);

struct PokerMatchOptions : PokerTableOptions {
  std::uint64_t deals = 500;  ///< sequences of hands, each of which is played twice
  std::uint64_t seed = 0;
};

struct PokerMatchResult {
  /// Chips that the first player won per hand: an entry per sequence of hands, over both times that it was played.
  std::vector<double> chips_per_hand;
  std::uint64_t hands = 0;
  std::uint64_t answered = 0;  ///< answers of the first player
  std::uint64_t refused = 0;   ///< those of them that were no action that is allowed
};

/// Mirrored deals: each sequence of hands is played twice, the second time with the players' cards and positions
/// exchanged. Two equal players get zero from each. Errors: those of play_tables() and PokerTable::make().
[[nodiscard]] Result<PokerMatchResult> play_match(const PokerPlayer& first, const PokerPlayer& second,
                                                  const PokerMatchOptions& options);

struct PokerLogOptions : PokerTableOptions {
  std::vector<PokerRule> players;  ///< whose games are logged, against each rule
  std::uint64_t tables = 100;      ///< of each of the players, against each rule, in either position
  std::uint64_t seed = 0;
};

/// Games for a policy to learn from before it plays: a line {"messages", "chips"} for each logged player of each table,
/// as sft_data takes them, with the chips that the player won. Errors: those of PokerTable::make().
[[nodiscard]] Result<std::string> poker_log(const PokerLogOptions& options);

}  // namespace weightcast::bench
