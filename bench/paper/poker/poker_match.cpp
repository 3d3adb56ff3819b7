#include "bench/paper/poker/poker_match.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <nlohmann/json.hpp>

#include "base/draws.h"
#include "base/json_text.h"

namespace weightcast::bench {
namespace {

constexpr std::uint64_t kMatchStream = 1;
constexpr std::uint64_t kLogStream = 2;
constexpr std::uint64_t kDealsAtOnce = 64;  // bounds what models keep of conversations

/// Asks `player` at all of `tables`, where it is to act.
Status answer(const PokerPlayer& player, std::span<SeatedTable* const> tables) {
  std::vector<PokerTurn> turns;
  for (const SeatedTable* seated : tables) turns.push_back(seated->table.turn());
  WC_ASSIGN(const std::vector<std::string> answers, player.answers(turns));
  if (answers.size() != tables.size()) {
    return fail(Errc::kInvalidArgument, Op::kVerify,
                fmt::format("a poker player gave {} answers to {} turns", answers.size(), tables.size()));
  }
  for (std::size_t i = 0; i < tables.size(); ++i) WC_TRY(tables[i]->table.handle_answer(answers[i]));
  return {};
}

}  // namespace

Status play_tables(std::span<SeatedTable> tables) {
  for (;;) {
    std::map<const PokerPlayer*, std::vector<SeatedTable*>> turns;
    for (SeatedTable& seated : tables) {
      if (!seated.table.is_over()) turns[seated.players[seated.table.to_act()]].push_back(&seated);
    }
    if (turns.empty()) return {};
    for (const auto& [player, where] : turns) WC_TRY(answer(*player, where));
  }
}

Result<PokerMatchResult> play_match(const PokerPlayer& first, const PokerPlayer& second,
                                    const PokerMatchOptions& options) {
  PokerMatchResult result;
  for (std::uint64_t begin = 0; begin < options.deals; begin += kDealsAtOnce) {
    std::vector<SeatedTable> tables;
    for (std::uint64_t deal = begin; deal < std::min(options.deals, begin + kDealsAtOnce); ++deal) {
      WC_ASSIGN(PokerTable table, PokerTable::make(drawn(options.seed, kMatchStream, deal), options));
      tables.push_back({table, {&first, &second}});
      tables.push_back({std::move(table), {&second, &first}});
    }
    WC_TRY(play_tables(tables));
    for (std::size_t i = 0; i < tables.size(); i += 2) {
      const PokerTable &played = tables[i].table, &mirrored = tables[i + 1].table;
      result.chips_per_hand.push_back(static_cast<double>(played.won(0) + mirrored.won(1)) / (2.0 * options.hands));
      result.hands += std::uint64_t{2} * options.hands;
      result.answered += played.answered(0) + mirrored.answered(1);
      result.refused += played.refused(0) + mirrored.refused(1);
    }
  }
  return result;
}

Result<std::string> poker_log(const PokerLogOptions& options) {
  const std::array<RulePlayer, 3> rules{RulePlayer(PokerRule::kTightPassive), RulePlayer(PokerRule::kLooseAggressive),
                                        RulePlayer(PokerRule::kPotOdds)};
  std::string log;
  std::uint64_t tables_made = 0;
  for (const PokerRule logged : options.players) {
    for (const RulePlayer& other : rules) {
      for (std::uint64_t n = 0; n < options.tables; ++n) {
        WC_ASSIGN(PokerTable table, PokerTable::make(drawn(options.seed, kLogStream, tables_made++), options));
        const unsigned seat = n % 2;
        SeatedTable seated{std::move(table), {&other, &other}};
        seated.players.at(seat) = &rules.at(static_cast<std::size_t>(logged));
        WC_TRY(play_tables(std::span(&seated, 1)));
        nlohmann::json messages = nlohmann::json::array();
        for (const ChatMessage& message : seated.table.conversation(seat)) {
          messages.push_back({{"role", message.role}, {"content", message.content}});
        }
        // A player without a turn, as the other one folded each hand, has nothing to learn from.
        if (messages.empty()) continue;
        log += json_text({{"messages", std::move(messages)}, {"chips", seated.table.won(seat)}}) + "\n";
      }
    }
  }
  return log;
}

}  // namespace weightcast::bench
